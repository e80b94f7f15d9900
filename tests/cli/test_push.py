from onlstm_hf.hub import push

PLACE = {"folder": "checkpoint", "repository": "user/name"}
DEFAULTS = {"private": False, "revision": None, "token": None, "results": None}
GIVEN = {"private": True, "revision": "draft", "token": "secret", "results": "file.json"}
FLAGS = ["--private", "--revision", "draft", "--token", "secret", "--results", "file.json"]


def test_options_reach_what_pushes(monkeypatch, run):
    calls = []
    monkeypatch.setattr(push, "push_model", lambda **options: calls.append(options) or "https://hub/commit")
    assert run("push", "checkpoint", "user/name") == "https://hub/commit\n"
    run("push", "checkpoint", "user/name", *FLAGS)
    assert calls == [{**PLACE, **DEFAULTS}, {**PLACE, **GIVEN}]
