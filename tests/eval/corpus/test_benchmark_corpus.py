import pytest

from eval.corpus import benchmark_corpus

TWO_WORKERS, BASELINE, ONE_WORKER = ("parse-corpus, 2 workers", "datasets.map, 2 processes", "parse-corpus, 1 worker")
SECONDS = {TWO_WORKERS: 2.0, BASELINE: 4.0, ONE_WORKER: 3.6}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the script with made-up seconds; returns the exit code, the contestants that had a turn, and the tables."""
    (tmp_path / "text.txt").write_text("the cat sat\n\nthe old dog\n")
    turns = []

    def pretend(command):
        if len(turns) == 2:
            turns.append("ended")
            raise ChildProcessError("ended")
        name = BASELINE if "--map" in command else TWO_WORKERS if "2" in command else ONE_WORKER
        turns.append(name)
        return {"seconds": SECONDS[name], "cpu_seconds": 3.0, "peak_bytes": 2**30}

    monkeypatch.setattr(benchmark_corpus, "run_and_watch", pretend)

    def run(*options):
        folder = ["--text", str(tmp_path / "text.txt"), "--folder", str(tmp_path / "figures"), "--sentences", "4000"]
        status = benchmark_corpus.main(["model", *folder, *options])
        return status, list(turns), capsys.readouterr().out

    return run


def test_it_goes_on_where_it_was_ended(run, tmp_path):
    assert run("--rounds", "2")[:2] == (1, [TWO_WORKERS, BASELINE, "ended"])
    status, turns, tables = run("--rounds", "2")
    assert status == 0
    assert turns[3:] == [ONE_WORKER, BASELINE, ONE_WORKER, TWO_WORKERS]
    assert run("--rounds", "2") == (0, turns, tables)
    corpus = (tmp_path / "figures" / "4000.txt").read_text().splitlines()
    assert corpus == ["the cat sat", "the old dog"] * 2000


def test_the_plan_follows_from_the_first_contestant(run):
    run()
    _, _, tables = run()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables.splitlines() if line[:1] == "|"]
    assert rows[2][:3] == [TWO_WORKERS, "2,000", "1"]
    assert rows[3][2:4] == ["2", "1"]
    cores, hours, text, _, memory = rows[-4]
    # 1,000 sentences a second and core, 12 bytes a sentence, half a GiB a worker.
    assert (cores, hours, text, memory) == ("16", f"{1e9 / 1000 / 3600 / 16:,.1f}", "12", "9")
