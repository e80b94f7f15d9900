"""Sharing with the real client and a Hub on the loopback interface: all or nothing, and the same model back."""

import json
import shutil
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from onlstm_hf import build_word_tokenizer
from onlstm_hf.hub.export import export_checkpoint
from onlstm_hf.hub.push import push_model
from tests.helpers.hub_client import (
    classify_pair,
    client_processes,
    hide_package,
    list_files,
    load_each_way,
    load_metric,
    load_model,
    push_by_methods,
    run_command,
    run_commands_in,
    score_trees,
    upload_space,
)
from tests.helpers.hub_server import Fault, HubServer
from tests.helpers.logic_checkpoints import save_logic_run
from tests.helpers.tiny_models import KINDS
from tests.hub.test_model_cards import CHECKPOINTS
from tests.integration.test_readme import blocks, commands

METRICS = sorted((Path(__file__).resolve().parents[2] / "eval").glob("*/app.py"))
CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\n---\n\n# A tiny model\n"
names = (f"ada/tiny-{number}" for number in count())
# Weights that the server has not seen: those that it has are not uploaded again.
scales = count(3)


@pytest.fixture(scope="module")
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture(autouse=True)
def no_faults_are_left(hub):
    hub.faults.clear()
    yield
    assert [fault for fault in hub.faults if fault.times and fault.times < 50] == []


@pytest.fixture(scope="module")
def start_client(hub, tmp_path_factory):
    variables = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path_factory.mktemp("home")),
        "HF_TOKEN": "hf_writer",
        "HF_HUB_OFFLINE": "0",
        # The server speaks LFS alone. With hf_xet, version 2 of the client uploads through Xet without asking whether
        # the Hub has it.
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    with client_processes(**variables) as start:
        yield start


@pytest.fixture(scope="module")
def client(start_client):
    return start_client()


@pytest.fixture(scope="module")
def client_without_package(start_client):
    call = start_client()
    call(hide_package)
    return call


@pytest.fixture(scope="module")
def offline_client_without_package(start_client):
    call = start_client(HF_HUB_OFFLINE=True)
    call(hide_package)
    return call


def make_checkpoint(folder: Path, scale: float = 1.0) -> Path:
    tokenizer = build_word_tokenizer(["the company said it expects to report a loss"])
    model = KINDS["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=0, bos_token_id=0, pad_token_id=2)
    with torch.no_grad():
        model.lm_head.bias.mul_(scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "first")


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "second", scale=2.0)


@pytest.fixture
def shared(hub, client, first):
    """The name of a repository that has the first checkpoint."""
    name = next(names)
    assert client(run_command, "push", str(first), name).code == 0
    return name


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def seen(hub: HubServer, name: str, **options) -> dict[str, bytes]:
    return {path: content for path, content in hub.files(name, **options).items() if path != ".gitattributes"}


# Released checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)
def test_each_released_checkpoint_can_be_shared_and_loads_each_way(
    folder, hub, client, client_without_package, offline_client_without_package, tmp_path
):
    name = f"ada/released-{folder.name}"
    outcome = client(run_command, "push", str(folder), name)
    assert (outcome.code, outcome.errors) == (0, "")
    assert len(hub.repositories["model", name].commits) == 2  # that of the new repository, and one with everything
    card = hub.files(name)["README.md"].decode()
    assert f'path = "{name}"' in card and f"# released-{folder.name}\n" in card
    export_checkpoint(folder, tmp_path / "exported")
    uploaded, exported = seen(hub, name), contents(tmp_path / "exported")
    assert {**uploaded, "README.md": b""} == {**exported, "README.md": b""}
    assert client(list_files, name) == sorted([".gitattributes", *exported])

    expected = client(load_each_way, str(folder))
    assert client(load_each_way, name) == expected
    carried = client_without_package(load_each_way, name, True)
    assert offline_client_without_package(load_each_way, name, True) == carried
    for part in ("module", "pipeline"):
        if part in expected:
            assert expected.pop(part).startswith("onlstm_hf.")
            assert carried.pop(part).startswith("transformers_modules.ada.")
    assert carried.pop("logits") == pytest.approx(expected.pop("logits"), abs=1e-4)
    assert carried == expected


# Pushing


def test_one_commit_makes_the_repository_the_folder(hub, client, shared, first, second, tmp_path):
    assert seen(hub, shared) == contents(first)
    folder = shutil.copytree(second, tmp_path / "folder")
    (folder / "LICENSE").write_text("Apache-2.0")
    assert client(run_command, "push", str(folder), shared).code == 0
    assert seen(hub, shared) == contents(folder)
    assert client(run_command, "push", str(second), shared).code == 0  # LICENSE goes
    assert seen(hub, shared) == contents(second)
    assert len(hub.repositories["model", shared].commits) == 4


