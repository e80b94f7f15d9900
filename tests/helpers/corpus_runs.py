"""Runs of `parse_corpus` in processes that start fast, and their outputs."""

import os

from pyarrow import parquet

from onlstm_hf.corpus import executors
from onlstm_hf.corpus.executors import Engine
from onlstm_hf.corpus.parse_documents import ParseOptions
from onlstm_hf.corpus.readers import file_reader
from onlstm_hf.corpus.run import parse_corpus
from tests.helpers.forked_processes import forked_context

TASKS = 20


def parse(corpus, output, checkpoint, tasks=TASKS, engine=None, output_format="parquet", **options):
    """Parses all files of a folder."""
    reader = file_reader(str(corpus))
    return parse_corpus(
        reader,
        {"kind": reader.kind},
        str(output),
        checkpoint,
        ParseOptions(**{"log_probability": False, "distances": True, **options}),
        engine=engine or Engine(workers=2),
        tasks=tasks,
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
    executors.START_METHOD = "fork"  # fast; the process of a test has threads, so its forks may deadlock
    function(*arguments)


def tables(output):
    """Returns the rows of each Parquet file of an output."""
    return {path.name: parquet.read_table(path).to_pylist() for path in sorted(output.glob("*.parquet"))}
