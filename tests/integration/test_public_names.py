"""Public names exist for every kind of import and are imported lazily."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import onlstm_hf

# Users' code depends on these names: add names, but do not rename any.
PUBLIC_NAMES = [
    *("ONLSTMConfig", "ONLSTMModel", "ONLSTMForCausalLM"),
    *("ONLSTMForSequenceClassification", "ONLSTMForSequencePairClassification"),
    *("PRPNConfig", "PRPNModel", "PRPNForCausalLM", "PRPNForSequenceClassification"),
    *("RNNConfig", "RNNModel", "RNNForCausalLM", "RNNForSequenceClassification", "RNNForSequencePairClassification"),
    *("TreeLSTMConfig", "TreeLSTMModel"),
    *("TreeLSTMForSequenceClassification", "TreeLSTMForSequencePairClassification"),
    *("InducedTree", "TreeComparison", "tree_from_distances", "ConstituencyParsingPipeline"),
    *("GoldTree", "read_treebank", "score_parses"),
    *("build_word_tokenizer", "build_subword_tokenizer"),
    *("convert_original_state_dict", "convert_original_checkpoint", "generate_logic_pairs", "logical_relation"),
]
AUTO_CLASSES = """
import sys
assert "torch" not in sys.modules
import onlstm_hf
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.pipelines import PIPELINE_REGISTRY

assert "constituency-parsing" in PIPELINE_REGISTRY.get_supported_tasks()
sizes = {"vocab_size": 9, "embedding_size": 4, "hidden_size": 4, "num_hidden_layers": 2}
for model_type, options in {"onlstm": {"chunk_size": 2}, "prpn": {}, "rnn": {}}.items():
    config = AutoConfig.for_model(model_type, **sizes, **options)
    for auto_class in (AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification):
        print(type(auto_class.from_config(config)).__name__)
config = AutoConfig.for_model("tree_lstm", vocab_size=9)
for auto_class in (AutoModel, AutoModelForSequenceClassification):
    print(type(auto_class.from_config(config)).__name__)
"""


def test_public_names_are_unchanged():
    assert set(onlstm_hf.__all__) == {*PUBLIC_NAMES, "DEFAULT_MODEL", "__version__"}
    assert set(onlstm_hf.__all__) <= set(dir(onlstm_hf))


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_a_name_is_that_of_its_module(name, monkeypatch):
    value = vars(onlstm_hf)[name]
    assert value.__name__ == name
    assert value is getattr(import_module(value.__module__), name)
    assert pickle.loads(pickle.dumps(value)) is value
    monkeypatch.delitem(vars(onlstm_hf), name)  # as in the command
    assert getattr(onlstm_hf, name) is value


def test_the_default_model_is_a_checkpoint_with_and_without_a_checkout(tmp_path, monkeypatch):
    assert (Path(onlstm_hf.DEFAULT_MODEL) / "model.safetensors").is_file()
    monkeypatch.delenv("ONLSTM_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onlstm_hf.utils.checkpoints.RELEASED_MODEL", Path("absent"))
    packed = Path(onlstm_hf.DEFAULT_MODEL)  # as in an installed wheel
    assert packed.is_relative_to(Path(onlstm_hf.__file__).parent) and (packed / "tokenizer.json").is_file()
    monkeypatch.setenv("ONLSTM_MODEL", "mine")
    assert onlstm_hf.DEFAULT_MODEL == "mine"


def test_unknown_names_raise_an_attribute_error():
    assert not hasattr(onlstm_hf, "ONLSTM")
    with pytest.raises(AttributeError, match="module 'onlstm_hf' has no attribute 'ONLSTM'"):
        _ = onlstm_hf.ONLSTM
    with pytest.raises(ImportError, match="cannot import name 'ONLSTM'"):
        exec("from onlstm_hf import ONLSTM")


def test_type_checkers_find_the_public_names():
    """They read import statements, and none of the names that a computed `__all__` has."""
    path = Path(onlstm_hf.__file__).with_name("public_names.py")
    statements = ast.parse(path.read_text(encoding="utf-8")).body[1:]
    assert all(isinstance(statement, ast.ImportFrom) for statement in statements)
    assert {alias.name for statement in statements for alias in statement.names} == set(PUBLIC_NAMES)


@pytest.mark.slow
def test_importing_the_package_is_enough_for_the_auto_classes(project_root):
    process = subprocess.run([sys.executable, "-c", AUTO_CLASSES], cwd=project_root, capture_output=True, text=True)
    assert process.stdout.split() == [
        *("ONLSTMModel", "ONLSTMForCausalLM", "ONLSTMForSequenceClassification"),
        *("PRPNModel", "PRPNForCausalLM", "PRPNForSequenceClassification"),
        *("RNNModel", "RNNForCausalLM", "RNNForSequenceClassification"),
        *("TreeLSTMModel", "TreeLSTMForSequenceClassification"),
    ]
