"""Pushing to an in-memory Hub: checks, atomic uploads, and loading of the same model."""

import json
import shutil
from itertools import count

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import build_word_tokenizer
from onlstm_hf.cli.main import main
from onlstm_hf.hub.export import export_checkpoint
from onlstm_hf.hub.push import push_dataset, push_model
from tests.helpers.folders import contents
from tests.helpers.hub import Hub
from tests.helpers.isolated_process import use_without_package
from tests.helpers.logic_checkpoints import save_logic_run
from tests.hub.test_export import save_checkpoint
from tests.hub.test_model_cards import CHECKPOINTS
from tests.integration.test_readme import blocks, commands

SENTENCE = "the company said it expects to report a loss"
names = (f"ada/tiny-{number}" for number in count())


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    monkeypatch.setattr("onlstm_hf.hub.push.HfApi", hub.client)
    return hub


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return save_checkpoint("onlstm", tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    return save_checkpoint("onlstm-2", tmp_path_factory.mktemp("second"))


@pytest.fixture
def shared(hub, first):
    """Name of a repository that contains the first checkpoint."""
    name = next(names)
    push_model(first, name)
    return name


# Released checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)
def test_each_released_checkpoint_can_be_pushed_and_loads_with_and_without_the_package(folder, hub, tmp_path):
    name = f"ada/released-{folder.name}"
    push_model(folder, name)
    assert len(hub.repositories["model", name].branches["main"]) == 2  # creation of the repository, and one upload
    card = hub.files(name)["README.md"].decode()
    assert f'path = "{name}"' in card and f"# released-{folder.name}\n" in card
    export_checkpoint(folder, tmp_path / "exported")
    assert {**hub.files(name), "README.md": b""} == {**contents(tmp_path / "exported"), "README.md": b""}

    downloaded = tmp_path / "downloaded"
    for path, content in hub.files(name).items():
        (downloaded / path).parent.mkdir(parents=True, exist_ok=True)
        (downloaded / path).write_bytes(content)
    model, tokenizer = (kind.from_pretrained(downloaded) for kind in (AutoModelForCausalLM, AutoTokenizer))
    with torch.no_grad():
        logits = model(**tokenizer(SENTENCE, return_tensors="pt")).logits[0]
    found = use_without_package({"it": ("downloaded", SENTENCE)}, modules=tmp_path / "modules", folder=tmp_path)
    report = found["reports"]["it"]["first"]
    torch.testing.assert_close(torch.tensor(report["logits"]), logits, rtol=0, atol=1e-4)
    if model.induces_trees:
        assert report["brackets"] == model.parse(SENTENCE, tokenizer).to_bracket()


# Pushing


def test_one_commit_makes_the_repository_equal_to_the_folder(hub, shared, first, second, tmp_path):
    assert hub.files(shared) == contents(first)
    folder = shutil.copytree(second, tmp_path / "folder")
    (folder / "LICENSE").write_text("Apache-2.0")
    assert push_model(folder, shared).endswith("/commit/3")
    assert hub.files(shared) == contents(folder)
    push_model(second, shared)  # removes LICENSE
    assert hub.files(shared) == contents(second)
    assert len(hub.repositories["model", shared].branches["main"]) == 4


def test_push_to_hub_of_transformers_uploads_the_code(first, tmp_path, monkeypatch):
    model, uploaded = AutoModelForCausalLM.from_pretrained(first), []
    monkeypatch.setattr(type(model), "push_to_hub", lambda model, *name, **options: uploaded.append((name, options)))
    model.save_pretrained(tmp_path / "tiny", push_to_hub=True, repo_id="ada/tiny", private=True)
    model.save_pretrained(tmp_path / "other", push_to_hub=True)
    assert uploaded == [(("ada/tiny",), {"private": True}), (("other",), {})]
    assert {path.name for path in first.glob("*.py")} <= contents(tmp_path / "tiny").keys()


@pytest.mark.parametrize("kind", ["onlstm", "tree_lstm"])
def test_a_pair_classifier_is_pushed_with_a_card_from_its_results(hub, tmp_path, kind):
    name = next(names)
    save_logic_run(tmp_path, kind)
    best, results = tmp_path / "best", tmp_path / "results.json"
    push_model(best, name, results=results)
    uploaded = hub.files(name)
    card = uploaded.pop("README.md").decode()
    assert uploaded == {**contents(best), "results.json": results.read_bytes()}
    assert "text-classification" in card and f'path = "{name}"' in card and "| 12 or more | 1 | 0.0 |" in card


def test_a_pair_classifier_with_a_wrong_tokenizer_or_wrong_results_is_refused(tmp_path):
    results = save_logic_run(tmp_path, "lstm")
    (tmp_path / "results.json").write_text(json.dumps({**results, "parameters": 5}))
    with pytest.raises(ValueError, match="are of another model, which has 5 parameters"):
        push_model(tmp_path / "best", "ada/refused", results=tmp_path / "results.json")
    build_word_tokenizer(["( a ( and b ) )"]).save_pretrained(tmp_path / "best")
    with pytest.raises(ValueError, match="does not tell the two texts of a pair apart"):
        push_model(tmp_path / "best", "ada/refused", results=tmp_path / "results.json")


def test_the_commands_of_the_sharing_guide_work(hub, tmp_path, project_root, monkeypatch, capsys):
    for folder in ("model_cards", "eval"):
        (tmp_path / folder).symlink_to(project_root / folder)
    save_logic_run(tmp_path / "runs" / "logic_onlstm", "onlstm")
    monkeypatch.chdir(tmp_path)
    pushes = [
        [word.replace("user/", "ada/") for word in program[1:]]
        for _, content in blocks("docs/sharing.md", "bash")
        for program, *_ in commands(content)
        if program[0] == "onlstm-hf" and program[1].startswith("push")
    ]
    assert len(pushes) == 2
    for arguments in pushes:
        assert main(arguments) == 0, capsys.readouterr().err
        assert hub.repositories["model", arguments[2]].private == ("--private" in arguments)
        assert "hub.test/commit/2" in capsys.readouterr().out


def test_a_branch_and_a_private_repository(hub, first, second):
    name = next(names)
    push_model(first, name, private=True, token="hf_mine")
    assert hub.token == "hf_mine"
    push_model(second, name, revision="second")
    assert hub.repositories["model", name].private
    assert hub.files(name) == contents(first)
    assert hub.files(name, revision="second") == contents(second)


def test_pushing_privately_to_a_public_repository_is_refused(hub, shared, first, second):
    with pytest.raises(ValueError, match="is public: make it private"):
        push_model(second, shared, private=True)
    assert hub.files(shared) == contents(first)


failed_thread = RuntimeError("error while uploading a file")
failed_thread.__cause__ = OSError("503 Service Unavailable")


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("create_repo", OSError("403 Forbidden"), "403 Forbidden"),
        ("repo_info", ConnectionError("the connection ended"), "the connection ended"),
        ("create_commit", failed_thread, "503 Service Unavailable"),
    ],
)
def test_a_failed_upload_leaves_the_repository_unchanged(hub, shared, first, second, method, error, message):
    hub.faults[method] = error
    with pytest.raises(OSError, match=f"the upload to {shared} did not succeed: {message}. Push again"):
        push_model(second, shared)
    assert hub.files(shared) == contents(first)
    hub.faults.clear()
    push_model(second, shared)
    assert hub.files(shared) == contents(second)


