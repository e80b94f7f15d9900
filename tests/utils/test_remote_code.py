"""Code that is saved with a checkpoint: its files, their imports, and its use with and without the package."""

import ast
import json
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tokenizers
import torch
from packaging.version import Version
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.integrations.peft import MIN_PEFT_VERSION
from transformers.utils import logging

import onlstm_hf
from onlstm_hf import build_word_tokenizer
from onlstm_hf.models import parsing as travelling
from onlstm_hf.utils.remote_code import model_code
from tests.helpers.isolated_process import run_isolated
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES, Kind

PACKAGE = Path(onlstm_hf.__file__).parent
MODELS = sorted((PACKAGE / "models").glob("modeling_*.py"))
MAY_BE_IMPORTED = sys.stdlib_module_names | {"torch", "tokenizers", "transformers"}
SENTENCE = "the old cat saw the dog on the mat"
SENTENCES = [
    "The company said it expects to report a loss of $9.8 million, or 12 cents a share.",
    "Investors don't know (yet) what's next -- the market fell 1,000 points in Oct. 1987",
    "sales rose",
    "Yes",
    "el viejo gato vio un perro en la calle",
]
PROMPT = [3, 4, 5, 6]
MAX_FILES, MAX_LINES = 7, 2000

# Added to a copy of the code: doubles the inputs of the recurrence.
DOUBLED_INPUTS = """

_unchanged = ONLSTMLayer.run_fast


def _doubled(self, inputs, *arguments):
    return _unchanged(self, 2 * inputs, *arguments)


ONLSTMLayer.run_fast = _doubled
"""

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

installed, carried = ONLSTMForCausalLM.from_pretrained(checkpoint), load_carried(checkpoint)
changed = load_carried(changed_checkpoint)
report = {"same": [step(installed), step(carried)], "changed": step(changed)}
report["classes"] = len({type(installed), type(carried)})
report["same"] += [step(torch.compile(model, backend="aot_eager", fullgraph=True)) for model in (carried, installed)]
operators = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
report["operators"] = [name for name in operators if "onlstm_operator" in name]
print(json.dumps(report))
"""

TRAINING = """
import json, sys
import torch
from transformers import AutoModelForCausalLM

torch.manual_seed(0)
reports = {}
for folder in json.loads(sys.argv[1]):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).train()
    ids = torch.arange(3, 11).repeat(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    losses = []
    for _ in range(30):
        output = model(ids, labels=ids)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(output.cross_entropy.item())
    dropped = [model(ids).logits[0].sum().item() for _ in range(2)]
    reports[folder] = {"losses": losses, "is_dropping": dropped[0] != dropped[1]}
print(json.dumps(reports))
"""


def imports(path: Path) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Returns the imports of a file, including those in functions, and whether each is optional (in `try`)."""
    waiting = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while waiting:
        node, is_optional = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_optional
        waiting += [(child, is_optional or isinstance(node, ast.Try)) for child in ast.iter_child_nodes(node)]


def closure(*paths: Path) -> set[Path]:
    """Returns files of the package with all files that they import from it."""
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            relative = [node for node, _ in imports(path) if isinstance(node, ast.ImportFrom) and node.level]
            waiting += [path.parents[node.level - 1] / f"{node.module.replace('.', '/')}.py" for node in relative]
    return found


@pytest.fixture(scope="module", params=list(MODEL_TYPES))
def kind(request) -> Kind:
    return MODEL_TYPES[request.param]


@pytest.fixture(scope="module")
def model(kind):
    return kind.make(vocab_size=11, eos_token_id=0, pad_token_id=2, bos_token_id=0)


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "on-lstm.tiny"
    model.save_pretrained(folder)
    build_word_tokenizer([SENTENCE]).save_pretrained(folder)
    return folder


# The rule


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_a_checkpoint_carries_few_files_of_one_folder(path):
    configuration = path.with_name(path.name.replace("modeling", "configuration"))
    travelling = closure(path, configuration)
    assert {file.parent for file in travelling} == {PACKAGE / "models"}
    assert len(travelling) <= MAX_FILES
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in travelling) <= MAX_LINES


def test_the_guide_to_the_code_counts_these_files_and_lines():
    page = (PACKAGE.parent / "docs" / "code.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if "files of code in a checkpoint" in line)
    counts = re.findall(r"(\d), ([\d,]+) \|", row)
    for (num_files, num_lines), model_type in zip(counts, ("onlstm", "prpn", "rnn"), strict=True):
        names = (f"{kind}_{model_type}.py" for kind in ("modeling", "configuration"))
        travelling = closure(*(PACKAGE / "models" / name for name in names))
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in travelling)
        assert (num_files, num_lines) == (str(len(travelling)), f"{lines:,}"), model_type


