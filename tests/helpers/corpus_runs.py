"""Runs of `parse_corpus` by processes that start at once, and what they wrote."""

import os

from pyarrow import parquet

from onlstm_hf.corpus.executors import Engine
from onlstm_hf.corpus.inputs import find_files
from onlstm_hf.corpus.parse_documents import ParseOptions
from onlstm_hf.corpus.run import parse_corpus
from tests.helpers.forked_processes import forked_context

TASKS = 20
# Workers that are what their process is, for those of `in_a_process` alone. A test's own process has threads, and its
# forks may wait for ever for a lock that one of them held.
FORKS = Engine(workers=2, start_method="fork")


def parse(corpus, output, checkpoint, tasks=TASKS, engine=FORKS, output_format="parquet", **options):
    """Parses all of a folder."""
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
        progress=engine.start_method != "fork",  # which a thread shows
        output_format=output_format,
    )


def workers_at_once(number):
    """Workers that have imported the libraries already when they start."""
    forked_context()
    return Engine(workers=number)


def in_a_process(*arguments, function=parse):
    """Starts a process of its own group, in which the libraries are imported already."""
    process = forked_context().Process(target=_in_a_group, args=(function, *arguments))
    process.start()
    return process


def _in_a_group(function, *arguments):
    os.setsid()
    function(*arguments)


def tables(output):
    """The rows of each file of an output."""
    return {path.name: parquet.read_table(path).to_pylist() for path in sorted(output.glob("*.parquet"))}
