"""Runs of `parse_corpus` by processes that start at once, and what they wrote."""

import os

from pyarrow import parquet

from onlstm_hf.corpus.executors import Engine
from onlstm_hf.corpus.inputs import find_files
from onlstm_hf.corpus.parse_documents import ParseOptions
from onlstm_hf.corpus.run import parse_corpus
from tests.helpers.forked_processes import forked_context

TASKS = 20


def parse(corpus, output, checkpoint, tasks=TASKS, engine=None, output_format="parquet", **options):
    """Parses all of a folder by workers that are forks of this process."""
    files = find_files(str(corpus))
    engine = engine or Engine(workers=2, start_method="fork")
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
        output_format=output_format,
    )


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
