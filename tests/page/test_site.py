"""The output folder of `onlstm-hf page`, and the server of `onlstm-hf demo`."""

import json
import re
import threading
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from onlstm_hf.cli import main as command_line
from onlstm_hf.page.about import about_model
from onlstm_hf.page.serving import build_server
from onlstm_hf.page.site import STATIC, write_page
from tests.helpers.command_line import WORDS
from tests.helpers.loopback import free_port
from tests.helpers.tiny_models import KINDS, save_checkpoint

MODULES = sorted(STATIC.rglob("*.js"))
DISTILLED = ("onlstm-english", "onlstm-ptb-small-distilled", "onlstm-es-small-distilled")


@pytest.fixture(scope="module")
def site(tmp_path_factory, checkpoint):
    folder = tmp_path_factory.mktemp("page") / "site"
    write_page(folder, [str(checkpoint)])
    return folder


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_folder_has_all_requested_files(site, checkpoint):
    content = read_json(site / "site.json")
    assert content["models"] == [checkpoint.name]
    listed = {site / name for name in content["files"]}
    assert listed == {path for path in site.rglob("*") if path.is_file()} - {site / "site.json", site / "README.md"}
    model = read_json(site / "models" / checkpoint.name / "model.json")
    assert model["kind"] == "ON-LSTM" and model["layers"] == ["layer 1", "layer 2"]
    assert (site / "models" / checkpoint.name / "weights.bin").stat().st_size > 0


def test_the_folder_is_a_static_space(site):
    _, front_matter, _ = (site / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    metadata = yaml.safe_load(front_matter)
    assert metadata["sdk"] == "static" and (site / metadata["app_file"]).is_file()
    assert len(metadata["short_description"]) <= 60


def test_the_content_policy_allows_only_own_files():
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == rules["worker-src"] == "'self'"
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:", html)
    assert all('src="' in tag for tag in re.findall(r"<script[^>]*>", html))
    for address in re.findall(r'(?:src|href)="([^"]*)"', html):
        assert address.startswith("#") or (STATIC / address).is_file()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_modules_import_existing_files_and_never_write_markup(path):
    source = path.read_text(encoding="utf-8")
    for name in re.findall(r'^(?:import|export) [^"]*?from "([^"]+)"', source, re.MULTILINE | re.DOTALL):
        assert (path.parent / name).is_file(), name
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style"
    assert not re.search(forbidden, source)
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", source))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert max(map(len, source.splitlines())) <= 160


def test_every_module_is_imported_by_the_page():
    reached, waiting = set(), [STATIC / "main.js", STATIC / "offline.js", STATIC / "model/worker.js"]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            names = re.findall(r'from "(\.[^"]+)"', path.read_text(encoding="utf-8"))
            waiting += [(path.parent / name).resolve() for name in names]
    assert reached == set(MODULES)


def test_checkpoints_with_the_same_name_are_numbered_and_the_demo_page_is_not_cached(tmp_path, model, tokenizer):
    checkpoints = [save_checkpoint(tmp_path / folder / "best", model, tokenizer) for folder in "ab"]
    write_page(tmp_path / "site", checkpoints, precision="float32", offline=False)
    content = read_json(tmp_path / "site/site.json")
    assert content["models"] == ["best", "best-2"] and "files" not in content


@pytest.mark.parametrize(
    "checkpoints, folder, message",
    [([], "new", "at least one"), (["absent"], "new", "no checkpoint folder"), (["x"], "no/new", "does not exist")],
)
def test_invalid_arguments_leave_no_files(tmp_path, checkpoints, folder, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        write_page(tmp_path / folder, checkpoints)
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_tokenizer_is_refused(tmp_path, model):
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    for splitter, message in ((pre_tokenizers.ByteLevel(), "ByteLevel"), (None, "build_word_tokenizer")):
        backend.pre_tokenizer = splitter
        foreign = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>")
        with pytest.raises(ValueError, match=message):
            write_page(tmp_path / "site", [save_checkpoint(tmp_path / "checkpoint", model, foreign)])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"eos_token_id": None}, "one <eos>, but the model's eos_token_id is"),
        ({"eos_token_id": [0, 1]}, "one <eos>, but the model's eos_token_id is"),
        ({"eos_token_id": 0, "num_softmaxes": 2}, "one softmax"),
    ],
)
def test_unsupported_models_are_refused(tmp_path, tokenizer, options, message):
    model = KINDS["onlstm"].make(vocab_size=len(tokenizer), **options)
    with pytest.raises(ValueError, match=message):
        write_page(tmp_path / "site", [save_checkpoint(tmp_path / "checkpoint", model, tokenizer)])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("name", [*DISTILLED, "onlstm-ptb-small", "prpn-ptb-small"])
