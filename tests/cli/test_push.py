import pytest

from onlstm_hf.hub import push

PLACE = {"folder": "checkpoint", "repository": "user/name"}
DEFAULTS = {"private": False, "revision": None, "token": None}
GIVEN = {"private": True, "revision": "draft", "token": "secret"}
FLAGS = ["--private", "--revision", "draft", "--token", "secret"]


@pytest.mark.parametrize(
    "command, function, own_flags, own_defaults, own_given",
    [
        ("push", "push_model", ["--results", "file.json"], {"results": None}, {"results": "file.json"}),
        ("push-metric", "push_metric", [], {}, {}),
    ],
)
def test_options_reach_what_pushes(monkeypatch, run, command, function, own_flags, own_defaults, own_given):
    calls = []
    monkeypatch.setattr(push, function, lambda **options: calls.append(options) or "https://hub/commit")
    assert run(command, "checkpoint", "user/name") == "https://hub/commit\n"
    run(command, "checkpoint", "user/name", *FLAGS, *own_flags)
    assert calls == [{**PLACE, **DEFAULTS, **own_defaults}, {**PLACE, **GIVEN, **own_given}]
