"""The worked example of a new cell: one file, from its equations to a checkpoint that others load."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import quickstart
import torch
import train_lm
from model_setup import run_model_code
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf.modeling_onlstm import ONLSTMLayer

LOAD_AND_USE = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

checkpoint, sentence = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
parse = pipeline("constituency-parsing", model=checkpoint, trust_remote_code=True, device="cpu")
ids = tokenizer(sentence, return_tensors="pt").input_ids
print(json.dumps({
    "module": type(model).__module__,
    "brackets": model.parse(sentence, tokenizer).to_bracket(),
    "pipeline": parse(sentence)["brackets"],
    "generated": model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist(),
}))
"""
TINY = ["--train_split", "train[:60]", "--test_split", "test[:5]", "--max_steps", "2"]


@pytest.fixture(scope="module")
def cumax_lstm(project_root):
    run_model_code(str(project_root / "examples" / "cumax_lstm.py"))
    return sys.modules["cumax_lstm"]


@pytest.fixture(scope="module")
def run(project_root, tmp_path_factory):
    """The folder of a run as the file's docstring says to start it."""
    folder = tmp_path_factory.mktemp("run")
    code = project_root / "examples" / "cumax_lstm.py"
    command = ["--model_code", str(code), "--model_type", "cumax_lstm", "--output_dir", str(folder)]
    quickstart.main([*command, *TINY])
    return folder


def test_its_layer_is_an_on_lstm_whose_ordinary_gates_are_open(cumax_lstm):
    torch.manual_seed(0)
    size, chunk_size, chunks = 6, 2, 3
    layer = cumax_lstm.CumaxLSTMLayer(5, size, chunk_size, 0.3).double().eval()
    expected = ONLSTMLayer(5, size, chunk_size, 0.3).double().eval()
    for name in ("input_projection", "recurrent_projection"):
        old, new = getattr(expected, name), getattr(layer, name)
        for weight in ("weight", "bias"):
            forget, write, candidate, output = getattr(new, weight).detach().split([chunks, chunks, size, size])
            is_open = torch.full_like(candidate, 50.0 if weight == "bias" else 0.0)
            rows = torch.cat([write, forget, candidate, is_open, is_open, output])
            getattr(old, weight).data = rows
    inputs, mask = torch.randn(7, 2, 5).double(), torch.ones(7, 2, dtype=torch.bool)
    mask[4:, 1] = False
    hidden, cell = torch.rand(2, 2, size).double()
    for used_mask in (None, mask):
        output = layer(inputs, hidden, cell, used_mask)
        outputs, last_cell, forget_distances, input_distances = expected(
            inputs, hidden, cell.view(2, chunks, chunk_size), used_mask
        )
        real = slice(None) if used_mask is None else mask
        torch.testing.assert_close(output.outputs, outputs)
        torch.testing.assert_close(output.cell, last_cell.view(2, size))
        torch.testing.assert_close(output.forget_distances[real], forget_distances[real])
        torch.testing.assert_close(output.input_distances[real], input_distances[real])


def test_its_checkpoint_carries_its_file_and_loads_where_that_was_not_imported(run, project_root):
    checkpoint, sentence = run / "model" / "best", "the tall child runs"
    assert (checkpoint / "cumax_lstm.py").read_bytes() == (project_root / "examples" / "cumax_lstm.py").read_bytes()
    process = subprocess.run(
        [sys.executable, "-c", LOAD_AND_USE, checkpoint, sentence],
        cwd=project_root,
        env={**os.environ, "HF_MODULES_CACHE": str(run / "modules")},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["module"].startswith("transformers_modules.")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    assert report["brackets"] == report["pipeline"] == model.parse(sentence, tokenizer).to_bracket()
    ids = tokenizer(sentence, return_tensors="pt").input_ids
    assert report["generated"] == model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()


def test_a_run_with_it_goes_on_where_it_stopped(run):
    recipe = Path(quickstart.RECIPE)
    arguments = [str(recipe), "--model_type", "cumax_lstm", "--output_dir", str(run / "model"), *TINY]
    arguments += ["--dataset", str(run / "corpus"), "--resume", "--max_steps", "3"]
    assert train_lm.main(arguments)["updates"] == 3


def test_a_file_that_cannot_be_its_own_module_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Python file .*cell.py"):
        run_model_code(str(tmp_path / "cell.py"))
    (tmp_path / "recipe.py").write_text("")
    with pytest.raises(ValueError, match="another file name"):
        run_model_code(str(tmp_path / "recipe.py"))
