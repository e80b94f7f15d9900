"""Exported checkpoints work with and without the package, and in folders with any names."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import parse_eval_result_entries
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from onlstm_hf import TreeLSTMConfig, TreeLSTMForSequencePairClassification, build_word_tokenizer
from onlstm_hf.hub.export import export_checkpoint
from tests.helpers.folders import contents, names_in
from tests.helpers.isolated_process import use_without_package
from tests.helpers.tiny_models import KINDS, MODEL_TYPES

SENTENCE = "( old cat ) saw ( a dog )"
PAIR = {"text": "( old ( cat saw ) )", "text_pair": "( a dog )"}
CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\n---\n\n# A tiny model\n"
# Two have the same type and name, and some folder names are not ASCII.
LANGUAGE_MODELS = {"onlstm": "模型/été", "onlstm-2": "語言/été", "prpn": "ПРПН 1.0", "rnn": "rnn-tiny"}
CLASSIFIERS = {"onlstm-pairs": "ζεύγη", "rnn-pairs": "pairs.rnn", "tree_lstm-pairs": "bäume"}


def make_model(name: str, options: dict):
    model_type, _, kind = name.partition("-")
    if model_type == "tree_lstm":
        torch.manual_seed(0)
        config = TreeLSTMConfig(embedding_size=8, hidden_size=12, open_bracket_id=3, close_bracket_id=4, **options)
        return TreeLSTMForSequencePairClassification(config).eval()
    if kind == "2":
        return KINDS[model_type].make(**options, chunk_size=2)
    return MODEL_TYPES[model_type].make(MODEL_TYPES[model_type].pair_class if kind else None, **options)


def save_checkpoint(name: str, folder: Path) -> Path:
    tokenizer = build_word_tokenizer([SENTENCE], token_type_ids=name in CLASSIFIERS)
    options = {"vocab_size": len(tokenizer), "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 0}
    make_model(name, options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture(scope="module", params=[*LANGUAGE_MODELS, *CLASSIFIERS])
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("saved")
    return {name: save_checkpoint(name, root / name) for name in (*LANGUAGE_MODELS, *CLASSIFIERS)}


@pytest.fixture
def folder(name, root) -> Path:
    """The folder of an exported checkpoint."""
    return root / (LANGUAGE_MODELS | CLASSIFIERS)[name]


@pytest.fixture(scope="module")
def root(saved, tmp_path_factory) -> Path:
    """A folder with all exported checkpoints."""
    root = tmp_path_factory.mktemp("exported") / "arbeit ∂"
    for name, folder in (LANGUAGE_MODELS | CLASSIFIERS).items():
        export_checkpoint(str(saved[name]), str(root / folder))
    return root


@pytest.fixture(scope="module")
def without_package(root):
    """The report of one process without the package that uses all checkpoints from relative paths."""
    checkpoints = {name: (folder, SENTENCE) for name, folder in LANGUAGE_MODELS.items()}
    checkpoints |= {name: (folder, PAIR) for name, folder in CLASSIFIERS.items()}
    return use_without_package(checkpoints, modules=root / "module kód", folder=root)


@pytest.fixture(params=["first", "again"])
def report(request, name, without_package) -> dict:
    return without_package["reports"][name][request.param]


def test_the_package_is_not_importable_in_the_isolated_process(without_package):
    assert without_package["import_error"] == "No module named 'onlstm_hf'"


def test_the_code_of_the_checkpoint_is_run(report):
    assert report["module"].startswith("transformers_modules.")
    assert report["config"].startswith("transformers_modules.")
    assert report.get("pipeline", "transformers_modules.").startswith("transformers_modules.")


def test_checkpoints_of_the_same_type_and_folder_name_do_not_mix(without_package):
    modules = {name: report["first"]["module"] for name, report in without_package["reports"].items()}
    first, second = (without_package["reports"][name]["first"]["logits"] for name in ("onlstm", "onlstm-2"))
    assert len(set(modules.values())) >= 6 and first != second


def test_every_model_computes_the_same_as_with_the_package(name, report, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = PAIR["text"] if name in CLASSIFIERS else SENTENCE
    with torch.no_grad():
        model = AutoModelForSequenceClassification if name in CLASSIFIERS else AutoModelForCausalLM
        hidden = model.from_pretrained(folder).model(tokenizer(text, return_tensors="pt").input_ids)
    hidden = hidden if isinstance(hidden, torch.Tensor) else hidden.last_hidden_state
    torch.testing.assert_close(torch.tensor(report["hidden"]), hidden, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LANGUAGE_MODELS, indirect=True)
def test_language_models_predict_generate_and_parse_as_with_the_package(name, report, folder):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    input_ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(report["logits"]), model(input_ids).logits[0], rtol=1e-5, atol=1e-5)
    assert report["is_known_to_shift_labels"]
    assert report["generated"] == model.generate(input_ids, max_new_tokens=5, do_sample=False)[0].tolist()
    assert report["text"].startswith(SENTENCE)
    if not model.induces_trees:
        assert "brackets" not in report
        return
    tree = model.parse(SENTENCE, tokenizer)
    assert report["brackets"] == tree.to_bracket()
    assert report["distances"] == pytest.approx(tree.distances, abs=1e-6)
    parse = pipeline("constituency-parsing", model=str(folder), device="cpu")
    for found, expected in zip(report["records"], parse([SENTENCE, "3\\/4 mat"], branching_bias="none"), strict=True):
        assert found["distances"] == pytest.approx(expected.pop("distances"), abs=1e-6)
        assert {**found, "distances": None} == {**expected, "distances": None}
    assert all("without onlstm_hf" in message for message in report["refusals"])


@pytest.mark.parametrize("name", CLASSIFIERS, indirect=True)
def test_classifiers_of_pairs_classify_as_with_the_package(name, report, folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    left, right = (tokenizer(text, return_tensors="pt")["input_ids"] for text in PAIR.values())
    with torch.no_grad():
        probabilities = model(left, input_ids_pair=right).logits[0].softmax(dim=-1).tolist()
    expected = {model.config.id2label[index]: value for index, value in enumerate(probabilities)}
    assert {entry["label"]: entry["score"] for entry in report["scores"]} == pytest.approx(expected, abs=1e-5)


def test_saving_an_exported_model_writes_the_same_files(folder, without_package):
    again = folder.with_name(f"{folder.name}-again")
    for path in folder.iterdir():
        if path.suffix == ".py" or path.name == "model.safetensors":
            assert (again / path.name).read_bytes() == path.read_bytes(), path.name
    assert {path.name for path in again.glob("*.py")} == {path.name for path in folder.glob("*.py")}
    first, second = (json.loads((place / "config.json").read_text()) for place in (folder, again))
    assert second["auto_map"] == first["auto_map"]
    assert second.get("custom_pipelines") == first.get("custom_pipelines")


def test_exported_files_equal_the_checkpoint(name, saved, folder):
    assert contents(folder) == contents(saved[name])


def test_a_classifier_of_single_texts_needs_no_pair_tokenizer(tmp_path):
    kind, tokenizer = MODEL_TYPES["prpn"], build_word_tokenizer([SENTENCE])
    kind.make(kind.sequence_class, vocab_size=len(tokenizer)).save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    export_checkpoint(tmp_path / "saved", tmp_path / "exported")
    assert type(AutoModelForSequenceClassification.from_pretrained(tmp_path / "exported")) is kind.sequence_class


# Existing content of checkpoints


@pytest.fixture
def checkpoint(saved, tmp_path) -> Path:
    """A checkpoint without code, as in a checkout."""
    folder = shutil.copytree(saved["onlstm"], tmp_path / "checkpoint", ignore=shutil.ignore_patterns("*.py"))
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"], config["custom_pipelines"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def change_config(folder: Path, **entries) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_an_export_adds_code_and_leaves_the_checkpoint_unchanged(checkpoint, saved, tmp_path):
    before = contents(checkpoint)
    message = export_checkpoint(str(checkpoint), str(tmp_path / "new" / "exported"))
    exported = tmp_path / "new" / "exported"
    assert message.startswith(f"{exported}: ") and "\n" not in message and "with its card" in message
    assert names_in(exported) == names_in(saved["onlstm"])
    assert contents(checkpoint) == before
    assert (exported / "model.safetensors").stat().st_ino != (checkpoint / "model.safetensors").stat().st_ino


def test_older_code_is_replaced_and_its_unused_files_are_removed(checkpoint, saved, tmp_path):
    (checkpoint / "modeling_onlstm.py").write_text("from .trees import grow\nfrom .gone import away\nraise OSError\n")
    (checkpoint / "trees.py").write_text("grow = None\n")
    change_config(checkpoint, auto_map={"AutoModelForCausalLM": "modeling_onlstm.ONLSTMForCausalLM"})
    export_checkpoint(str(checkpoint), str(tmp_path / "exported"))
    assert names_in(tmp_path / "exported") == names_in(saved["onlstm"])
    expected = (saved["onlstm"] / "modeling_onlstm.py").read_bytes()
    assert (tmp_path / "exported" / "modeling_onlstm.py").read_bytes() == expected


def test_the_card_is_written_from_the_results_and_named_after_the_folder(project_root, tmp_path):
    source = project_root / "model_cards" / "prpn-ptb-small"
    export_checkpoint(str(source), str(tmp_path / "my-prpn"))
    card = (tmp_path / "my-prpn" / "README.md").read_text(encoding="utf-8")
    expected = (source / "README.md").read_text(encoding="utf-8")
    assert card != expected and card.replace("my-prpn", "prpn-ptb-small") == expected
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json", "results.json"):
        assert (tmp_path / "my-prpn" / name).read_bytes() == (source / name).read_bytes()


def test_scores_are_written_where_the_hub_reads_them(project_root, tmp_path):
    source = project_root / "model_cards" / "prpn-ptb-small"
    export_checkpoint(source, tmp_path / "first")
    export_checkpoint(tmp_path / "first", tmp_path / "again")
    results = json.loads((source / "results.json").read_text())
    for name in ("first", "again"):
        text = (tmp_path / name / ".eval_results" / "onlstm_hf.yaml").read_text(encoding="utf-8")
        entries = {entry.task_id: entry for entry in parse_eval_result_entries(yaml.safe_load(text))}
        assert {entry.dataset_id for entry in entries.values()} == {"ptb-text-only/ptb_text_only"}
        found = {split: entry.value for split, entry in entries.items()}
        assert found == pytest.approx(results["perplexity"], abs=0.005)
    export_checkpoint(project_root / "model_cards" / "prpn-zh-small", tmp_path / "chinese")
    # Its training text is not on the Hub.
    assert not (tmp_path / "chinese" / ".eval_results").exists()


def test_without_results_and_card_there_is_no_card(checkpoint, tmp_path):
    (checkpoint / "README.md").unlink()
    assert "without a card" in export_checkpoint(str(checkpoint), str(tmp_path / "exported"))
    assert "README.md" not in names_in(tmp_path / "exported")


def make_foreign(folder: Path) -> None:
    change_config(folder, model_type="cumax", auto_map={"AutoModelForCausalLM": "cumax.Cumax", "AutoConfig": "conf.C"})
    (folder / "cumax.py").write_text("from .cell import Cell\nraise OSError('this code was run')\n")
    (folder / "conf.py").write_text("")
    (folder / "cell.py").write_text("")


def test_a_foreign_model_keeps_its_code_which_is_not_run(checkpoint, tmp_path):
    make_foreign(checkpoint)
    export_checkpoint(str(checkpoint), str(tmp_path / "exported"))
    assert contents(tmp_path / "exported") == contents(checkpoint)


@pytest.mark.parametrize("missing", ["cumax.py", "conf.py", "cell.py"])
def test_a_foreign_model_without_its_code_is_refused(checkpoint, tmp_path, missing):
    make_foreign(checkpoint)
    (checkpoint / missing).unlink()
    with pytest.raises(ValueError, match=f"lacks code that it refers to: {missing}"):
        export_checkpoint(str(checkpoint), str(tmp_path / "exported"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_type": "gpt2"}, 'of type "gpt2", which is not in this package, and carries no code'),
        ({"architectures": ["ONLSTMForTranslation"]}, "names ONLSTMForTranslation in architectures"),
        ("{", "config.json.* is not a valid JSON file"),
    ],
)
def test_an_invalid_configuration_is_refused(checkpoint, tmp_path, content, message):
    if isinstance(content, dict):
        change_config(checkpoint, **content)
    else:
        (checkpoint / "config.json").write_text(content)
    with pytest.raises((ValueError, OSError), match=message):
        export_checkpoint(str(checkpoint), str(tmp_path / "exported"))


def test_exports_do_not_overwrite_and_are_atomic(checkpoint, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match="checkpoint exists; name a new folder"):
        export_checkpoint(str(checkpoint), str(checkpoint))
    with pytest.raises(FileExistsError, match="File exists"):
        export_checkpoint(str(checkpoint), str(checkpoint / "config.json" / "exported"))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export_checkpoint(str(tmp_path / "missing"), str(tmp_path / "exported"))

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OSError, match="disk full"):
        export_checkpoint(str(checkpoint), str(tmp_path / "exported"))
    assert names_in(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("name", ["LICENSE", "figure.png", "folder", "dangling.svg", "model.safetensors"])
def test_symbolic_links_are_refused(checkpoint, tmp_path, name):
    secret, link = tmp_path / "secret", checkpoint / name
    secret.mkdir() if name == "folder" else secret.write_text("a private key")
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "nothing" if name == "dangling.svg" else secret)
    with pytest.raises(ValueError, match=f"symbolic links.*: {name}; "):
        export_checkpoint(checkpoint, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
    (tmp_path / "link").symlink_to(checkpoint)  # the folder itself may be a link
    link.unlink()
    if name != "model.safetensors":
        export_checkpoint(tmp_path / "link", tmp_path / "exported")


def test_released_checkpoints_contain_no_code_in_git(project_root):
    if not (project_root / ".git").exists():
        pytest.skip("not a checkout of git")
    tracked = subprocess.check_output(["git", "ls-files", "model_cards"], cwd=project_root, text=True).split()
    assert tracked and not [path for path in tracked if path.endswith(".py")]
    for path in (project_root / "model_cards").glob("*/config.json"):
        assert not json.loads(path.read_text()).keys() & {"auto_map", "custom_pipelines"}


def test_files_of_trainer_are_not_shared(saved, tmp_path):
    folder = tmp_path / "trained"
    shutil.copytree(saved["onlstm"], folder)
    for name in ("training_args.bin", "checkpoint-500/optimizer.pt", "runs/Nov01/events.out", "all_results.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    export_checkpoint(folder, tmp_path / "exported")
    found = {path.name for path in (tmp_path / "exported").rglob("*")}
    assert found and not found & {"training_args.bin", "checkpoint-500", "optimizer.pt", "runs", "all_results.json"}
