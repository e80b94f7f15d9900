"""Writes the events of a treebank's documents as training text for language models.

    python eval/narrative_cloze/write_events.py --treebank wsj/ --output-dir runs/events

It writes `train.txt`, `valid.txt` and `test.txt` with one document per line, once with entities as arguments of events
(`entities/`) and once with nouns (`nouns/`). Every fifth document is test, the next one validation. Every file and
every tree after an empty line begins a document.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout that this script belongs to

from eval.narrative_cloze.event_files import describe, replace_rare, split, write_script, write_scripts
from eval.narrative_cloze.events import events
from eval.narrative_cloze.penn_trees import read_documents
from eval.report.tables import format_table
from eval.task import run_task, task_parser
from onlstm_hf.utils.iteration import progress_bar

MIN_COUNT = 2  # rarer words of the training documents become `?`


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__, has_results=False)
    parser.add_argument(
        "--treebank", nargs="+", required=True, metavar="PATH", help="Penn-style .mrg files, or folders of them"
    )
    parser.add_argument(
        "--output-dir", required=True, metavar="FOLDER", help="output folder; existing files are replaced"
    )
    return parser


def write_events(options: argparse.Namespace) -> None:
    """Extracts the events, writes both variants and prints their counts."""
    tree_documents = progress_bar(read_documents(options.treebank), unit="document")
    documents = [[event for tree in trees for event in events(tree)] for trees in tree_documents]
    documents = [document for document in documents if document]
    if len(documents) < 5:
        raise ValueError(f"the treebank has {len(documents)} documents with events; at least 5 are needed")
    rows = []
    for name in ("entities", "nouns"):
        scripts = [write_script(document, has_entities=name == "entities") for document in documents]
        parts = replace_rare(split(scripts), MIN_COUNT)
        write_scripts(Path(options.output_dir, name), parts)
        for part, scripts in parts.items():
            numbers = describe(scripts)
            rows.append([f"{name}, {part}", *(f"{value:,.4g}" for value in numbers.values())])
    print(format_table(["", *(key.removeprefix("num_").replace("_", " ") for key in numbers)], rows))


main = partial(run_task, "eval/narrative_cloze/write_events.py", build_parser, write_events)

if __name__ == "__main__":
    sys.exit(main())
