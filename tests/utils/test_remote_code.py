"""Checkpoints that carry their code: loaded where the package is not importable, and beside the package."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline
from transformers.dynamic_module_utils import get_imports
from transformers.utils import logging

from onlstm_hf import build_word_tokenizer, convert_original_checkpoint
from tests.helpers.tiny_models import MODEL_TYPES, Kind

SHARED = {
    "configuration_recurrent.py",
    "download_check.py",
    "dropout.py",
    "linear.py",
    "recurrent_language_model.py",
    "recurrent_state.py",
    "row_blocks.py",
    "vocabulary_loss.py",
}
AWD_LSTM = {"awd_lstm.py", "configuration_awd_lstm.py", "sequence_pair_classification.py"}
PARSING = {
    "constituency_parsing.py",
    "files.py",
    "parsing.py",
    "tree_drawing.py",
    "trees.py",
    "word_alignment.py",
}
FAST_PATHS = {"fast_path.py", "native_library.py"}
RECURRENCE = {
    "ordered_neurons.py",
    "ordered_neurons_fused.py",
    "ordered_neurons_kernels.py",
    "ordered_neurons_native.py",
    "ordered_neurons_triton.py",
    "step_graphs.py",
}
CARRIED = {
    "onlstm": {"configuration_onlstm.py", "modeling_onlstm.py"}
    | RECURRENCE
    | FAST_PATHS
    | AWD_LSTM
    | SHARED
    | PARSING,
    "prpn": {
        "batch_norm.py",
        "configuration_prpn.py",
        "convolution.py",
        "deviation_norm.py",
        "memory_reading.py",
        "memory_reading_fused.py",
        "memory_reading_native.py",
        "memory_reading_path.py",
        "modeling_prpn.py",
        "structured_attention.py",
    }
    | FAST_PATHS
    | SHARED
    | PARSING,
    "rnn": {"configuration_rnn.py", "modeling_rnn.py"} | AWD_LSTM | SHARED,
}
SENTENCE = "the old cat saw the dog on the mat"
PROMPT = [3, 4, 5, 6]

ABSENT_PACKAGE = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onlstm_hf":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent())
"""

WITHOUT_THE_PACKAGE = (
    ABSENT_PACKAGE
    + """
checkpoint, saved_again, sentence, prompt = sys.argv[1:]
try:
    import onlstm_hf
except ModuleNotFoundError as error:
    report = {"import_error": str(error)}

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline

config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(checkpoint, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True)
ids = torch.tensor([json.loads(prompt)])
report |= {
    "config": type(config).__module__,
    "model": type(model).__module__,
    "logits": model(ids).logits[0].tolist(),
    "generated": model.generate(ids, max_new_tokens=5, do_sample=False)[0].tolist(),
}
if model.induces_trees:
    tree = model.parse(sentence, tokenizer)
    report |= {"brackets": tree.to_bracket(), "drawing": str(tree), "svg": tree.to_svg()}
    parse = pipeline("constituency-parsing", model=checkpoint, trust_remote_code=True, device="cpu")
    report |= {"pipeline": type(parse).__module__, "records": parse([sentence, "the mat"], branching_bias="none")}
model.save_pretrained(saved_again)
print(json.dumps(report))
"""
)

PAIRS_WITHOUT_THE_PACKAGE = (
    ABSENT_PACKAGE
    + """
checkpoint, pair = sys.argv[1:]
from transformers import pipeline

classify = pipeline("text-classification", model=checkpoint, trust_remote_code=True, device="cpu")
scores = classify([json.loads(pair)], top_k=None)[0]
print(json.dumps({"model": type(classify.model).__module__, "scores": scores}))
"""
)

BESIDE_THE_PACKAGE = """
import json, sys
import torch
from onlstm_hf import ONLSTMForCausalLM
from transformers.dynamic_module_utils import get_class_from_dynamic_module

checkpoint, changed_checkpoint, prompt = sys.argv[1:]
ids = torch.tensor([json.loads(prompt)])

def step(model):
    model.zero_grad()
    output = model(ids, labels=ids, output_distances=True)
    output.loss.backward()
    return [output.loss.item(), output.forget_distances.sum().item()] + [
        parameter.grad.norm().item() for parameter in model.parameters()
    ]

def load_carried(path):
    return get_class_from_dynamic_module("modeling_onlstm.ONLSTMForCausalLM", path).from_pretrained(path)

installed = ONLSTMForCausalLM.from_pretrained(checkpoint)
report = {"installed": [step(installed)]}
carried = load_carried(checkpoint)
report["carried"] = [step(carried)]
report["installed"].append(step(installed))
report["carried"].append(step(torch.compile(carried, backend="aot_eager", fullgraph=True)))
report["installed"].append(step(torch.compile(installed, backend="aot_eager", fullgraph=True)))
report["changed"] = [step(load_carried(changed_checkpoint))]
report["installed"].append(step(installed))
report["carried"].append(step(carried))
report["classes"] = len({type(installed), type(carried)})
print(json.dumps(report))
"""


