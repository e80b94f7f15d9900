"""Language modelling: perplexity of checkpoints on text.

    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --output results.json
    python eval/evaluate_lm.py MODEL --dataset NAME_OR_FOLDER --split validation test --column text
    python eval/evaluate_lm.py MODEL --files valid.txt test.txt --adapt cache --tune valid.txt
    python eval/evaluate_lm.py MODEL1 MODEL2 --files valid.txt test.txt --mix --tune valid.txt

With several checkpoints, such as several seeds, the table also has mean and standard deviation.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.adaptation.options import adapt, add_adaptation_options, read_candidates
from eval.data.texts import read_sentences, read_string_column
from eval.report.perplexities import report, score_tokens
from eval.report.tasks import LANGUAGE_MODELLING
from eval.task import add_model_options, describe_checkpoint, load_model, run_task, task_parser
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_probabilities
from onlstm_hf.text.word_alignment import word_offsets
from onlstm_hf.utils.programs import positive_integer

PROTOCOL = "one stream, the state carried from line to line; every token counts, the <eos> of each line included"
# EM stops if a step raises the mean log likelihood of a token by less than this, in nats.
MIN_GAIN = 1e-10
MAX_STEPS = 10_000


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
    add_model_options(parser)
    add_adaptation_options(parser)
    return parser


def evaluate_lm(options: argparse.Namespace) -> dict:
    """Scores every text with every model, prints the table and returns the results."""
    texts = read_texts(options)
    candidates = read_candidates(options, texts)
    models, vocabularies, token_scores = [], [], []
    for name in options.models:
        model, tokenizer = load_model(name, options)
        # As in training, lines without any word for the tokenizer are skipped.
        kept = {text: [line for line in lines if word_offsets(tokenizer, line)] for text, lines in texts.items()}
        streams = {text: encode_sentence_stream(tokenizer, lines) for text, lines in kept.items()}
        if options.mix:
            tokens = [tokenizer.convert_ids_to_tokens(stream.tolist()) for stream in streams.values()]
            vocabularies.append((set(tokenizer.get_vocab()), tokens))
            if vocabularies[-1] != vocabularies[0]:
                raise ValueError(f"{name} and {options.models[0]} predict other tokens: mix models of one vocabulary")
        log_probabilities = {
            text: stream_log_probabilities(model, stream, options.batch_size) for text, stream in streams.items()
        }
        scores = score_tokens(log_probabilities, kept, tokenizer)
        adapted = None
        if candidates:
            adapted, log_probabilities = adapt(options, candidates, model, tokenizer, streams)
            adapted["scores"] = score_tokens(log_probabilities, kept, tokenizer)
        models.append({**describe_checkpoint(name, model), "scores": scores, "adaptation": adapted})
        token_scores.append(log_probabilities)
    print(f"{', '.join(options.models)}: {PROTOCOL}\n")
    rows, mixture = models, None
    if options.mix:
        mixture, log_probabilities = mix(options, token_scores)
        mixture["scores"] = score_tokens(log_probabilities, kept, tokenizer)
        rows = [*models, {"model": f"mixture of {len(models)}", "scores": mixture["scores"], "adaptation": None}]
    print(report(rows, texts, are_alike=not options.mix))
    if mixture:
        weights = ", ".join(f"{100 * part['weight']:.1f} % {part['model']}" for part in mixture["weights"])
        print(f"mixture: {weights}; by {mixture['tuning']['num_tokens']} tokens of {options.tune}")
    return {
        "task": LANGUAGE_MODELLING,
        **(models[0] if len(models) == 1 else {"models": models}),
        **({"mixture": mixture} if mixture else {}),
        "protocol": {"name": "stream", "description": PROTOCOL},
        "batch_size": options.batch_size,
    }


def mix(options: argparse.Namespace, token_scores: list[dict[str, torch.Tensor]]) -> tuple[dict, dict]:
    """Returns weights and tuning of the mixture for the results file, and its log probabilities by text."""
    tuning = [by_text[options.tune][: options.tune_tokens] for by_text in token_scores]
    weights = mixture_weights(torch.stack(tuning))
    pairs = zip(options.models, weights.tolist(), strict=True)
    mixture = {
        "weights": [{"model": name, "weight": weight} for name, weight in pairs],
        "tuning": {"text": options.tune, "num_tokens": len(tuning[0])},
    }
    return mixture, {
        text: mixed_log_probabilities(torch.stack([by_text[text] for by_text in token_scores]), weights)
        for text in token_scores[0]
    }


def mixture_weights(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Returns the weights `[M]` of models, which sum to 1, that maximise the likelihood of tokens, `[M, N]`.

    Expectation maximisation (Jelinek & Mercer 1980): a model's new weight is the mean of its posterior probabilities
    over the tokens. The log likelihood is concave in the weights and grows with every step.
    """
    weights = torch.full((len(log_probabilities),), 1 / len(log_probabilities), dtype=torch.float64)
    previous = -torch.inf
    for _ in range(MAX_STEPS):
        joint = log_probabilities.double() + weights.log().unsqueeze(1)
        mixed = joint.logsumexp(0)
        if mixed.mean() - previous < MIN_GAIN:
            break
        previous = mixed.mean()
        weights = (joint - mixed).exp().mean(1)
    return weights


def mixed_log_probabilities(log_probabilities: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mixes the log probabilities `[M, N]` of tokens into those of the mixture, `[N]`."""
    return (log_probabilities.double() + weights.log().unsqueeze(1)).logsumexp(0)


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


main = partial(run_task, "eval/evaluate_lm.py", build_parser, evaluate_lm)

if __name__ == "__main__":
    sys.exit(main())
