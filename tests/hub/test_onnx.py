"""ONNX Runtime graphs match the models for any batch size and length."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf.hub.onnx import OPSET, export_onnx, named_tensors
from tests.helpers.isolated_process import run_isolated
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES, pad, random_rows

PROJECT_ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = PROJECT_ROOT / "model_cards" / "onlstm-ptb-small"
PAGE = PROJECT_ROOT / "docs" / "ecosystem.md"
SENTENCES = [
    "the company said it expects to report a loss",
    "stocks fell",
    "the banks that the fund bought have a plan",
    "losses",
    "he didn't say so.",
]


def session(path: Path):
    """Opens an ONNX Runtime session without warnings about the graph."""
    onnxruntime = library("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def run(graph, inputs: dict) -> dict[str, torch.Tensor]:
    names = [output.name for output in graph.get_outputs()]
    arrays = graph.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}


def export(model, path: Path):
    library("onnx")
    library("onnxscript")
    return session(export_onnx(model, path))


@pytest.fixture(scope="module", params=list(MODEL_TYPES))
def exported(request, tmp_path_factory):
    """A model with two layers and its graph."""
    model = MODEL_TYPES[request.param].make(num_hidden_layers=2)
    return model, export(model, tmp_path_factory.mktemp("onnx") / "model.onnx")


def expected_outputs(model, **inputs) -> dict[str, torch.Tensor]:
    options = {"output_distances": True} if model.induces_trees else {}
    with torch.no_grad():
        outputs = named_tensors(dict(model(**inputs, **options)))
    return {f"new_{name}" if name.startswith("state") else name: tensor for name, tensor in outputs.items()}


def initial_state(graph, batch_size: int) -> dict[str, torch.Tensor]:
    fills = json.loads(graph.get_modelmeta().custom_metadata_map["initial_state"])
    shapes = {entry.name: entry.shape[1:] for entry in graph.get_inputs()}
    return {name: torch.full((batch_size, *shapes[name]), fill) for name, fill in fills.items()}


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_is_read_and_continued(exported, side):
    model, graph = exported
    ids, mask, _ = pad(random_rows(), side)
    found = run(graph, {"input_ids": ids, "attention_mask": mask, **initial_state(graph, 3)})
    expected = expected_outputs(model, input_ids=ids, attention_mask=mask)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    next_ids, ones = found["logits"][:, -1:].argmax(-1), torch.ones(3, 1, dtype=torch.long)
    state = {name.removeprefix("new_"): tensor for name, tensor in found.items() if name.startswith("new_")}
    found = run(graph, {"input_ids": next_ids, "attention_mask": ones, **state})
    state = model(ids, attention_mask=mask).state
    expected = expected_outputs(model, input_ids=next_ids, attention_mask=ones, state=state)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_text_longer_than_a_block_of_attention_is_read(exported):
    model, graph = exported
    ids = torch.randint(12, (1, 130))
    found = run(graph, {"input_ids": ids, "attention_mask": torch.ones_like(ids), **initial_state(graph, 1)})
    torch.testing.assert_close(found, expected_outputs(model, input_ids=ids), rtol=1e-4, atol=1e-5)


def test_the_graph_has_the_documented_opset(exported):
    _, graph = exported
    versions = {entry.domain: entry.version for entry in library("onnx").load(graph._model_path).opset_import}
    assert versions[""] == OPSET


# The recurrences are tested above. Models share the classification heads, so no head is tested with all of them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head"), [("rnn", "pair_class"), ("onlstm", "sequence_class"), ("prpn", "sequence_class")]
)
def test_sequences_and_pairs_are_classified(name, head, tmp_path):
    kind = MODEL_TYPES[name]
    model = kind.make(getattr(kind, head), num_hidden_layers=1, parse_layer=0, num_labels=3)
    graph = export(model, tmp_path / "model.onnx")
    ids, mask, _ = pad(random_rows(), "right")
    inputs = {"input_ids": ids, "attention_mask": mask}
    if head == "pair_class":
        ids, mask, _ = pad([*random_rows()[1:], torch.tensor([5, 7])], "left")
        inputs |= {"input_ids_pair": ids, "attention_mask_pair": mask}
    with torch.no_grad():
        torch.testing.assert_close(run(graph, inputs)["logits"], model(**inputs).logits, rtol=1e-4, atol=1e-5)


# The two code blocks of the guide: PyTorch writes the graph, and a process without PyTorch parses.
@pytest.mark.slow
def test_the_page_parses_without_pytorch(tmp_path, monkeypatch):
    library("onnxruntime")
    library("onnxscript")
    *_, writing, parsing = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_cards").symlink_to(PROJECT_ROOT / "model_cards")
    exec(writing, {})
    ask = f"import json\nprint(json.dumps([parse(sentence) for sentence in {SENTENCES!r}]))"
    hidden = ["torch", "transformers", "onlstm_hf"]
    found = run_isolated(f"{parsing}\n{ask}", modules=tmp_path, folder=tmp_path, hidden=hidden)
    model = AutoModelForCausalLM.from_pretrained(CHECKPOINT)
    trees = model.parse(SENTENCES, AutoTokenizer.from_pretrained(CHECKPOINT))
    assert found == [tree.to_bracket() for tree in trees]
