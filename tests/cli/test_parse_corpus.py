import json
import os
import re
import stat
import subprocess
import sys

import pytest

from onlstm_hf.cli.main import main
from tests.helpers.command_line import TEXT
from tests.helpers.forked_processes import forked_context
from tests.helpers.requirements import library

library("datatrove")
from datatrove.tools import launch_pickled_pipeline  # noqa: E402
from pyarrow import parquet  # noqa: E402


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"text": text, "id": text[:3]}) + "\n" for text in TEXT))
    return tmp_path / "corpus.jsonl"


@pytest.mark.slow
def test_the_command_parses_a_corpus_into_a_table(corpus, checkpoint, tmp_path, project_root):
    (tmp_path / "corpus.jsonl").open("ab").write(b"\xff\n")
    command = [sys.executable, "-m", "onlstm_hf", "parse-corpus", corpus, tmp_path / "trees", "--model", checkpoint]
    command += ["--workers", "1", "--trees", "brackets", "--distances"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=project_root, check=True)
    assert result.stdout == f"{tmp_path / 'trees'}: 4 sentences parsed, 1 not\n  1: not UTF-8\n"
    assert "5 sentences" in result.stderr
    assert "Warning" not in result.stderr
    rows = parquet.read_table(tmp_path / "trees" / "00000.parquet").to_pylist()
    assert [row["document"] for row in rows][:4] == [text[:3] for text in TEXT]
    columns = ("document", "position", "start", "text", "words", "offsets", "unknown", "brackets", "distances")
    assert tuple(rows[0]) == (*columns, "log_probability", "reason")


@pytest.mark.slow
def test_lines_with_several_sentences_give_a_warning(run, checkpoint, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("onlstm_hf.corpus.run.logger.warning", said.append)
    (tmp_path / "corpus.txt").write_text("He left. She stayed.\n" * 3 + "the cat\n" * 7)
    command = ["parse-corpus", tmp_path / "corpus.txt", "--model", checkpoint, "--workers", 1]
    run(*command, tmp_path / "split", "--split-sentences")
    assert not said
    assert run(*command, tmp_path / "lines") == f"{tmp_path / 'lines'}: 10 sentences parsed, 0 not\n"
    assert "3 lines have several sentences" in said[0]
    (tmp_path / "corpus.txt").write_text("He left. She stayed.\n")
    assert run(*command, tmp_path / "line") == f"{tmp_path / 'line'}: 1 sentence parsed, 0 not\n"
    assert "1 line has several sentences" in said[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "trees"], "there is no file or folder missing"),
        (["empty", "trees"], "empty has no files that can be read"),
        (["corpus.jsonl", "trees", "--model", "missing"], "there is no checkpoint folder missing"),
        (["corpus.jsonl", "trees", "--language", "de"], "--language de needs --split-sentences"),
        (["corpus.jsonl", "trees", "--model", "{checkpoint}", "--engine", "slurm"], "no sbatch"),
        (["corpus.jsonl", "empty/..", "--model", "{checkpoint}"], "has files that are not from parse-corpus"),
        (["wrong/name/here", "trees", "--kind", "dataset"], "there is no file or folder wrong/name/here"),
        (["empty", "trees", "--kind", "dataset", "--model", "{checkpoint}"], "cannot load the split 'train'"),
        (["empty", "trees", "--kind", "dataset", "--glob", "*.x"], "--glob would have no effect"),
        (["corpus.jsonl", "trees", "--split", "test"], "--split would have no effect: give it with --kind dataset"),
        (["corpus.jsonl", "trees", "--glob", "nothing*"], "--glob nothing* needs a folder"),
        (["corpus.jsonl", "trees", "--gpus", "1"], "--gpus would have no effect: give it with --engine ray or slurm"),
        (["corpus.jsonl", "trees", "--engine", "ray", "--time", "1", "--sbatch", "qos=x"], "--time, --sbatch would"),
    ],
)
def test_user_errors_are_one_line(error_of, corpus, checkpoint, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    arguments = [argument.format(checkpoint=checkpoint) for argument in arguments]
    assert message in error_of("parse-corpus", *arguments, "--workers", "1")
    assert not (tmp_path / "trees").exists()


@pytest.mark.parametrize("option", [["--sbatch", "qos"], ["--gpus", "-3"]])
def test_malformed_engine_options_are_refused(corpus, tmp_path, option, capsys):
    with pytest.raises(SystemExit):
        main(["parse-corpus", str(corpus), str(tmp_path / "trees"), "--engine", "slurm", *option])
    assert f"argument {option[0]}: must be" in capsys.readouterr().err


SBATCH = """\
#!/bin/sh
# Stands in for Slurm: keeps what it is given.
echo "$@" >> {folder}/sbatch-arguments
for script in "$@"; do :; done
cat "$script" >> {folder}/sbatch-scripts
echo Submitted batch job 1
"""


def run_job(number, path, pipeline):
    os.environ |= {"SLURM_ARRAY_TASK_ID": number, "SLURM_NODELIST": "here", "RUN_OFFSET": "0", "PATH": path}
    sys.argv = ["launch_pickled_pipeline", pipeline]
    launch_pickled_pipeline.main()


@pytest.mark.slow
def test_each_task_becomes_a_slurm_job(run, corpus, checkpoint, tmp_path, monkeypatch, project_root):
    for name, script in {"sbatch": SBATCH.format(folder=tmp_path), "scontrol": "#!/bin/sh\necho here\n"}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{project_root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(project_root)
    command = ["parse-corpus", corpus, tmp_path / "trees", "--model", checkpoint, "--engine", "slurm", "--tasks", 2]
    command += ["--partition", "cpu", "--workers", 1, "--sbatch", "account=linguistics", "--no-log-probability"]
    assert run(*command) == f"{tmp_path / 'trees'}: the tasks were submitted to Slurm\n"
    script = (tmp_path / "sbatch-scripts").read_text()
    for option in ("array=0-1%1", "partition=cpu", "account=linguistics", "cpus-per-task=1", "time=24:00:00"):
        assert f"#SBATCH --{option}\n" in script
    pipeline = re.search(r"launch_pickled_pipeline (\S+)", script)[1]
    for number in "01":  # as on machines of their own
        job = forked_context().Process(target=run_job, args=(number, os.environ["PATH"], pipeline))
        job.start()
        job.join()
        assert job.exitcode == 0
    tables = [parquet.read_table(path).to_pylist() for path in sorted((tmp_path / "trees").glob("*.parquet"))]
    assert ["".join(row["words"]) for table in tables for row in table] == [text.replace(" ", "") for text in TEXT]
    assert run(*command) == f"{tmp_path / 'trees'}: 4 sentences parsed, 0 not\n"