def test_a_concurrent_commit_makes_the_push_fail(hub, shared, first, second):
    commits = hub.repositories["model", shared].branches["main"]
    hub.faults["create_commit"] = lambda: commits.append({**commits[-1], "NEWS": b"of others"})
    with pytest.raises(OSError, match=f"the upload to {shared} did not succeed"):
        push_model(second, shared)
    assert hub.files(shared) == {**contents(first), "NEWS": b"of others"}


# Checks before the upload


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    def change(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return change


def spoil_the_weights(folder):
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.bias"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut_the_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("config.json"), "config.json"),
        (remove("model.safetensors"), "no weights in a .safetensors file"),
        (write("pytorch_model.bin", "pickle"), "remove them: pytorch_model.bin"),
        (write("extra.pt", "pickle"), "remove them: extra.pt"),
        (write("logs/events.txt", "1"), "remove them: logs/events.txt"),
        (write("extra.py", "import os"), "remove them: extra.py"),
        (spoil_the_weights, "NaN or infinity"),
        (cut_the_weights, "cannot load the model"),
        (remove("tokenizer.json"), "tokenizer"),
        (remove("README.md"), "neither results.json"),
        (write("README.md", "# no metadata\n"), "name no license"),
        (write("README.md", "---\n: [\n---\n"), "not valid"),
        (write("results.json", "{"), "no card can be written from the results .*results.json: "),
        (write("results.json", "{}"), "these results lack 'data'"),
    ],
)
def test_invalid_folders_are_refused(first, tmp_path, change, message):
    folder = shutil.copytree(first, tmp_path / "folder")
    change(folder)
    with pytest.raises((ValueError, OSError), match=message):
        push_model(folder, "ada/refused")


def test_the_name_of_the_repository_is_checked_first(tmp_path):
    for name in ("tiny", "ada/tiny/x", "https://huggingface.co/ada/tiny"):
        with pytest.raises(ValueError, match="named as user/name"):
            push_model(tmp_path, name)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        push_model(tmp_path / "missing", "ada/tiny")


def test_a_dataset_is_pushed_unchanged(hub, tmp_path, capsys):
    name, folder = next(names), tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "the cat"}\n')
    with pytest.raises(FileNotFoundError, match=r"has no README.md"):
        push_dataset(folder, name)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n\n# Cats\n")
    assert main(["push", "--dataset", str(folder), name]) == 0, capsys.readouterr().err
    assert hub.files(name, repo_type="dataset") == contents(folder)
    (folder / "notes.docx").write_text("")
    with pytest.raises(ValueError, match=r"remove them: notes.docx"):
        push_dataset(folder, name)
