"""The example of a new cell in one file: equations, training, checkpoint, evaluation."""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from eval import evaluate_lm, evaluate_parsing, evaluate_syntax, task
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from tests.helpers.fast_paths import record_paths
from tests.helpers.isolated_process import run_isolated
from training import train_lm
from training.loop.model_setup import run_model_code

LOAD_AND_USE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
checkpoint, sentence, checkout = sys.argv[1:]
sys.path.insert(0, checkout)
from onlstm_hf.cli.main import main
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

with redirect_stderr(io.StringIO()) as told, redirect_stdout(io.StringIO()) as printed:
    refused = main(["parse", sentence, "--model", checkpoint])
    parsed = main(["parse", sentence, "--model", checkpoint, "--trust-remote-code", "--dtype", "float32"])
model = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
parse = pipeline("constituency-parsing", model=checkpoint, trust_remote_code=True, device="cpu")
ids = tokenizer(sentence, return_tensors="pt").input_ids
print(json.dumps({
    "statuses": [refused, parsed],
    "told": told.getvalue(),
    "printed": printed.getvalue(),
    "module": type(model).__module__,
    "pipeline": parse(sentence)["brackets"],
    "generated": model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist(),
}))
"""
SENTENCE = "the cat sees a dog"


@pytest.fixture(scope="module")
def cumax_lstm(project_root):
    run_model_code(str(project_root / "examples" / "minimal_cell.py"))
    return sys.modules["minimal_cell"]


@pytest.fixture(scope="module")
def fast_cell(project_root):
    run_model_code(str(project_root / "examples" / "fast_cell.py"))
    return sys.modules["fast_cell"]


@pytest.fixture(scope="module")
def arguments(project_root, tmp_path_factory) -> list[str]:
    """Returns the results of a tiny run with the cell."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(f"{SENTENCE}\n" * 40)
    text, code = str(folder / "text.txt"), str(project_root / "examples" / "minimal_cell.py")
    sizes = ["--model.embedding_size", "8", "--model.hidden_size", "12", "--model.chunk_size", "4"]
    data = ["--train_files", text, "--validation_files", text, "--bptt_length", "6", "--batch_size", "2"]
    data += ["--optimizer", "adam", "--learning_rate", "0.01"]
    return [*data, *sizes, "--model_code", code, "--model_type", "cumax_lstm", "--output_dir", str(folder / "run")]


@pytest.fixture(scope="module")
def checkpoint(arguments) -> Path:
    train_lm.main([*arguments, "--max_steps", "1"])
    return Path(arguments[-1], "last")


def test_the_layer_equals_an_onlstm_with_open_standard_gates(cumax_lstm):
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
        outputs, (_, last_cell), forget_distances, input_distances = expected(
            inputs, hidden, cell.view(2, chunks, chunk_size), used_mask
        )
        real = slice(None) if used_mask is None else mask
        torch.testing.assert_close(output.outputs, outputs)
        torch.testing.assert_close(output.state[1], last_cell.view(2, size))
        torch.testing.assert_close(output.forget_distances[real], forget_distances[real])
        torch.testing.assert_close(output.input_distances[real], input_distances[real])


def flat(output) -> list[torch.Tensor]:
    """Returns outputs, cell state and both distances of a layer."""
    return [output.outputs, output.state[1], output.forget_distances, output.input_distances]


def test_the_fast_cell_equals_the_minimal_cell(cumax_lstm, fast_cell):
    torch.manual_seed(0)
    minimal, fast = cumax_lstm.CumaxLSTMLayer(5, 6, 2, 0.3).eval(), fast_cell.FastCumaxLSTMLayer(5, 6, 2, 0.3).eval()
    fast.load_state_dict(minimal.state_dict())
    inputs, states = torch.randn(5, 2, 5), torch.randn(2, 2, 6)
    torch.testing.assert_close(flat(fast(inputs, *states, None)), flat(minimal(inputs, *states, None)))


