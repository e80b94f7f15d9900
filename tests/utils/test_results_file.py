import json

import pytest

from onlstm_hf.utils.results_file import portable, write_results


@pytest.fixture
def places(tmp_path, monkeypatch):
    checkout, shared = tmp_path / "checkout", tmp_path / "shared"
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("ONLSTM_SHARED", str(shared))
    return checkout, shared


def test_paths_become_independent_of_the_machine(places):
    checkout, shared = places
    content = {
        f"{shared}/data/ptb/test.txt": [f"{checkout}/runs/a", "model", 3, None, {"note": f"in {shared}/b, not /c"}],
        "command": f"python eval/x.py {checkout}/m --files={shared}/t --gold {shared}/b",
    }
    assert portable(content) == {
        "$ONLSTM_SHARED/data/ptb/test.txt": ["runs/a", "model", 3, None, {"note": "in $ONLSTM_SHARED/b, not /c"}],
        "command": "python eval/x.py m --files=$ONLSTM_SHARED/t --gold $ONLSTM_SHARED/b",
    }


def test_other_paths_stay_unchanged(places, monkeypatch):
    checkout, shared = places
    for path in (f"{checkout}2/a", f"/mnt{shared}/a", "/elsewhere/a", "../shared/a", str(shared)):
        assert portable(path) == path
    monkeypatch.delenv("ONLSTM_SHARED")
    assert portable(f"{shared}/a") == f"{shared}/a"
    monkeypatch.chdir("/")
    assert portable("/a") == "/a"


def test_a_results_file_records_how_to_reproduce_it(places):
    checkout, shared = places
    arguments = ["a model", "--files", f"{shared}/test.txt"]
    written = write_results("results.json", {"task": "any", "scores": (1, 2)}, "eval/x.py", arguments)
    assert json.loads((checkout / "results.json").read_text()) == written
    assert written["command"] == "python eval/x.py 'a model' --files $ONLSTM_SHARED/test.txt"
    assert written["scores"] == [1, 2]
    assert {"cpu", "cores", "threads", "torch"} <= set(written["machine"])
    assert {"onlstm_hf", "torch", "transformers", "python"} == set(written["versions"])
    assert written["date"].endswith("+00:00")