def run_isolated(script, *arguments, modules):
    """Runs a script without the current folder, user packages and PYTHON* variables, and reads what it reports."""
    process = subprocess.run(
        [sys.executable, "-I", "-c", script, *map(str, arguments)],
        env={**os.environ, "HF_MODULES_CACHE": str(modules), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=list(CARRIED))
def kind(request) -> Kind:
    return MODEL_TYPES[request.param]


@pytest.fixture(scope="module")
def carried(kind) -> set[str]:
    return CARRIED[kind.config_class.model_type]


@pytest.fixture(scope="module")
def model(kind):
    return kind.make(vocab_size=11, eos_token_id=0, pad_token_id=2, bos_token_id=0)


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "on-lstm.tiny"
    model.save_pretrained(folder)
    build_word_tokenizer([SENTENCE]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def without_the_package(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    report = run_isolated(
        WITHOUT_THE_PACKAGE, checkpoint, folder / "saved", SENTENCE, json.dumps(PROMPT), modules=folder / "modules"
    )
    return report | {"saved": folder / "saved"}


def test_a_checkpoint_carries_exactly_the_code_that_it_needs(kind, checkpoint, carried):
    assert {path.name for path in checkpoint.glob("*.py")} == carried
    model_type = kind.config_class.model_type
    assert json.loads((checkpoint / "config.json").read_text())["auto_map"] == {
        "AutoConfig": f"configuration_{model_type}.{kind.config_class.__name__}",
        "AutoModelForCausalLM": f"modeling_{model_type}.{kind.causal_class.__name__}",
    }


def test_the_model_without_a_head_carries_its_code_too(kind, model, carried, tmp_path):
    model.model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == carried
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map["AutoModel"] == f"modeling_{kind.config_class.model_type}.{kind.model_class.__name__}"
    assert type(kind.model_class.from_pretrained(tmp_path)) is kind.model_class


def test_carried_code_requires_nothing_but_torch_and_transformers(checkpoint, carried):
    for name in carried:
        assert set(get_imports(checkpoint / name)) <= sys.stdlib_module_names | {"torch", "transformers"}, name


def test_the_package_is_not_importable_in_the_isolated_process(without_the_package):
    assert without_the_package["import_error"] == "No module named 'onlstm_hf'"
    assert without_the_package["model"].startswith("transformers_modules.")
    assert without_the_package["config"].startswith("transformers_modules.")


def test_carried_code_computes_and_generates_the_same(model, without_the_package):
    prompt = torch.tensor([PROMPT])
    with torch.no_grad():
        logits = model(prompt).logits[0]
    torch.testing.assert_close(torch.tensor(without_the_package["logits"]), logits)
    expected = model.generate(prompt, max_new_tokens=5, do_sample=False)[0].tolist()
    assert without_the_package["generated"] == expected


def test_carried_code_parses_and_draws_the_same(model, checkpoint, without_the_package):
    if not model.induces_trees:
        assert "brackets" not in without_the_package
        return
    tree = model.parse(SENTENCE, AutoTokenizer.from_pretrained(checkpoint))
    assert without_the_package["brackets"] == tree.to_bracket()
    assert without_the_package["drawing"] == str(tree)
    assert without_the_package["svg"] == tree.to_svg()
    parse = pipeline("constituency-parsing", model=str(checkpoint), device="cpu")
    assert without_the_package["pipeline"].startswith("transformers_modules.")
    for found, expected in zip(
        without_the_package["records"], parse([SENTENCE, "the mat"], branching_bias="none"), strict=True
    ):
        assert found.pop("distances") == pytest.approx(expected.pop("distances"), abs=1e-6)
        assert found == expected


def test_carried_code_is_saved_again(kind, model, carried, without_the_package):
    assert {path.name for path in without_the_package["saved"].glob("*.py")} == carried
    loaded = AutoModelForCausalLM.from_pretrained(without_the_package["saved"])
    assert type(loaded) is kind.causal_class
    torch.testing.assert_close(loaded.state_dict(), model.state_dict())


def test_a_classifier_of_pairs_is_loaded_without_the_package(kind, carried, tmp_path):
    if kind.pair_class is None:
        pytest.skip("there is none for this kind of model")
    model, tokenizer = kind.make(kind.pair_class), build_word_tokenizer([SENTENCE], token_type_ids=True)
    model.save_pretrained(tmp_path / "pairs")
    tokenizer.save_pretrained(tmp_path / "pairs")
    assert {path.name for path in (tmp_path / "pairs").glob("*.py")} == carried
    pair = {"text": SENTENCE, "text_pair": "the cat"}
    report = run_isolated(
        PAIRS_WITHOUT_THE_PACKAGE, tmp_path / "pairs", json.dumps(pair), modules=tmp_path / "modules"
    )
    assert report["model"].startswith("transformers_modules.")
    left, right = (tokenizer(text, return_tensors="pt")["input_ids"] for text in pair.values())
    with torch.no_grad():
        probabilities = model(left, input_ids_pair=right).logits[0].softmax(dim=-1).tolist()
    expected = {model.config.id2label[index]: value for index, value in enumerate(probabilities)}
    assert {entry["label"]: entry["score"] for entry in report["scores"]} == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}], ids=str)
