"""Language modelling: perplexity of modified Kneser-Ney n-grams on text.

python eval/evaluate_ngrams.py --training-text train.txt --files valid.txt test.txt --order 3 5
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.texts import read_sentences
from eval.report.perplexities import report, score_tokens
from eval.report.tasks import LANGUAGE_MODELLING
from eval.task import run_task, task_parser
from onlstm_hf.scoring.kneser_ney import KneserNeyNGrams
from onlstm_hf.scoring.stream import encode_sentence_stream
from onlstm_hf.text.tokenization import build_word_tokenizer
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer

PROTOCOL = (
    "every line begins anew after an <eos>; every token counts, the <eos> of each line included; a word that the "
    "training text does not have is its unknown word"
)


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("--training-text", required=True, metavar="FILE", help="UTF-8 text, one sentence per line")
    parser.add_argument("--files", required=True, nargs="+", metavar="FILE", help="texts to score, likewise")
    parser.add_argument(
        "--order", type=positive_integer, nargs="+", default=[5], metavar="N", help="order of the n-grams (5)"
    )
    return parser


def evaluate_ngrams(options: argparse.Namespace) -> dict:
    """Counts n-grams of each order, scores every text, prints the table and returns the results."""
    texts = {path: read_sentences(path) for path in options.files}
    training_sentences = read_sentences(options.training_text)
    tokenizer = build_word_tokenizer(training_sentences)
    training_text = encode_sentence_stream(tokenizer, training_sentences)
    models = []
    for order in progress_bar(options.order, unit="model"):
        ngrams = KneserNeyNGrams(training_text, len(tokenizer), tokenizer.eos_token_id, order)
        log_probabilities = {
            path: torch.from_numpy(ngrams.log_probabilities(encode_sentence_stream(tokenizer, sentences)))
            for path, sentences in texts.items()
        }
        scores = score_tokens(log_probabilities, texts, tokenizer)
        name = f"Kneser-Ney {order}-grams"
        models.append(
            {"model": name, "num_parameters": ngrams.num_ngrams, "seed": None, "scores": scores, "adaptation": None}
        )
    print(f"{', '.join(model['model'] for model in models)} of {options.training_text}: {PROTOCOL}\n")
    print(report(models, texts, are_alike=False))
    return {
        "task": LANGUAGE_MODELLING,
        "models": models,
        "training_text": options.training_text,
        "protocol": {"name": "n-grams", "description": PROTOCOL},
    }


main = partial(run_task, "eval/evaluate_ngrams.py", build_parser, evaluate_ngrams)

if __name__ == "__main__":
    sys.exit(main())
