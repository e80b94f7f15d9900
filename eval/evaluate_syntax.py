"""Targeted syntactic evaluation: how often language models prefer the grammatical sentence of a minimal pair.

    python eval/evaluate_syntax.py MODEL --marvin-linzen syneval/ --output results.json
    python eval/evaluate_syntax.py MODEL gpt2 --blimp nyu-mll/blimp

The sets are those of Marvin & Linzen (2018), reported as in the ON-LSTM paper, and BLiMP (Warstadt et al. 2020). Any
causal language model of Transformers can be evaluated.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.syntactic_tests import Item, load_blimp, load_marvin_linzen
from eval.report.by_task.syntax import BLIMP, MARVIN_LINZEN, PUBLISHED_NOTE, syntax_table
from eval.report.tables import format_table
from eval.report.tasks import SYNTAX
from eval.task import add_model_options, describe_checkpoint, import_extra, load_model, run_task, task_parser
from onlstm_hf.scoring.prefixes import sequence_log_probabilities
from onlstm_hf.text.unknown_words import differ_in_unknown_word, tokenize_sentences
from onlstm_hf.utils.programs import positive_integer

PROTOCOL = (
    "log probability of the whole sentence after the token that begins a text; right if that of the grammatical "
    "sentence is higher, a tie is not right; a pair is unknown if a word in which its sentences differ is outside the "
    "vocabulary"
)
END = {"counted": "the <eos> at the end of the sentence counts", "ignored": "the end of the sentence does not count"}
# Positions of the compared sentences in items of two or three sentences, in the order of the metric.
COMPARED = {2: [(0, 1)], 3: [(0, 1), (1, 2), (0, 2)]}


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="one or more checkpoint folders or Hub names")
    parser.add_argument(
        "--marvin-linzen",
        metavar="PATH",
        help="folder of NAME.tsv[.gz] (condition, grammatical, (intrusive,) ungrammatical), or a dataset name",
    )
    parser.add_argument("--blimp", metavar="PATH", help="folder of NAME.jsonl[.gz], or a dataset name")
    parser.add_argument(
        "--end",
        choices=[*END],
        default="counted",
        help="whether the <eos> after the sentence counts; models of running text rarely see one there (%(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=positive_integer, default=1024, metavar="N", help="sentences per batch (%(default)s)"
    )
    add_model_options(parser)
    return parser


def evaluate_syntax(options: argparse.Namespace) -> dict:
    """Scores every set with every model, prints the tables and returns the results."""
    tests = load_tests(options)
    results = []
    for name in options.models:
        model, tokenizer = load_model(name, options, any_causal_model=True)
        scores = {
            test: score_items(model, tokenizer, items, options.end == "counted", options.batch_size)
            for test, items in tests.items()
        }
        results.append({**describe_checkpoint(name, model), "scores": scores})
    description = f"{PROTOCOL}; {END[options.end]}"
    ties = [f"{row['model']}, {test}: {row['scores'][test]['num_ties']} ties" for row in results for test in tests]
    table = syntax_table({"": {"models": results}}, has_paradigms=True)
    print(f"{description}\n\n{format_table(*table)}\n")
    print("\n".join([*ties, *([PUBLISHED_NOTE] if MARVIN_LINZEN in tests else [])]))
    return {
        "task": SYNTAX,
        "protocol": {"description": description, "end": options.end},
        "data": {MARVIN_LINZEN: options.marvin_linzen, BLIMP: options.blimp},
        "models": results,
    }


def load_tests(options: argparse.Namespace) -> dict[str, list[Item]]:
    """Loads the items of the requested tests, by name."""
    tests = {MARVIN_LINZEN: (load_marvin_linzen, options.marvin_linzen), BLIMP: (load_blimp, options.blimp)}
    loaded = {name: load(source) for name, (load, source) in tests.items() if source}
    if not loaded:
        raise ValueError("nothing to evaluate: give --marvin-linzen PATH, --blimp PATH, or both")
    return loaded


def score_items(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    items: Sequence[Item],
    end_counts: bool = True,
    batch_size: int = 1024,
) -> dict:
    """Scores items of any causal language model with the metric `eval/minimal_pairs`."""
    evaluate = import_extra("evaluate")
    begin = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if begin is None or (end_counts and tokenizer.eos_token_id is None):
        raise ValueError("the tokenizer needs an eos_token, which stands before and after each sentence")
    end = (tokenizer.eos_token_id,) if end_counts else ()
    sentences = list(dict.fromkeys(sentence for item in items for sentence in item.sentences))
    encoded = dict(zip(sentences, tokenize_sentences(tokenizer, sentences), strict=True))
    framed = [(begin, *encoded[sentence].ids, *end) for sentence in sentences]
    log_probabilities = dict(zip(sentences, sequence_log_probabilities(model, framed, batch_size), strict=True))
    metric = evaluate.load(str(Path(__file__).resolve().parent / "minimal_pairs"), keep_in_memory=True)
    return metric.compute(
        predictions=[[log_probabilities[sentence] for sentence in item.sentences] for item in items],
        conditions=[item.condition for item in items],
        groups=[item.group for item in items],
        out_of_vocabulary=[
            [
                differ_in_unknown_word(encoded[item.sentences[first]], encoded[item.sentences[second]])
                for first, second in COMPARED[len(item.sentences)]
            ]
            for item in items
        ],
    )


main = partial(run_task, "eval/evaluate_syntax.py", build_parser, evaluate_syntax)

if __name__ == "__main__":
    sys.exit(main())
