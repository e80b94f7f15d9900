"""The worked example of a new cell: one file, from its equations to a checkpoint that others load and score."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from eval import evaluate_lm, evaluate_parsing, evaluate_syntax
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from training import train_lm
from training.loop.model_setup import run_model_code

LOAD_AND_USE = """
import json, sys
from onlstm_hf.cli.main import main
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

checkpoint, sentence = sys.argv[1:]
refused = main(["parse", sentence, "--model", checkpoint])
parsed = main(["parse", sentence, "--model", checkpoint, "--trust-remote-code"])
model = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
parse = pipeline("constituency-parsing", model=checkpoint, trust_remote_code=True, device="cpu")
ids = tokenizer(sentence, return_tensors="pt").input_ids
print(json.dumps({
    "statuses": [refused, parsed],
    "module": type(model).__module__,
    "pipeline": parse(sentence)["brackets"],
    "generated": model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist(),
}))
"""
SENTENCE = "the cat sees a dog"


@pytest.fixture(scope="module")
def cumax_lstm(project_root):
    run_model_code(str(project_root / "examples" / "cumax_lstm.py"))
    return sys.modules["cumax_lstm"]


@pytest.fixture(scope="module")
def arguments(project_root, tmp_path_factory) -> list[str]:
    """Those of a tiny run with it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(f"{SENTENCE}\n" * 40)
    text, code = str(folder / "text.txt"), str(project_root / "examples" / "cumax_lstm.py")
    sizes = ["--model.embedding_size", "8", "--model.hidden_size", "12", "--model.chunk_size", "4"]
    data = [
        "--train_files",
        text,
        "--validation_files",
        text,
        "--bptt_length",
        "6",
        "--batch_size",
        "2",
        "--optimizer",
        "adam",
        "--learning_rate",
        "0.01",
    ]
    return [*data, *sizes, "--model_code", code, "--model_type", "cumax_lstm", "--output_dir", str(folder / "run")]


@pytest.fixture(scope="module")
def checkpoint(arguments) -> Path:
    train_lm.main([*arguments, "--max_steps", "1"])
    return Path(arguments[-1], "last")


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


def test_its_checkpoint_carries_its_file_and_loads_where_that_was_not_imported(checkpoint, project_root, tmp_path):
    assert (checkpoint / "cumax_lstm.py").read_bytes() == (project_root / "examples" / "cumax_lstm.py").read_bytes()
    process = subprocess.run(
        [sys.executable, "-c", LOAD_AND_USE, checkpoint, SENTENCE],
        cwd=project_root,
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    brackets, report = process.stdout.splitlines()
    report = json.loads(report)
    assert report["statuses"] == [1, 0] and "trust_remote_code" in process.stderr
    assert report["module"].startswith("transformers_modules.")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    assert brackets == report["pipeline"] == model.parse(SENTENCE, tokenizer).to_bracket()
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    assert report["generated"] == model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()


def test_a_run_with_it_goes_on_where_it_stopped(checkpoint, arguments):
    assert train_lm.main([*arguments, "--resume", "--max_steps", "2"])["updates"] == 2


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (evaluate_lm, ["--files", "text.txt"]),
        (evaluate_parsing, ["--treebank", "trees.mrg"]),
        (evaluate_syntax, ["--blimp", "blimp"]),
    ],
)
@pytest.mark.parametrize("option", [[], ["--trust-remote-code"]], ids=str)
def test_evaluation_runs_its_code_only_when_told_to(script, arguments, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(f"{SENTENCE}\n")
    Path("trees.mrg").write_text("( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog)))) )\n")
    Path("blimp").mkdir()
    fields = {"UID": "agreement", "linguistics_term": "agreement", "field": "morphology"}
    Path("blimp/agreement.jsonl").write_text(json.dumps(fields | {"sentence_good": "a", "sentence_bad": "b"}))
    trusted = []

    def load(name, trust_remote_code, **options):
        trusted.append(trust_remote_code)
        raise ValueError("seen")

    monkeypatch.setattr(script, "load_checkpoint", load)
    assert script.main(["checkpoint", *arguments, *option]) == 1
    assert trusted == [bool(option)]


def test_a_file_that_cannot_be_its_own_module_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Python file .*cell.py"):
        run_model_code(str(tmp_path / "cell.py"))
    (tmp_path / "recipe.py").write_text("")
    with pytest.raises(ValueError, match="another file name"):
        run_model_code(str(tmp_path / "recipe.py"))