def test_what_is_pushed_is_what_is_exported(hub, client, shared, second, tmp_path):
    folder = shutil.copytree(second, tmp_path / "folder")
    forget_the_code(folder)
    assert client(run_command, "push", str(folder), shared).code == 0
    export_checkpoint(folder, tmp_path / "exported")
    assert seen(hub, shared) == contents(tmp_path / "exported") == contents(second)


def test_a_pinned_revision_stays_what_it_was(hub, client, shared, first, second):
    pinned = hub.repositories["model", shared].branches["main"]
    assert client(run_command, "push", str(second), shared).code == 0
    old, new = client(load_model, str(first)), client(load_model, str(second))
    assert old["logits"] != new["logits"]
    assert client(load_model, shared)["logits"] == pytest.approx(new["logits"])
    report = client(partial(load_model, revision=pinned), shared)
    assert report["logits"] == pytest.approx(old["logits"])


def test_the_methods_of_transformers_share_a_model_with_its_code(client, client_without_package, first):
    name = next(names)
    client(push_by_methods, str(first), name)
    assert {path.name for path in first.glob("*.py")} <= set(client(list_files, name))
    report = client_without_package(load_each_way, name, True)
    assert report["logits"] == pytest.approx(client(load_model, str(first))["logits"], abs=1e-5)
    assert report["brackets"].count("(") == 8


@pytest.mark.parametrize("kind", ["onlstm", "tree_lstm"])
def test_a_classifier_of_pairs_is_shared_with_the_card_of_its_results(
    hub, client, client_without_package, tmp_path, kind
):
    name = next(names)
    save_logic_run(tmp_path, kind)
    best, results = tmp_path / "best", tmp_path / "results.json"
    outcome = client(run_command, "push", str(best), name, "--results", str(results))
    assert (outcome.code, outcome.errors) == (0, "")
    uploaded = seen(hub, name)
    card = uploaded.pop("README.md").decode()
    assert uploaded == {**contents(best), "results.json": results.read_bytes()}
    assert "text-classification" in card and f'path = "{name}"' in card and "| 12 or more | 1 | 0.0 |" in card

    expected, report = client(classify_pair, str(best), False), client_without_package(classify_pair, name, True)
    assert report["module"].startswith("transformers_modules.ada.")
    assert report["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_a_classifier_is_refused_with_a_tokenizer_that_does_not_tell_the_sides_apart_or_with_other_results(tmp_path):
    results = save_logic_run(tmp_path, "lstm")
    (tmp_path / "results.json").write_text(json.dumps({**results, "parameters": 5}))
    with pytest.raises(ValueError, match="those of another model: it had 5 parameters"):
        push_model(tmp_path / "best", "ada/refused", results=tmp_path / "results.json")
    build_word_tokenizer(["( a ( and b ) )"]).save_pretrained(tmp_path / "best")
    with pytest.raises(ValueError, match="does not tell the two texts of a pair apart"):
        push_model(tmp_path / "best", "ada/refused", results=tmp_path / "results.json")


def test_the_guide_shares_as_it_is_written(hub, client, tmp_path, project_root):
    for folder in ("model_cards", "eval"):
        (tmp_path / folder).symlink_to(project_root / folder)
    save_logic_run(tmp_path / "runs" / "logic_onlstm", "onlstm")
    pushes = [
        [word.replace("user/", "ada/") for word in program[1:]]
        for _, content in blocks("docs/sharing.md", "bash")
        for program, *_ in commands(content)
        if program[0] == "onlstm-hf" and program[1].startswith("push")
    ]
    assert len(pushes) == 2
    for arguments, outcome in zip(pushes, client(run_commands_in, str(tmp_path), pushes), strict=True):
        assert (outcome.code, outcome.errors) == (0, ""), arguments
        assert hub.repositories["model", arguments[2]].private == ("--private" in arguments)


def test_a_branch_and_a_private_repository(hub, client, first, second):
    name = next(names)
    assert client(run_command, "push", str(first), name, "--private").code == 0
    assert client(run_command, "push", str(second), name, "--revision", "second").code == 0
    assert hub.repositories["model", name].private
    assert seen(hub, name) == contents(first)
    assert seen(hub, name, revision="second") == contents(second)


def test_a_public_repository_is_not_taken_for_a_private_one(hub, client, shared, second):
    before = hub.files(shared)
    outcome = client(run_command, "push", str(second), shared, "--private")
    assert outcome.code == 1 and "exists and is public" in outcome.errors
    assert hub.files(shared) == before


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [
        ("hf_wrong", "ada/denied", "Invalid user token"),
        ("hf_reader", "ada/denied", "403 Forbidden"),
        ("hf_writer", "eve/denied", "403 Forbidden"),
    ],
)
def test_without_the_right_to_write_nothing_is_made(hub, client, first, token, name, message):
    outcome = client(run_command, "push", str(first), name, "--token", token)
    assert outcome.code == 1 and message in outcome.errors
    assert seen(hub, name) == {}