@pytest.mark.parametrize("padding", [False, True])
def test_the_fast_path_equals_the_equations(fast_cell, padding):
    torch.manual_seed(0)
    length, batch_size, chunks, chunk_size = 4, 3, 2, 3
    layer = fast_cell.FastCumaxLSTMLayer(5, chunks * chunk_size, chunk_size, 0.0).double()
    inputs = torch.randn(length, batch_size, 5).double().requires_grad_()
    hidden, cell = (torch.randn(batch_size, chunks * chunk_size).double().requires_grad_() for _ in range(2))
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 1]]).bool() if padding else None
    variables = [inputs, hidden, cell, *layer.parameters()]
    results = []
    for implementation in ("reference", "fused"):
        layer.implementation = implementation
        outputs = flat(layer(inputs, hidden, cell, mask))
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(output.shape, generator=generator, dtype=torch.float64) for output in outputs]
        results.append([*outputs, *torch.autograd.grad(outputs, variables, weights)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-12)
    assert layer.implementation == "fused"
    torch.autograd.gradcheck(lambda *tensors: tuple(flat(layer(*tensors, mask))), (inputs, hidden, cell))


def test_the_fast_path_trains_in_bfloat16_and_compiled(fast_cell, monkeypatch):
    ran = record_paths(monkeypatch, fast_cell.RECURRENCE)
    torch.manual_seed(0)
    layer, inputs, losses = fast_cell.FastCumaxLSTMLayer(5, 6, 2, 0.0), torch.randn(5, 2, 5), []
    torch._dynamo.reset()
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        for enabled in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                losses.append(run(inputs, *layer.initial_state(2), None).outputs.float().square().sum())
            layer.zero_grad()
            losses[-1].backward()
            assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    assert ran == [("fused", "forward"), ("fused", "backward")] * 4
    torch.testing.assert_close(losses[2:], losses[:2])
    torch.testing.assert_close(losses[1], losses[0], rtol=0.03, atol=0)


@pytest.mark.slow
def test_the_checkpoint_contains_the_code_and_loads_in_a_new_process(checkpoint, project_root, tmp_path):
    code = project_root / "examples" / "minimal_cell.py"
    assert (checkpoint / "minimal_cell.py").read_bytes() == code.read_bytes()
    report = run_isolated(LOAD_AND_USE, checkpoint, SENTENCE, project_root, modules=tmp_path, folder=project_root)
    assert report["statuses"] == [1, 0] and "trust_remote_code" in report["told"]
    assert report["module"].startswith("transformers_modules.")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    assert report["printed"].strip() == report["pipeline"] == model.parse(SENTENCE, tokenizer).to_bracket()
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    assert report["generated"] == model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()


def test_bfloat16_weights_parse_and_generate(checkpoint):
    """`onlstm-hf parse --dtype bfloat16` loads weights like this."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    for parsed in range(model.config.num_hidden_layers):
        assert list(model.parse(SENTENCE, tokenizer, layer=parsed).words) == SENTENCE.split()
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    assert model.generate(ids, max_new_tokens=4, do_sample=False).shape[1] > ids.shape[1]


def test_a_run_can_be_resumed(checkpoint, arguments):
    assert train_lm.main([*arguments, "--resume", "--max_steps", "2"])["updates"] == 2


@pytest.mark.parametrize(
    ("script", "data"),
    [
        (evaluate_lm, "--files=text.txt"),
        (evaluate_parsing, "--treebank=trees.mrg"),
        (evaluate_syntax, "--blimp=blimp"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--trust-remote-code"]], ids=str)
def test_evaluation_runs_remote_code_only_if_trusted(script, data, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(f"{SENTENCE}\n")
    Path("trees.mrg").write_text("( (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog)))) )\n")
    Path("blimp").mkdir()
    fields = {"UID": "agreement", "linguistics_term": "agreement", "field": "morphology"}
    Path("blimp/agreement.jsonl").write_text(json.dumps(fields | {"sentence_good": "a", "sentence_bad": "b"}))
    trusted = []

    def load(*arguments, trust_remote_code, **options):
        trusted.append(trust_remote_code)
        raise ValueError("seen")

    monkeypatch.setattr(task, "load_checkpoint", load)
    assert script.main(["checkpoint", data, *option]) == 1
    assert trusted == [bool(option)]


def test_invalid_model_code_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Python file .*cell.py"):
        run_model_code(str(tmp_path / "cell.py"))
    (tmp_path / "yaml.py").write_text("")
    with pytest.raises(ValueError, match="another file name"):
        run_model_code(str(tmp_path / "yaml.py"))
