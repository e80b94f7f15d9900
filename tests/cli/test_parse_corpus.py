import json
import os
import stat
import subprocess
import sys

import pytest

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


def test_a_corpus_becomes_a_table_in_a_process_of_its_own(corpus, checkpoint, tmp_path, project_root):
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "trees"], "there is no file or folder missing"),
        (["empty", "trees"], "empty has no files that can be read"),
        (["corpus.jsonl", "trees", "--model", "missing"], "there is no checkpoint folder missing"),
        (["corpus.jsonl", "trees", "--language", "de"], "--language de needs --split-sentences"),
        (["corpus.jsonl", "empty/..", "--model", "{checkpoint}"], "has files that are not from parse-corpus"),
    ],
)
def test_errors_of_a_user_are_one_line(error_of, corpus, checkpoint, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    arguments = [argument.format(checkpoint=checkpoint) for argument in arguments]
    assert message in error_of("parse-corpus", *arguments, "--workers", "1")
    assert not (tmp_path / "trees").exists()


SBATCH = """\
#!/bin/sh
# Stands in for Slurm: begins each job of an array at once, and leaves out the job that merges the statistics.
echo "$@" >> {folder}/sbatch-arguments
for script in "$@"; do :; done
cat "$script" >> {folder}/sbatch-scripts
if grep -q merge_stats "$script"; then echo 2; exit; fi
for job in $(seq 0 $(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")); do
    SLURM_ARRAY_TASK_ID=$job SLURM_NODELIST=here RUN_OFFSET=0 sh "$script" > {folder}/job-$job 2>&1
done
echo Submitted batch job 1
"""
# The first job is a new process, as on another machine; the test runs the others.
SRUN = """\
#!/bin/sh
while [ "$1" != launch_pickled_pipeline ]; do shift; done
echo "$2" > {folder}/pipeline-$SLURM_ARRAY_TASK_ID
if [ $SLURM_ARRAY_TASK_ID != 0 ]; then exit; fi
exec {python} -m datatrove.tools.launch_pickled_pipeline "$2"
"""


def run_job(number, path, pipeline):
    os.environ |= {"SLURM_ARRAY_TASK_ID": number, "SLURM_NODELIST": "here", "RUN_OFFSET": "0", "PATH": path}
    sys.argv = ["launch_pickled_pipeline", pipeline]
    launch_pickled_pipeline.main()


@pytest.mark.slow
def test_slurm_gets_a_job_for_each_task(run, corpus, checkpoint, tmp_path, monkeypatch, project_root):
    for name, script in {"sbatch": SBATCH, "srun": SRUN, "scontrol": "#!/bin/sh\necho here\n"}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script.format(folder=tmp_path, python=sys.executable))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{project_root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.chdir(project_root)
    command = ["parse-corpus", corpus, tmp_path / "trees", "--model", checkpoint, "--engine", "slurm", "--tasks", 2]
    command += ["--partition", "cpu", "--workers", 1, "--sbatch", "account=linguistics", "--no-log-probability"]
    assert run(*command) == f"{tmp_path / 'trees'}: Slurm has the tasks\n"
    script = (tmp_path / "sbatch-scripts").read_text()
    for option in ("array=0-1%1", "partition=cpu", "account=linguistics", "cpus-per-task=1", "time=24:00:00"):
        assert f"#SBATCH --{option}\n" in script
    pipeline = (tmp_path / "pipeline-1").read_text().strip()
    job = forked_context().Process(target=run_job, args=("1", os.environ["PATH"], pipeline))
    job.start()
    job.join()
    assert job.exitcode == 0
    tables = [parquet.read_table(path).to_pylist() for path in sorted((tmp_path / "trees").glob("*.parquet"))]
    assert ["".join(row["words"]) for table in tables for row in table] == [text.replace(" ", "") for text in TEXT]
    assert run(*command[:-1], "--no-log-probability") == f"{tmp_path / 'trees'}: Slurm has the tasks\n"