@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (Fault("POST", "/preupload/", 429, headers={"Retry-After": "7"}), 7),
        (Fault("POST", "/objects/batch", 500), 1),
        (Fault("PUT", "/lfs/upload/", 500), 1),
        (Fault("PUT", "/lfs/upload/", "cut"), 1),
        (Fault("POST", "/lfs/verify", 503), 1),
    ],
    ids=lambda value: f"{value.pattern} {value.action}" if isinstance(value, Fault) else None,
)
def test_a_fault_that_passes_is_waited_for(hub, client, shared, tmp_path, fault, wait):
    folder = make_checkpoint(tmp_path / "folder", scale=next(scales))
    hub.faults.append(fault)
    outcome = client(run_command, "push", str(folder), shared)
    assert outcome.code == 0, outcome.errors
    assert any(waited == pytest.approx(wait, abs=1) for waited in outcome.waits)
    assert seen(hub, shared) == contents(folder)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("POST", "/repos/create", 500), "500"),
        (Fault("POST", "/preupload/", 404), "404"),
        (Fault("POST", "/commit/", 409), "409"),
        (Fault("POST", "/commit/", 429, headers={"Retry-After": "7"}), "429"),
        (Fault("POST", "/commit/", 500), "500"),
        (Fault("POST", "/commit/", "cut"), "isconnected"),
        (Fault("PUT", "/lfs/upload/", 500, times=50), "500"),
    ],
    ids=lambda value: f"{value.pattern} {value.action}" if isinstance(value, Fault) else None,
)
def test_a_fault_that_stays_leaves_the_repository_as_it_was(hub, client, shared, tmp_path, fault, message):
    folder = make_checkpoint(tmp_path / "folder", scale=next(scales))
    before = hub.files(shared)
    hub.faults.append(fault)
    outcome = client(run_command, "push", str(folder), shared)
    assert outcome.code == 1 and f"the upload to {shared} did not succeed" in outcome.errors
    assert message in outcome.errors
    assert hub.files(shared) == before
    hub.faults.clear()
    assert client(run_command, "push", str(folder), shared).code == 0
    assert seen(hub, shared) == contents(folder)


def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub, client, shared, second):
    hub.faults.append(Fault("POST", "/commit/", "lost"))
    outcome = client(run_command, "push", str(second), shared)
    assert outcome.code == 1 and "Push again" in outcome.errors
    num_commits = len(hub.repositories["model", shared].commits)
    outcome = client(run_command, "push", str(second), shared)
    assert outcome.code == 0 and hub.repositories["model", shared].branches["main"] in outcome.output
    assert len(hub.repositories["model", shared].commits) == num_commits
    assert seen(hub, shared) == contents(second)


def test_another_commit_is_not_taken_for_ones_own(hub, client, shared, first, second):
    hub.faults.append(Fault("POST", "/commit/", "overtaken"))
    outcome = client(run_command, "push", str(second), shared)
    assert outcome.code == 1 and f"the upload to {shared} did not succeed" in outcome.errors
    assert seen(hub, shared) == {**contents(first), "NEWS": b"of somebody else"}


# Loading


def test_what_is_not_there_is_a_clear_error(client):
    outcome = client(run_command, "parse", "--model", "ada/missing", "the company")
    assert outcome.code == 1 and "ada/missing" in outcome.errors


# Metrics


def test_a_metric_that_is_uploaded_as_a_space_is_one_that_evaluate_loads(client, project_root):
    client(upload_space, str(project_root / "eval" / "parsing_f1"), "ada/parsing_f1")
    assert client(score_trees, "ada/parsing_f1") == pytest.approx(0.5714, abs=1e-4)


@pytest.mark.parametrize("name", [path.parent.name for path in METRICS if path.parent.name != "parsing_f1"])
def test_every_metric_can_be_shared(client, project_root, name):
    client(upload_space, str(project_root / "eval" / name), f"ada/{name}")
    assert client(load_metric, f"ada/{name}")["module"].startswith("evaluate_modules.")


# Checks before anything is sent


def remove(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    def change(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return change


def forget_the_code(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"], config["custom_pipelines"]
    (folder / "config.json").write_text(json.dumps(config | changes))
    for path in folder.glob("*.py"):
        path.unlink()


def become_another_type(folder):
    forget_the_code(folder, model_type="gpt2")


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
        (become_another_type, 'of type "gpt2", which this package has not, and carries no code'),
        (spoil_the_weights, "NaN or infinity"),
        (cut_the_weights, "cannot load the model"),
        (remove("tokenizer.json"), "tokenizer"),
        (remove("README.md"), "neither results.json"),
        (write("README.md", "# no metadata\n"), "name no license"),
        (write("README.md", "---\n: [\n---\n"), "not valid"),
        (write("results.json", "{"), "results.json are no JSON"),
        (write("results.json", "{}"), "these results lack 'data'"),
    ],
)
def test_a_folder_that_is_not_fit_to_be_shared_is_refused(first, tmp_path, change, message):
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
