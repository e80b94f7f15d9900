"""Language modelling: the perplexity of checkpoints on text.

    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --output results.json
    python eval/evaluate_lm.py MODEL --dataset NAME_OR_FOLDER --split validation test --column text
    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --adapt cache --tune valid.txt
    python eval/evaluate_lm.py SEED1 SEED2 SEED3 --files test.txt
    python eval/evaluate_lm.py MODEL1 MODEL2 --files valid.txt test.txt --mix --tune valid.txt

For several checkpoints, such as one model with several seeds, the table also has mean and standard deviation.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.adaptation.mixture import add_mixture_option, mix, read_mixture
from eval.adaptation.options import adapt, add_adaptation_options, read_adaptation
from eval.data.columns import read_string_column
from eval.data.texts import read_sentences
from eval.report.perplexities import PUBLISHED, load_perplexity, report, score_tokens, text_units
from eval.report.results_files import check_writable, describe_checkpoint
from eval.report.tasks import LANGUAGE_MODELLING
from onlstm_hf.scoring.coverage import unknown_words
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_probabilities
from onlstm_hf.text.word_alignment import kept_words
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.programs import add_code_option, add_implementation_option, positive_integer, run_program
from onlstm_hf.utils.results_file import write_results

PROTOCOLS = {
    "stream": "one stream, the state carried from line to line; every token counts, the <eos> of each line included",
    "sentence": "every line stands alone after one <eos>; every token counts, the <eos> of each line included",
}
BATCH_SIZES = {"stream": 1, "sentence": 64}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("evaluate_lm.py", lambda: evaluate_lm(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="checkpoint folder or name on the Hub; several")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--files", nargs="+", metavar="FILE", help="UTF-8 text, one sentence a line; a text each")
    source.add_argument("--dataset", metavar="NAME_OR_FOLDER", help="Hugging Face dataset, one sentence a row")
    parser.add_argument("--config", metavar="NAME", help="configuration of the dataset")
    parser.add_argument("--split", nargs="+", default=["test"], help="splits of the dataset, a text each (test)")
    parser.add_argument("--column", default="text", help="column of the dataset (%(default)s)")
    parser.add_argument("--protocol", choices=[*PROTOCOLS], default="stream", help="(%(default)s)")
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        metavar="N",
        help="stream: rows of equal length that the text is cut into, each from an empty state (1; the papers take 10 "
        f"for validation, 1 for the test); sentence: sentences in one pass ({BATCH_SIZES['sentence']})",
    )
    parser.add_argument("--output", metavar="FILE", help="results as JSON; an older file is replaced")
    add_code_option(parser)
    add_implementation_option(parser)
    add_mixture_option(parser)
    add_adaptation_options(parser)
    return parser


def evaluate_lm(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Scores every text with every model, prints the table and writes the results."""
    check_writable(options.output)
    if options.adapt and options.protocol != "stream":
        raise ValueError("only a stream is adapted to: sentences that stand alone have no past")
    texts = read_texts(options)
    names = {**{path: path for path in options.files or ()}, **_splits(options)}
    mixture, adaptation = read_mixture(options, names), read_adaptation(options, names)
    batch_size = options.batch_size or BATCH_SIZES[options.protocol]
    models, is_english = [], True
    tokenizers, token_scores = [], []
    for name in options.models:
        model, tokenizer = load_checkpoint(
            name, trust_remote_code=options.trust_remote_code, implementation=options.implementation
        )
        # As in training, a line of which the tokenizer keeps nothing is no sentence.
        kept = {text: [line for line in lines if kept_words(tokenizer, line)] for text, lines in texts.items()}
        if mixture:  # the probabilities of the tokens, which it needs, also give the scores
            tokenizers.append(tokenizer)
            check_same_tokens(name, tokenizer, options.models[0], tokenizers[0], kept)
            log_probabilities = score_streams(model, tokenizer, kept, batch_size)
            scores = {text: score_tokens(log_probabilities[text], lines, tokenizer) for text, lines in kept.items()}
        else:
            scores = {
                text: score_text(model, tokenizer, lines, options.protocol, batch_size) for text, lines in kept.items()
            }
        for text, lines in kept.items():
            scores[text]["unknown_words"] = unknown_words(tokenizer, lines)
        adapted = None
        if adaptation:
            adapted, log_probabilities = adapt(adaptation, model, tokenizer, kept, batch_size)
            adapted["scores"] = {
                text: score_tokens(log_probabilities[text], lines, tokenizer)
                | {"unknown_words": scores[text]["unknown_words"]}
                for text, lines in kept.items()
            }
        models.append({**describe_checkpoint(name, model), "scores": scores, "adaptation": adapted})
        if mixture:
            token_scores.append(log_probabilities)
        is_english &= getattr(model.config, "treebank_preprocessing", None) is None
    print(f"{', '.join(options.models)}: {PROTOCOLS[options.protocol]}\n")
    rows, mixed = models, None
    if mixture:
        mixed, log_probabilities = mix(mixture, options.models, token_scores)
        mixed["scores"] = {
            text: score_tokens(log_probabilities[text], lines, tokenizers[0]) for text, lines in kept.items()
        }
        rows = [*models, {"model": f"mixture of {len(models)}", "scores": mixed["scores"], "adaptation": None}]
    print(report(rows, are_alike=mixture is None, is_english=is_english))
    if mixed:
        weights = ", ".join(f"{100 * part['weight']:.1f} % {part['model']}" for part in mixed["weights"])
        print(f"mixture: {weights}; by {mixed['tuning']['num_tokens']} tokens of {mixed['tuning']['text']}")
    if options.output:
        results = {
            "task": LANGUAGE_MODELLING,
            **(models[0] if len(models) == 1 else {"models": models}),
            **({"mixture": mixed} if mixed else {}),
            "protocol": {"name": options.protocol, "description": PROTOCOLS[options.protocol]},
            "batch_size": batch_size,
            **({"published": PUBLISHED} if is_english else {}),
        }
        write_results(options.output, results, "eval/evaluate_lm.py", arguments)


