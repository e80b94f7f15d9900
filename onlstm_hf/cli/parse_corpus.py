"""`onlstm-hf parse-corpus`: a table of trees for a corpus of any size."""

import argparse

from ..utils.programs import natural_number, thread_count
from .options import (
    add_choice,
    add_model_options,
    add_number,
    add_splitting_options,
    add_tree_options,
    splitting_language,
)

HELP = "parse a corpus of any size into a table"
DESCRIPTION = """\
Parses all sentences of a corpus into a table with one row per sentence, on this machine or on a cluster. It needs the
extra `corpus`: in a checkout, pip install -e ".[corpus]". The work is split into tasks. Each task writes one file of
the table when it is complete. After an interruption the same command resumes with the incomplete tasks.
"""
EXAMPLES = """\
examples:
  onlstm-hf parse-corpus corpus.txt trees
  onlstm-hf parse-corpus articles/ trees --split-sentences --no-log-probability --workers 8
  onlstm-hf parse-corpus s3://bucket/pages s3://bucket/trees --glob "**/*.jsonl.gz" --text-key content
  onlstm-hf parse-corpus user/dataset trees --kind dataset --split train
  onlstm-hf parse-corpus /shared/articles /shared/trees --engine ray --workers 64
  onlstm-hf parse-corpus /shared/articles /shared/trees --engine slurm --tasks 1000 --workers 200 --partition cpu

input, by file name or --kind:
  text      .txt: each line is a document
  jsonl     .jsonl: each line is a JSON object with "text" and, optionally, "id"
  parquet   .parquet: each row is a document, with the column "text" and, optionally, "id"
  dataset   a name of a dataset on the Hub, or a folder, for datasets.load_dataset

Text and JSON lines may be compressed (.gz, .bz2, .xz, .zst). A compressed file is read by a single task; other files
are split among tasks.

`datasets.load_dataset("OUTPUT")` reads the table; docs/corpus.md explains its columns.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="INPUT", help="file or folder, or a URL such as s3://bucket/folder")
    parser.add_argument("output", metavar="OUTPUT", help="folder of the table; an interrupted job is resumed")
    add_model_options(parser, batch_size=256)
    source = parser.add_argument_group("input")
    kinds = ["text", "jsonl", "parquet", "dataset"]
    source.add_argument("--kind", choices=kinds, help="see below (default: by the files' names)")
    source.add_argument("--glob", metavar="PATTERN", help="read only matching paths of the folder INPUT")
    source.add_argument("--split", metavar="NAME", help="split of a dataset (default: train)")
    source.add_argument("--text-key", default="text", metavar="NAME", help="field or column of the text")
    source.add_argument("--id-key", default="id", metavar="NAME", help="field or column of the id")
    add_splitting_options(source)
    add_number(source, "--max-words", "skip longer sentences", default=1000)
    trees = parser.add_argument_group("trees")
    add_tree_options(trees)
    add_choice(trees, "--trees", ["spans", "brackets"], "column of the trees")
    trees.add_argument("--distances", action="store_true", help="add the column of distances")
    log_probability = "write the column of log probabilities, which takes longer than the trees (default: yes)"
    trees.add_argument("--log-probability", action=argparse.BooleanOptionalAction, default=True, help=log_probability)
    add_choice(trees, "--output-format", ["parquet", "jsonl"], "Parquet files, or compressed JSON lines")
    engine = parser.add_argument_group("engine")
    add_choice(engine, "--engine", ["local", "ray", "slurm"], "this machine, or a cluster with shared folders")
    add_number(engine, "--tasks", "files of the table (default: one per 32 MiB of input, at least one per worker)")
    add_number(engine, "--workers", "concurrent tasks (default: the cores of this machine or the Ray cluster)")
    threads = "threads per worker; with Ray and Slurm also CPUs per worker (default: 1; locally cores / workers)"
    engine.add_argument("--threads", type=thread_count, metavar="N", help=threads)
    add_number(engine, "--memory", "GB of memory per CPU, with Ray and Slurm (default: 2)")
    engine.add_argument("--gpus", type=natural_number, metavar="N", help="GPUs per worker, with Ray and Slurm")
    engine.add_argument("--partition", metavar="NAME", help="Slurm partition (default: the cluster's)")
    engine.add_argument("--time", metavar="TIME", help="time limit per task, with Slurm (default: 24:00:00)")
    engine.add_argument("--sbatch", action="append", type=_name_and_value, metavar="NAME=VALUE", help="sbatch option")


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text}")
    return name, value


def _refuse_ignored_options(options: argparse.Namespace) -> None:
    """Raises a `ValueError` for options that this kind of input or this engine ignores."""
    needs = {
        "an INPUT of files": (options.kind != "dataset", ("glob",)),
        "--kind dataset": (options.kind == "dataset", ("split",)),
        "--engine ray or slurm": (options.engine != "local", ("memory", "gpus")),
        "--engine slurm": (options.engine == "slurm", ("partition", "time", "sbatch")),
    }
    for need, (is_met, names) in needs.items():
        if not is_met and (ignored := [f"--{name}" for name in names if getattr(options, name) is not None]):
            raise ValueError(f"{', '.join(ignored)} would have no effect: give it with {need}, or leave it out")


def run(options: argparse.Namespace) -> None:
    from datasets import load_dataset
    from loguru import logger

    from ..corpus.executors import choose_engine
    from ..corpus.parse_documents import ParseOptions
    from ..corpus.readers import DatasetReader, file_reader
    from ..corpus.run import parse_corpus
    from ..utils.checkpoints import default_model
    from ..utils.dataset_errors import reported_dataset_errors

    _refuse_ignored_options(options)
    logger.disable("datatrove")  # only in this process; each task has a log file
    keys = {"text_key": options.text_key, "id_key": options.id_key}
    if options.kind == "dataset":
        split = options.split or "train"
        with reported_dataset_errors(options.input, f"the split {split!r} of the dataset {options.input}"):
            load_dataset(options.input, split=split, streaming=True)  # before the job begins, not in its tasks
        reader = DatasetReader(options.input, {"split": split}, streaming=True, **keys)
        corpus = {"dataset": options.input, "split": split, **keys}
    else:
        reader = file_reader(options.input, options.kind, options.glob, **keys)
        corpus = {"kind": reader.kind, **keys}
    options.language = splitting_language(options)
    counts = parse_corpus(
        reader,
        corpus,
        options.output,
        options.model or default_model(),
        ParseOptions(**{name: getattr(options, name) for name in ParseOptions._fields}),
        output_format=options.output_format,
        engine=choose_engine(
            options.engine,
            options.workers,
            options.threads,
            memory=options.memory or 2,
            gpus=options.gpus or 0,
            sbatch={"time": options.time or "24:00:00", "partition": options.partition, **dict(options.sbatch or ())},
        ),
        tasks=options.tasks,
        trust_remote_code=options.trust_remote_code,
    )
    if counts is None:
        print(f"{options.output}: the tasks were submitted to Slurm")
        return
    parsed = counts.pop("parsed", 0)
    print(f"{options.output}: {parsed:,} sentence{'' if parsed == 1 else 's'} parsed, {sum(counts.values()):,} not")
    for reason, number in counts.most_common():
        print(f"  {number:,}: {reason}")
