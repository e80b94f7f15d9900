"""Language modelling: the perplexity of modified Kneser-Ney n-grams on text.

python eval/evaluate_ngrams.py --training-text train.txt --files valid.txt test.txt --order 3 5 --output results.json

N-grams beside a neural model: `evaluate_lm.py --adapt ngrams`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.texts import read_sentences
from eval.report.perplexities import PUBLISHED, report, score_tokens
from eval.report.results_files import check_writable
from eval.report.tasks import LANGUAGE_MODELLING
from onlstm_hf.scoring.coverage import unknown_words
from onlstm_hf.scoring.kneser_ney import KneserNeyNGrams
from onlstm_hf.scoring.stream import encode_sentence_stream
from onlstm_hf.text.tokenization import build_word_tokenizer
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import write_results

PROTOCOL = (
    "every line begins anew after an <eos>; every token counts, the <eos> of each line included; a word that the "
    "training text does not have is its unknown word"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("evaluate_ngrams.py", lambda: evaluate_ngrams(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training-text", required=True, metavar="FILE", help="UTF-8 text, one sentence a line")
    parser.add_argument("--files", required=True, nargs="+", metavar="FILE", help="a text each to score, likewise")
    parser.add_argument(
        "--order", type=positive_integer, nargs="+", default=[5], metavar="N", help="words of the longest n-grams (5)"
    )
    parser.add_argument("--output", metavar="FILE", help="results as JSON; an older file is replaced")
    return parser


def evaluate_ngrams(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Counts n-grams of each order, scores every text, prints the table and writes the results."""
    check_writable(options.output)
    texts = {path: _sentences(path) for path in options.files}
    training_sentences = _sentences(options.training_text)
    tokenizer = build_word_tokenizer(training_sentences)
    training_text = encode_sentence_stream(tokenizer, training_sentences)
    unknown = {path: unknown_words(tokenizer, sentences) for path, sentences in texts.items()}
    models = []
    for order in progress_bar(options.order, unit="model"):
        ngrams = KneserNeyNGrams(training_text, len(tokenizer), tokenizer.eos_token_id, order)
        scores = {}
        for path, sentences in texts.items():
            log_probabilities = ngrams.log_probabilities(encode_sentence_stream(tokenizer, sentences))
            scores[path] = score_tokens(torch.from_numpy(log_probabilities), sentences)
            scores[path]["unknown_words"] = unknown[path]
        name = f"Kneser-Ney {order}-grams"
        models.append(
            {"model": name, "num_parameters": ngrams.num_ngrams, "seed": None, "scores": scores, "adaptation": None}
        )
    print(f"{', '.join(model['model'] for model in models)} of {options.training_text}: {PROTOCOL}\n")
    print(report(models, are_alike=False))
    if options.output:
        results = {
            "task": LANGUAGE_MODELLING,
            "models": models,
            "training_text": options.training_text,
            "protocol": {"name": "n-grams", "description": PROTOCOL},
            "published": PUBLISHED,
        }
        write_results(options.output, results, "eval/evaluate_ngrams.py", arguments)


def _sentences(path: str) -> list[str]:
    sentences = read_sentences(path)
    if not sentences:
        raise ValueError(f"{path} is empty")
    return sentences


if __name__ == "__main__":
    sys.exit(main())
