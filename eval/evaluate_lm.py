"""Language modelling: perplexity of checkpoints on text.

    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --output results.json
    python eval/evaluate_lm.py MODEL --dataset NAME_OR_FOLDER --split validation test --column text
    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --adapt cache --tune valid.txt
    python eval/evaluate_lm.py SEED1 SEED2 SEED3 --files test.txt
    python eval/evaluate_lm.py MODEL1 MODEL2 --files valid.txt test.txt --mix --tune valid.txt

With several checkpoints, such as several seeds, the table also has mean and standard deviation.
"""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from transformers import PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.adaptation.mixture import add_mixture_option, check_mixture, mix
from eval.adaptation.options import adapt, add_adaptation_options, read_candidates
from eval.data.texts import read_sentences, read_string_column
from eval.report.perplexities import report, score_tokens
from eval.report.tasks import LANGUAGE_MODELLING
from eval.task import describe_checkpoint, run_task, task_parser
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_probabilities
from onlstm_hf.text.word_alignment import word_offsets
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.programs import add_code_option, add_implementation_option, positive_integer

PROTOCOL = "one stream, the state carried from line to line; every token counts, the <eos> of each line included"


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="one or more checkpoint folders or Hub names")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--files", nargs="+", metavar="FILE", help="UTF-8 texts, one sentence per line")
    source.add_argument("--dataset", metavar="NAME_OR_FOLDER", help="Hugging Face dataset, one sentence per row")
    parser.add_argument("--config", metavar="NAME", help="configuration of the dataset")
    parser.add_argument("--split", nargs="+", default=["test"], help="splits of the dataset, one text each (test)")
    parser.add_argument("--column", default="text", help="column of the dataset (%(default)s)")
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        default=1,
        metavar="N",
        help="cut the text into N rows of equal length, each with an empty initial state (%(default)s; the papers use "
        "10 for validation and 1 for the test)",
    )
    add_code_option(parser)
    add_implementation_option(parser)
    add_mixture_option(parser)
    add_adaptation_options(parser)
    return parser


def evaluate_lm(options: argparse.Namespace) -> dict:
    """Scores every text with every model, prints the table and returns the results."""
    texts = read_texts(options)
    check_mixture(options, texts)
    candidates = read_candidates(options, texts)
    models, tokenizers, token_scores = [], [], []
    for name in options.models:
        model, tokenizer = load_checkpoint(
            name, trust_remote_code=options.trust_remote_code, implementation=options.implementation
        )
        # As in training, lines without any word for the tokenizer are skipped.
        kept = {text: [line for line in lines if word_offsets(tokenizer, line)] for text, lines in texts.items()}
        if options.mix:
            tokenizers.append(tokenizer)
            check_same_tokens(name, tokenizer, options.models[0], tokenizers[0], kept)
        log_probabilities = {
            text: stream_log_probabilities(model, encode_sentence_stream(tokenizer, lines), options.batch_size)
            for text, lines in kept.items()
        }
        scores = score_tokens(log_probabilities, kept, tokenizer)
        adapted = None
        if candidates:
            adapted, log_probabilities = adapt(options, candidates, model, tokenizer, kept)
            adapted["scores"] = score_tokens(log_probabilities, kept, tokenizer)
        models.append({**describe_checkpoint(name, model), "scores": scores, "adaptation": adapted})
        if options.mix:
            token_scores.append(log_probabilities)
    print(f"{', '.join(options.models)}: {PROTOCOL}\n")
    rows, mixed = models, None
    if options.mix:
        mixed, log_probabilities = mix(options.tune, options.tune_tokens, options.models, token_scores)
        mixed["scores"] = score_tokens(log_probabilities, kept, tokenizers[0])
        rows = [*models, {"model": f"mixture of {len(models)}", "scores": mixed["scores"], "adaptation": None}]
    print(report(rows, texts, are_alike=not options.mix))
    if mixed:
        weights = ", ".join(f"{100 * part['weight']:.1f} % {part['model']}" for part in mixed["weights"])
        print(f"mixture: {weights}; by {mixed['tuning']['num_tokens']} tokens of {mixed['tuning']['text']}")
    return {
        "task": LANGUAGE_MODELLING,
        **(models[0] if len(models) == 1 else {"models": models}),
        **({"mixture": mixed} if mixed else {}),
        "protocol": {"name": "stream", "description": PROTOCOL},
        "batch_size": options.batch_size,
    }


def read_texts(options: argparse.Namespace) -> dict[str, list[str]]:
    """Returns the non-blank lines of each text, by file or split."""
    if options.dataset:
        columns = {
            split: read_string_column(options.dataset, options.config, split, options.column)
            for split in options.split
        }
        texts = {split: [row for row in rows if row.strip()] for split, rows in columns.items()}
    else:
        texts = {path: read_sentences(path) for path in options.files}
    for name, lines in texts.items():
        if not lines:
            raise ValueError(f"{name} is empty: there is no text to score")
    return texts


def check_same_tokens(
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    first_name: str,
    first: PreTrainedTokenizerBase,
    texts: Mapping[str, list[str]],
) -> None:
    """Raises a `ValueError` if two models predict different tokens, so that their probabilities cannot be mixed."""
    same_vocabulary = tokenizer.get_vocab().keys() == first.get_vocab().keys()

    def tokens(encoder: PreTrainedTokenizerBase, lines: list[str]) -> list[str]:
        return encoder.convert_ids_to_tokens(encode_sentence_stream(encoder, lines).tolist())

    if not same_vocabulary or any(tokens(tokenizer, lines) != tokens(first, lines) for lines in texts.values()):
        raise ValueError(
            f"{name} predicts other tokens than {first_name}: a mixture needs models with the same vocabulary"
        )


main = partial(run_task, "eval/evaluate_lm.py", build_parser, evaluate_lm)

if __name__ == "__main__":
    sys.exit(main())
