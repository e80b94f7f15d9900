"""Word order: how often a language model prefers a sentence to a random order of its words.

    python eval/evaluate_word_order.py MODEL [MODEL ...] --files test.txt --output results.json

Both orders have the same words, known or unknown, so only the order distinguishes them. docs/code.md uses this small
task to explain how to add a task.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table
from eval.report.tasks import WORD_ORDER
from eval.task import add_model_options, describe_checkpoint, load_model, run_task, task_parser
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.utils.files import read_text_file
from onlstm_hf.utils.programs import positive_integer

PROTOCOL = (
    "log probability of the whole sentence, after one <eos> and with the one at its end; right if that of the "
    "sentence as written is higher than that of its words in a random other order, a tie is not right"
)


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="one or more checkpoint folders or Hub names")
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="UTF-8 text, one sentence per line")
    parser.add_argument(
        "--max-sentences", type=positive_integer, metavar="N", help="the first N with two different words"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random orders (default: %(default)s)")
    add_model_options(parser)
    return parser


def evaluate_word_order(options: argparse.Namespace) -> dict:
    """Scores the sentences with every model, prints the accuracies and returns the results."""
    pairs = shuffled_pairs([line for path in options.files for line in read_text_file(path)], options.seed)
    pairs = pairs[: options.max_sentences]
    if not pairs:
        raise ValueError("no sentence of the text has two different words")
    results = []
    for name in options.models:
        model, tokenizer = load_model(name, options)
        written, shuffled = (
            [score.total().total_log_likelihood for score in score_sentences(model, tokenizer, list(sentences))]
            for sentences in zip(*pairs, strict=True)
        )
        num_right = sum(original > other for original, other in zip(written, shuffled, strict=True))
        num_ties = sum(original == other for original, other in zip(written, shuffled, strict=True))
        results.append({**describe_checkpoint(name, model), "accuracy": num_right / len(pairs), "num_ties": num_ties})
    rows = [[row["model"], f"{100 * row['accuracy']:.1f}", str(row["num_ties"])] for row in results]
    print(f"{len(pairs)} sentences; {PROTOCOL}\n\n{format_table(['model', 'accuracy', 'ties'], rows)}")
    return {
        "task": WORD_ORDER,
        "models": results,
        "num_sentences": len(pairs),
        "files": options.files,
        "protocol": {"description": PROTOCOL, "seed": options.seed},
    }


def shuffled_pairs(sentences: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Pairs each sentence with a random other order of its words, and skips sentences without one."""
    generator, pairs = Random(seed), []
    for sentence in sentences:
        words = sentence.split()
        if len(set(words)) < 2:
            continue
        shuffled = list(words)
        while shuffled == words:
            generator.shuffle(shuffled)
        pairs.append((" ".join(words), " ".join(shuffled)))
    return pairs


main = partial(run_task, "eval/evaluate_word_order.py", build_parser, evaluate_word_order)

if __name__ == "__main__":
    sys.exit(main())