def read_texts(options: argparse.Namespace) -> dict[str, list[str]]:
    """The lines that are not blank of each text, by the name of the text."""
    texts = {path: read_sentences(path) for path in options.files or ()}
    for split, name in _splits(options).items():
        rows = read_string_column(options.dataset, options.config, split, options.column)
        texts[name] = [row for row in rows if row.strip()]
    for name, lines in texts.items():
        if not lines:
            raise ValueError(f"{name} is empty: there is no text to score")
    return texts


def check_same_tokens(
    name: str,
    tokenizer: PreTrainedTokenizerBase,
    first_name: str,
    first: PreTrainedTokenizerBase,
    texts: dict[str, list[str]],
) -> None:
    """Raises a `ValueError` where two models predict other tokens, so that their probabilities cannot be mixed."""
    same_vocabulary = tokenizer.get_vocab().keys() == first.get_vocab().keys()

    def tokens(of: PreTrainedTokenizerBase, lines: list[str]) -> list[str]:
        return of.convert_ids_to_tokens(encode_sentence_stream(of, lines).tolist())

    if not same_vocabulary or any(tokens(tokenizer, lines) != tokens(first, lines) for lines in texts.values()):
        raise ValueError(f"{name} predicts other tokens than {first_name}: models of one vocabulary can be mixed")


def score_streams(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: dict[str, list[str]], batch_size: int
) -> dict[str, torch.Tensor]:
    """The log probabilities of the tokens of each text, `[N]`."""
    return {
        name: stream_log_probabilities(model, encode_sentence_stream(tokenizer, lines), batch_size)
        for name, lines in texts.items()
    }


def _splits(options: argparse.Namespace) -> dict[str, str]:
    """Returns the name of each split's text in the results."""
    return {split: f"{options.dataset} {split}" for split in options.split} if options.dataset else {}


def score_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    lines: list[str],
    protocol: str,
    batch_size: int,
) -> dict[str, float]:
    """Scores a text by the metric `eval/perplexity`.

    Args:
        model: a language model of this package.
        tokenizer: its tokenizer.
        lines: the sentences.
        protocol: a key of `PROTOCOLS`.
        batch_size: see the script's option.

    Returns:
        `perplexity`, `log_likelihood`, `num_tokens`, `word_perplexity` (words between spaces and an `<eos>` a line),
        `bits_per_character` (line ends included), and `mean_perplexity` for sentences.
    """
    num_words, num_characters = text_units(lines, tokenizer)
    scores = load_perplexity("texts").compute(
        predictions=lines,
        protocol=protocol,
        model=model,
        tokenizer=tokenizer,
        batch_size=batch_size,
        num_words=num_words,
        num_characters=num_characters,
    )
    scores.pop("perplexities", None)
    return scores


if __name__ == "__main__":
    sys.exit(main())
