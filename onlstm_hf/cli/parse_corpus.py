"""`onlstm-hf parse-corpus`: a corpus of any size to a table of trees."""

from __future__ import annotations

import argparse

from ..utils.programs import add_code_option, positive_integer, thread_count
from .sentences import add_dtype_option, add_punctuation_option, add_splitting_options

DESCRIPTION = """\
Parses all sentences of a corpus into a table with a row a sentence, on this machine or on a cluster. It needs the
extra `corpus`: in a checkout, pip install -e ".[corpus]". The work is cut into tasks, each of which writes one file of
the table when it is complete. After an interruption the same command continues with the tasks that are not complete.
"""
EXAMPLES = """\
examples:
  onlstm-hf parse-corpus corpus.txt trees
  onlstm-hf parse-corpus articles/ trees --split-sentences --no-log-probability --workers 8
  onlstm-hf parse-corpus s3://bucket/pages s3://bucket/trees --glob "**/*.jsonl.gz" --text-key content
  onlstm-hf parse-corpus user/dataset trees --kind dataset --split train
  onlstm-hf parse-corpus /shared/articles /shared/trees --engine ray --workers 64
  onlstm-hf parse-corpus /shared/articles /shared/trees --engine slurm --tasks 1000 --workers 200 --partition cpu

input, by the names of the files or as --kind says:
  text      .txt: each line is a document
  jsonl     .jsonl: each line is a JSON object with the text in "text" and perhaps an id in "id"
  parquet   .parquet: each row is a document, with columns "text" and perhaps "id"
  dataset   a name of a dataset on the Hub, or a folder, for datasets.load_dataset

Text and JSON lines may be compressed (.gz, .bz2, .xz, .zst). A compressed file is read by one task; other files are
shared out.

columns of the table:
  document, position   the id of the document, and the number of the sentence in it
  start, text          where the sentence begins in the document, in characters, and its text
  words, offsets       words as they stand in the text, and the [start, end] of each in the text
  unknown              which words the model does not know
  spans                start, end, word_start and word_end of each constituent of two words or more; with
                       --trees brackets: "brackets"
  distances            with --distances, in half precision
  log_probability      natural log probability of the sentence and the <eos> after it
  reason               why a sentence or a document has no tree; null where there is one

`datasets.load_dataset("OUTPUT")` reads it.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds `parse-corpus` to the subcommands."""
    parser = commands.add_parser(
        "parse-corpus", help="corpus of any size to a table of trees", description=DESCRIPTION, epilog=EXAMPLES
    )
    parser.add_argument("input", metavar="INPUT", help="file or folder, also an address such as s3://bucket/folder")
    parser.add_argument("output", metavar="OUTPUT", help="folder of the table; one that was begun is completed")
    parser.add_argument(
        "--model",
        metavar="PATH_OR_NAME",
        help="checkpoint folder, or name on the Hub (default: see `onlstm-hf --help`)",
    )
    add_code_option(parser)
    source = parser.add_argument_group("input")
    source.add_argument(
        "--kind", choices=["text", "jsonl", "parquet", "dataset"], help="see below (default: by the files' names)"
    )
    source.add_argument("--glob", metavar="PATTERN", help="only files of the folder INPUT whose paths match")
    source.add_argument(
        "--text-key", default="text", metavar="NAME", help="field or column of the text (default: %(default)s)"
    )
    source.add_argument(
        "--id-key", default="id", metavar="NAME", help="field or column of a document's id (default: %(default)s)"
    )
    source.add_argument("--split", default="train", metavar="NAME", help="split of a dataset (default: %(default)s)")
    add_splitting_options(source, "documents", "line")
    source.add_argument(
        "--max-words",
        type=positive_integer,
        default=1000,
        metavar="N",
        help="do not parse longer sentences (default: %(default)s)",
    )
    trees = parser.add_argument_group("trees")
    trees.add_argument("--layer", type=int, metavar="N", help="see `onlstm-hf parse --help`")
    trees.add_argument(
        "--branching-bias",
        choices=["right", "none", "ranges"],
        default="right",
        help="see `onlstm-hf parse --help` (default: %(default)s)",
    )
    add_punctuation_option(trees)
    trees.add_argument(
        "--trees", choices=["spans", "brackets"], default="spans", help="column of the trees (default: %(default)s)"
    )
    trees.add_argument("--distances", action="store_true", help="add the column of distances")
    trees.add_argument(
        "--log-probability",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the column of log probabilities, which takes longer than the trees (default: there is one)",
    )
    add_dtype_option(
        trees,
        "what the table was begun with, and for a new one bfloat16 with --no-log-probability on a CPU that is found "
        "to be faster by it, and else float32",
    )
    trees.add_argument(
        "--output-format",
        choices=["parquet", "jsonl"],
        default="parquet",
        help="Parquet files, or compressed JSON lines (default: %(default)s)",
    )
    trees.add_argument(
        "--batch-size",
        type=positive_integer,
        default=256,
        metavar="N",
        help="sentences in one pass through the model (default: %(default)s)",
    )
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine",
        choices=["local", "ray", "slurm"],
        default="local",
        help="processes of this machine, a Ray cluster, or jobs of Slurm; these two need folders that all machines "
        "see (default: %(default)s)",
    )
    engine.add_argument(
        "--tasks",
        type=positive_integer,
        metavar="N",
        help="parts of the work, and files of the table (default: one for each 32 MiB of input, and one a worker)",
    )
    engine.add_argument(
        "--workers",
        type=positive_integer,
        metavar="N",
        help="tasks at a time (default: the cores of this machine, the CPUs of the Ray cluster, no limit with Slurm)",
    )
    engine.add_argument(
        "--threads",
        type=thread_count,
        metavar="N",
        help="threads, and with Ray and Slurm CPUs, of a worker (default: 1; locally the cores shared out)",
    )
    engine.add_argument(
        "--memory",
        type=positive_integer,
        default=2,
        metavar="GB",
        help="memory of a CPU, with Ray and Slurm (default: 2)",
    )
    engine.add_argument(
        "--gpus", type=int, default=0, metavar="N", help="GPUs of a worker, with Ray and Slurm (default: %(default)s)"
    )
    engine.add_argument("--partition", metavar="NAME", help="partition of Slurm")
    engine.add_argument(
        "--time", default="24:00:00", metavar="TIME", help="limit of a task, with Slurm (default: %(default)s)"
    )
    engine.add_argument(
        "--sbatch", action="append", default=[], metavar="NAME=VALUE", help="further option of sbatch; can be repeated"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Parses the corpus and says what became of its sentences."""
    from loguru import logger

    from ..corpus.executors import choose_engine
    from ..corpus.inputs import find_files
    from ..corpus.parse_documents import ParseOptions
    from ..corpus.readers import DatasetReader
    from ..corpus.run import parse_corpus
    from ..utils.checkpoints import default_model

    logger.disable("datatrove")  # of this process; each task has a log
    keys = {"text_key": options.text_key, "id_key": options.id_key}
    if options.kind == "dataset":
        reader = DatasetReader(options.input, {"split": options.split}, streaming=True, **keys)
        files, corpus = None, {"dataset": options.input, "split": options.split, **keys}
    else:
        files = find_files(options.input, options.kind, options.glob)
        reader = files.reader(**keys)
        corpus = {"kind": files.kind, **keys}
    sbatch = dict(option.partition("=")[::2] for option in options.sbatch)
    sbatch |= {"partition": options.partition, "time": options.time}
    counts = parse_corpus(
        reader,
        corpus,
        options.output,
        options.model or default_model(),
        ParseOptions(
            language=options.language if options.split_sentences else None,
            **{name: getattr(options, name) for name in ParseOptions._fields if name != "language"},
        ),
        files=files,
        output_format=options.output_format,
        engine=choose_engine(
            options.engine,
            options.workers,
            options.threads,
            memory=options.memory,
            gpus=options.gpus,
            sbatch=tuple(sbatch.items()),
        ),
        tasks=options.tasks,
        trust_remote_code=options.trust_remote_code,
    )
    if counts is None:
        print(f"{options.output}: Slurm has the tasks")
        return
    parsed = counts.pop("parsed", 0)
    print(f"{options.output}: {parsed:,} sentences parsed, {sum(counts.values()):,} not")
    for reason, number in counts.most_common():
        print(f"  {number:,}: {reason}")
