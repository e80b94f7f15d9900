"""Ordinary text at every door: the share of words that a model does not know, as people type them.

    python eval/evaluate_unknown_words.py MODEL --treebank wsj.mrg --output results.json

The sentences of the treebank are set back into ordinary writing by NLTK's detokenizer (extra `nltk`). The first row is
the share where words are what white space separates, the others are what each door of the package reads.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase, pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table
from eval.report.tasks import UNKNOWN_WORDS
from eval.task import import_extra, run_task, task_parser
from onlstm_hf.trees.treebank import AS_WRITTEN, EMPTY_ELEMENT_TAGS, Preprocessing, read_treebank
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import add_code_option, positive_integer

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    return run_task("eval/evaluate_unknown_words.py", build_parser(), evaluate_unknown_words, arguments)


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub")
    parser.add_argument("--treebank", required=True, metavar="FILE", help="Penn-style bracketed trees, with marks")
    parser.add_argument(
        "--sentences", type=positive_integer, default=500, metavar="N", help="the first N (default: %(default)s)"
    )
    add_code_option(parser)
    return parser


def evaluate_unknown_words(options: argparse.Namespace) -> dict:
    """Reads the sentences at every door, prints the shares and returns the results."""
    texts = ordinary_sentences(options.treebank, options.sentences)
    model, tokenizer = load_checkpoint(options.model, trust_remote_code=options.trust_remote_code)
    shares = share_at_each_door(model, tokenizer, texts, options.model)
    print(f"{len(texts)} sentences of {options.treebank} in ordinary writing, read by {options.model}\n")
    print(format_table(["door", "unknown words"], [[door, f"{100 * share:.1f} %"] for door, share in shares.items()]))
    return {"task": UNKNOWN_WORDS, "model": options.model, "num_sentences": len(texts), "unknown_words": shares}


def ordinary_sentences(path: str, num_sentences: int) -> list[str]:
    """The first sentences of a treebank as people type them."""
    detokenize = import_extra("nltk").tokenize.treebank.TreebankWordDetokenizer().detokenize
    fields = AS_WRITTEN.to_dict() | {"dropped_tags": EMPTY_ELEMENT_TAGS}
    trees = read_treebank(path, Preprocessing.from_dict(fields))
    sentences = []
    for tree in trees[:num_sentences]:
        words = [BRACKETS.get(word, word.replace("\\/", "/").replace("\\*", "*")) for word in tree.words]
        text = detokenize(words).replace("``", '"').replace("''", '"')
        sentences.append(re.sub(r'(^|[\s(])" ', r'\1"', text))
    return sentences


def share_at_each_door(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], name: str
) -> dict[str, float]:
    """The share of unknown words of the texts, by what reads them."""
    vocabulary = tokenizer.get_vocab()
    by_space = [[word not in vocabulary for word in text.split()] for text in texts]
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    parse = pipeline("constituency-parsing", model=model, tokenizer=tokenizer)
    lines = "\n".join(" ".join(text.split()) for text in texts)
    parsed = [json.loads(line) for line in _output_of("parse", lines, name)]
    scored = [json.loads(line) for line in _output_of("score", lines, name)]
    doors = {
        "words between spaces": by_space,
        "AutoTokenizer, and tools that use it": [[token == tokenizer.unk_token_id for token in row] for row in ids],
        "model.parse": [tree.unknown for tree in model.parse(list(texts), tokenizer)],
        "pipeline": [
            record["unknown"] for record in progress_bar(parse(iter(texts)), total=len(texts), unit="sentence")
        ],
        "onlstm-hf parse": [record["unknown"] for record in parsed],
        "onlstm-hf score": [record["unknown"][:-1] for record in scored if "unknown" in record],
    }
    with contextlib.suppress(ImportError):
        doors["onlstm-hf parse-corpus"] = _unknown_in_corpus(texts, name)
    return {door: sum(map(sum, rows)) / sum(map(len, rows)) for door, rows in doors.items()}


def _output_of(subcommand: str, lines: str, model: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "text.txt")
        file.write_text(lines, encoding="utf-8")
        options = ["--file", str(file), "--model", model, "--format", "jsonl"]
        command = [sys.executable, "-m", "onlstm_hf", subcommand, *options]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
    return output.strip("\n").split("\n")


def _unknown_in_corpus(texts: Sequence[str], model: str) -> list[list[bool]]:
    from datatrove.data import Document

    from onlstm_hf.corpus.parse_documents import ParseDocuments, ParseOptions

    documents = (Document(text=text, id=str(number)) for number, text in enumerate(texts))
    step = ParseDocuments(model, ParseOptions(log_probability=False))
    rows = progress_bar(step.run(documents), total=len(texts), unit="sentence")
    return [document.metadata["row"]["unknown"] for document in rows]


if __name__ == "__main__":
    sys.exit(main())