def test_with_the_package_its_own_code_is_used_without_a_question(kind, checkpoint, options, monkeypatch, capsys):
    def ask(prompt):
        raise AssertionError(f"asked {prompt}")

    monkeypatch.setattr("builtins.input", ask)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_warning()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert type(AutoConfig.from_pretrained(checkpoint, **options)) is kind.config_class
            assert type(AutoModelForCausalLM.from_pretrained(checkpoint, **options)) is kind.causal_class
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    assert capsys.readouterr() == ("", "")


def test_installed_and_carried_code_work_beside_each_other(tmp_path):
    """Shown with the ON-LSTM, whose recurrence registers operators, which are global."""
    checkpoint = tmp_path / "on-lstm.tiny"
    MODEL_TYPES["onlstm"].make(vocab_size=11).save_pretrained(checkpoint)
    changed_checkpoint = shutil.copytree(checkpoint, tmp_path / "changed")
    recurrence = changed_checkpoint / "ordered_neurons.py"
    code = recurrence.read_text()
    changed_code = code.replace(".forward(\n        input_gates,", ".forward(\n        2 * input_gates,")
    assert changed_code != code
    recurrence.write_text(changed_code)
    report = run_isolated(
        BESIDE_THE_PACKAGE, checkpoint, changed_checkpoint, json.dumps(PROMPT), modules=tmp_path / "modules"
    )
    assert report["classes"] == 2
    first = report["installed"][0]
    for values in report["installed"] + report["carried"]:
        assert values == pytest.approx(first, rel=1e-5)
    assert report["changed"][0] != pytest.approx(first, rel=1e-2)


@pytest.mark.parametrize(("model_type", "vocab_size"), [("onlstm", 60), ("prpn", 50)])
def test_a_converted_checkpoint_needs_neither_this_package_nor_the_original_code(
    shared_dir, tmp_path, model_type, vocab_size
):
    golden = shared_dir / "golden" / f"original_{model_type}_checkpoint"
    expected = load_file(f"{golden}_expected.safetensors")
    words = ["<unk>", *(f"word{number}" for number in range(vocab_size - 2))]
    (tmp_path / "train.txt").write_text(" ".join(words))
    for part in convert_original_checkpoint(f"{golden}.pt", tmp_path / "train.txt"):
        part.save_pretrained(tmp_path / "converted")
    prompt = json.dumps(expected["input_ids"][:, 1].tolist())
    arguments = (tmp_path / "converted", tmp_path / "saved", "word3 word1 word4", prompt)
    report = run_isolated(WITHOUT_THE_PACKAGE, *arguments, modules=tmp_path / "modules")
    assert report["model"].startswith("transformers_modules.")
    torch.testing.assert_close(torch.tensor(report["logits"]), expected["logits"][:, 1], rtol=1e-5, atol=1e-6)
    assert sorted(re.findall(r"\w+", report["brackets"])) == ["word1", "word3", "word4"]
