"""Runs of `parse_corpus` in processes that start fast, and their outputs."""

import os

from pyarrow import parquet

from onlstm_hf.corpus.executors import Engine
from onlstm_hf.corpus.inputs import find_files
from onlstm_hf.corpus.parse_documents import ParseOptions
from onlstm_hf.corpus.run import parse_corpus
from tests.helpers.forked_processes import forked_context

TASKS = 20
# Forked workers, only for processes of `in_a_process`. The process of a test has threads, so its forks may deadlock.
FORKS = Engine(workers=2, start_method="fork")


def parse(corpus, output, checkpoint, tasks=TASKS, engine=FORKS, output_format="parquet", **options):
    """Parses all files of a folder."""
    files = find_files(str(corpus))
    options = ParseOptions(**{"log_probability": False, "distances": True, **options})
    return parse_corpus(
        files.reader(),
        {"kind": files.kind},
        str(output),
        checkpoint,
        options,
        engine=engine,
        tasks=tasks,
        files=files,
        progress=engine.start_method != "fork",  # a thread draws the bar
        output_format=output_format,
    )


def workers_at_once(number):
    """Returns an engine whose workers start with the libraries imported."""
    forked_context()
    return Engine(workers=number)


def in_a_process(*arguments, function=parse):
    """Starts a process in its own process group, with the libraries imported."""
    process = forked_context().Process(target=_in_a_group, args=(function, *arguments))
    process.start()
    return process


def _in_a_group(function, *arguments):
    os.setsid()
    function(*arguments)


def tables(output):
    """Returns the rows of each Parquet file of an output."""
    return {path.name: parquet.read_table(path).to_pylist() for path in sorted(output.glob("*.parquet"))}