@pytest.mark.parametrize("path", sorted(closure(*MODELS)), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_carried_files_import_only_pytorch_transformers_and_each_other(path):
    for node, is_optional in imports(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            imported = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            assert imported.with_suffix(".py").is_file(), f"line {node.lineno}: import from a file, not from a folder"
        elif not is_optional:
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert {name.partition(".")[0] for name in names} <= MAY_BE_IMPORTED, f"line {node.lineno}"


def test_a_file_that_needs_one_from_outside_its_folder_is_refused(tmp_path, monkeypatch):
    module = ModuleType("tiny_model")
    module.__file__ = str(tmp_path / "tiny.py")
    Path(module.__file__).write_text("from ..tools import a\n")
    monkeypatch.setitem(sys.modules, "tiny_model", module)
    config_class = type("TinyConfig", (), {"__module__": "tiny_model"})
    module.Tiny = type("Tiny", (), {"__module__": "tiny_model", "config_class": config_class})
    with pytest.raises(FileNotFoundError, match=r"\.tools\.py"):
        model_code(module.Tiny)


def test_the_carried_parse_gives_the_trees_of_the_package(project_root):
    """Compares the released checkpoints on ordinary texts, with both rules."""
    for name in ("onlstm-ptb-small-distilled", "prpn-ptb-small"):
        checkpoint = project_root / "model_cards" / name
        model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
        for bias in ("right", "none"):
            expected = model.parse(SENTENCES, tokenizer, branching_bias=bias)
            trees = travelling.ParsingMixin.parse(model, SENTENCES, tokenizer, branching_bias=bias)
            for ours, theirs in zip(trees, expected, strict=True):
                assert (ours.words, ours.spans()) == (theirs.words, theirs.spans())
                assert ours.to_bracket() == theirs.to_bracket()
                assert ours.distances == pytest.approx(theirs.distances, abs=1e-6)


def test_the_carried_parse_of_white_space_has_no_words_with_any_tokenizer():
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "</s>": 1, " ": 2}, unk_token="[UNK]"))
    backend.model.continuing_subword_prefix = ""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", eos_token="</s>")
    model = MODEL_TYPES["onlstm"].make(vocab_size=3, eos_token_id=1)
    assert tokenizer(" ", add_special_tokens=False)["input_ids"]
    assert travelling.ParsingMixin.parse(model, " ", tokenizer).words == ()


def test_the_carried_parse_restores_the_mode_of_every_module_after_an_error():
    tokenizer = build_word_tokenizer([SENTENCE])
    kind = MODEL_TYPES["onlstm"]
    model = kind.make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id).train()
    model.model.embeddings.eval()
    modes = [module.training for module in model.modules()]
    travelling.ParsingMixin.parse(model, SENTENCE, tokenizer)
    assert [module.training for module in model.modules()] == modes
    for wrong, options in (([SENTENCE, 3], {}), (SENTENCE, {"layer": 9}), (SENTENCE, {"branching_bias": "left"})):
        with pytest.raises((TypeError, ValueError)):
            travelling.ParsingMixin.parse(model, wrong, tokenizer, **options)
        assert [module.training for module in model.modules()] == modes


# Saving


def test_a_checkpoint_carries_exactly_the_code_that_it_needs(kind, checkpoint):
    model_type = kind.config_class.model_type
    needed = closure(PACKAGE / "models" / f"modeling_{model_type}.py")
    carried = {path.name: path.read_bytes() for path in checkpoint.glob("*.py")}
    assert carried == {path.name: path.read_bytes() for path in needed}
    classes = {"AutoModel": kind.model_class, "AutoModelForCausalLM": kind.causal_class}
    classes["AutoModelForSequenceClassification"] = kind.sequence_class
    assert json.loads((checkpoint / "config.json").read_text())["auto_map"] == {
        "AutoConfig": f"configuration_{model_type}.{kind.config_class.__name__}",
        **{name: f"modeling_{model_type}.{cls.__name__}" for name, cls in classes.items()},
    }


def test_the_model_without_a_head_carries_its_code_too(kind, model, checkpoint, tmp_path):
    model.model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == {path.name for path in checkpoint.glob("*.py")}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"]["AutoModel"] == f"modeling_{kind.config_class.model_type}.{kind.model_class.__name__}"
    assert "custom_pipelines" not in config
    assert type(kind.model_class.from_pretrained(tmp_path)) is kind.model_class


