"""`onlstm-hf export` and `onlstm-hf push`; tests/hub/ has what they do."""

from onlstm_hf.hub import push

PLACE = {"folder": "checkpoint", "repository": "user/name"}
DEFAULTS = {"private": False, "revision": None, "results": None}
GIVEN = {"private": True, "revision": "draft", "results": "file.json"}
FLAGS = ["--private", "--revision", "draft", "--results", "file.json"]


def test_options_reach_what_pushes(monkeypatch, run):
    calls = []
    monkeypatch.setattr(push, "push_model", lambda **options: calls.append(options) or "https://hub/commit")
    assert run("push", "checkpoint", "user/name") == "https://hub/commit\n"
    run("push", "checkpoint", "user/name", *FLAGS)
    assert calls == [{**PLACE, **DEFAULTS}, {**PLACE, **GIVEN}]


def test_a_checkpoint_is_exported_into_a_new_folder(run, error_of, checkpoint, tmp_path):
    assert "exported" in run("export", checkpoint, tmp_path / "exported")
    assert (tmp_path / "exported" / "modeling_onlstm.py").is_file()
    assert "exists" in error_of("export", checkpoint, tmp_path / "exported")