def test_texts_about_a_model_come_from_its_card(project_root, name):
    folder = project_root / "model_cards" / name
    card = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", r"\1", (folder / "README.md").read_text()).split())
    kind = "prpn" if name.startswith("prpn") else "onlstm"
    about = about_model(KINDS[kind].make(), str(folder))
    assert about["language"] == ("es" if "-es-" in name else "en")
    assert about["trained"] and about["scores"]
    for sentence in [*about["trained"], *about["limits"]]:
        assert sentence in card
    is_distilled = any("learned the average" in sentence for sentence in about["trained"])
    assert is_distilled == (name in DISTILLED)


def test_a_model_without_a_card_has_no_claims(checkpoint):
    about = about_model(KINDS["rnn"].make(), str(checkpoint))
    assert "no card" in about["trained"][0] and len(about["trained"]) == 1
    assert about["language"] is None and about["layers"] == about["scores"] == []


@pytest.mark.parametrize(
    "metadata, language",
    [
        ("language: [zh-Hant-TW, en]", "zh-Hant-TW"),
        ("language: multilingual", None),  # an error in browsers
        ("language: [no]", None),  # YAML reads "false"
        ("language: [", None),
    ],
)
def test_only_language_codes_of_a_card_are_used(tmp_path, metadata, language):
    (tmp_path / "README.md").write_text(f"---\n{metadata}\n---\n# A model\n")
    assert about_model(KINDS["rnn"].make(), str(tmp_path))["language"] == language


def test_the_local_server_only_serves_files_of_the_folder(site, checkpoint):
    with build_server(site, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        with urlopen(f"{base}/main.js") as answer:
            assert answer.headers["Content-Type"].startswith("text/javascript")
        weights = f"models/{checkpoint.name}/weights.bin"
        with urlopen(f"{base}/{weights}") as answer:
            assert answer.read() == (site / weights).read_bytes()
        outside = (f"/../../{checkpoint.name}/config.json", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/absent")
        for method, path, status in [*(("GET", path, 404) for path in outside), ("POST", "/", 501)]:
            connection = HTTPConnection("127.0.0.1", server.server_port)
            connection.request(method, path)
            assert connection.getresponse().status == status
            connection.close()
        server.shutdown()


def test_the_commands_write_and_serve_the_page(tmp_path, checkpoint, monkeypatch, capsys):
    folder = tmp_path / "site"
    assert command_line.main(["page", str(folder), str(checkpoint)]) == 0
    assert str(folder) in capsys.readouterr().out and (folder / "index.html").is_file()
    (folder / "mine").touch()
    assert command_line.main(["page", str(folder), str(checkpoint)]) == 1
    assert "exists already" in capsys.readouterr().err and (folder / "mine").is_file()

    served = []

    def serve_forever(self):
        served.append(sorted(path.name for path in Path(self.RequestHandlerClass.keywords["directory"]).iterdir()))
        raise KeyboardInterrupt

    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", serve_forever)
    assert command_line.main(["demo", str(checkpoint), "--port", str(free_port())]) == 130
    assert "index.html" in served[0] and "models" in served[0]
    assert "until Ctrl-C" in capsys.readouterr().out