def test_saving_changes_nothing_about_the_model(kind, model, checkpoint, tmp_path):
    assert not {"auto_map", "custom_pipelines"} & vars(model.config).keys()
    loaded = AutoModelForCausalLM.from_pretrained(checkpoint)
    PreTrainedModel.save_pretrained(loaded, tmp_path)  # without code
    assert not list(tmp_path.glob("*.py"))
    assert not {"auto_map", "custom_pipelines"} & json.loads((tmp_path / "config.json").read_text()).keys()


def test_a_given_state_dict_is_saved(kind, model, tmp_path):
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path, True, zeros)
    assert not any(parameter.any() for parameter in kind.causal_class.from_pretrained(tmp_path).parameters())


def test_only_the_main_process_writes_code(model, tmp_path):
    model.save_pretrained(tmp_path, is_main_process=False)
    assert not list(tmp_path.glob("*.py"))


def test_an_adapter_is_saved_without_code(tmp_path):
    peft = library("peft")
    if Version(peft.__version__) < Version(MIN_PEFT_VERSION):
        pytest.skip(f"the Transformers that is installed takes adapters of PEFT from {MIN_PEFT_VERSION} on")
    model = MODEL_TYPES["onlstm"].make(tie_word_embeddings=False)
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["lm_head"]))
    model.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors"}


def test_a_class_of_a_notebook_is_saved_without_code_and_with_a_warning(tmp_path, caplog):
    class InNotebook(MODEL_TYPES["onlstm"].causal_class):
        __module__ = "__main__"

    with caplog.at_level("WARNING", "onlstm_hf.utils.remote_code"):
        InNotebook(MODEL_TYPES["onlstm"].config()).save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
    assert "does not carry the code of InNotebook, which is defined in __main__" in caplog.text


def test_a_model_in_a_user_file_carries_that_file_and_its_configuration(tmp_path, monkeypatch):
    code = "from onlstm_hf import ONLSTMForCausalLM\n\n\nclass MyLSTM(ONLSTMForCausalLM):\n    pass\n"
    (tmp_path / "my_lstm.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    import my_lstm

    my_lstm.MyLSTM(MODEL_TYPES["onlstm"].config()).save_pretrained(tmp_path / "saved")
    auto_map = json.loads((tmp_path / "saved" / "config.json").read_text())["auto_map"]
    assert auto_map == {"AutoConfig": "configuration_onlstm.ONLSTMConfig", "AutoModelForCausalLM": "my_lstm.MyLSTM"}
    needed = {path.name for path in closure(PACKAGE / "models" / "configuration_onlstm.py")}
    assert {path.name for path in (tmp_path / "saved").glob("*.py")} == needed | {"my_lstm.py"}


# Loading


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}], ids=str)
def test_the_installed_package_takes_precedence_over_carried_code(kind, checkpoint, options, monkeypatch, capsys):
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


@pytest.mark.slow
def test_installed_and_carried_code_work_in_one_process(tmp_path):
    """Uses an ON-LSTM, whose carried code uses the operators of the installed package."""
    checkpoint = tmp_path / "on-lstm.tiny"
    MODEL_TYPES["onlstm"].make(vocab_size=11).save_pretrained(checkpoint)
    changed_checkpoint = shutil.copytree(checkpoint, tmp_path / "changed")
    with (changed_checkpoint / "modeling_onlstm.py").open("a") as file:
        file.write(DOUBLED_INPUTS)
    arguments = checkpoint, changed_checkpoint, json.dumps(PROMPT)
    report = run_isolated(BESIDE_THE_PACKAGE, *arguments, modules=tmp_path / "modules")
    assert report["classes"] == 2
    assert len(set(report["operators"])) == 1
    first, *others = report["same"]
    assert all(values == pytest.approx(first, rel=1e-5) for values in others)
    assert report["changed"] != pytest.approx(first, rel=1e-2)


@pytest.mark.slow
def test_a_model_trains_with_dropout_without_the_package(tmp_path):
    for name, kind in MODEL_TYPES.items():
        kind.make(vocab_size=11, eos_token_id=0, pad_token_id=2, num_softmaxes=2).save_pretrained(tmp_path / name)
    places = {"modules": tmp_path / "modules", "folder": tmp_path}
    reports = run_isolated(TRAINING, json.dumps([*MODEL_TYPES]), **places, hidden=["onlstm_hf"])
    for report in reports.values():
        assert report["losses"][-1] < 0.9 * report["losses"][0]
        assert report["is_dropping"]
