"""`onlstm-hf export` and `onlstm-hf push`; tests/hub/ has what they do."""

from onlstm_hf.hub import push


def test_options_reach_what_pushes(monkeypatch, run):
    calls, place = [], {"folder": "checkpoint", "repository": "user/name"}
    monkeypatch.setattr(push, "push_model", lambda **options: calls.append(options) or "https://hub/commit")
    assert run("push", *place.values()) == "https://hub/commit\n"
    run("push", *place.values(), "--private", "--revision", "draft", "--results", "file.json", "--token", "t")
    assert calls[0] == {**place, "private": False, "revision": None, "results": None, "token": None}
    assert calls[1] == {**place, "private": True, "revision": "draft", "results": "file.json", "token": "t"}


def test_a_checkpoint_is_exported_into_a_new_folder(run, error_of, checkpoint, tmp_path):
    assert "exported" in run("export", checkpoint, tmp_path / "exported")
    assert (tmp_path / "exported" / "modeling_onlstm.py").is_file()
    assert "exists" in error_of("export", checkpoint, tmp_path / "exported")
