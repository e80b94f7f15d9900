"""`onlstm-hf score`: log probabilities and perplexities of sentences."""

import argparse
import json
import sys

from .options import add_choice
from .sentences import UnknownWords, add_sentence_options, in_batches, load_model, read_sentences

HELP = "compute log probabilities and perplexities of sentences"
DESCRIPTION = """\
Writes the natural log probability, the number of tokens and the perplexity of each sentence, and of all together.
Sentences are independent: the model reads each after one <eos>. The final <eos> is also predicted and counted.
"""
EXAMPLES = """\
examples:
  onlstm-hf score "the companies report a loss" "the companies reports a loss"
  onlstm-hf score --file sentences.txt --format jsonl

A line of jsonl also has the tokens of the sentence, including the final <eos>, the log probability of each token, and
in "unknown" whether it replaces an out-of-vocabulary word. The last line is {"total": ...}.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sentence_options(parser)
    add_choice(parser, "--format", ["table", "jsonl"], "a table, or one JSON object per line")


def run(options: argparse.Namespace) -> None:
    from ..parsing.sentences import read_text
    from ..scoring.sentences import score_sentences
    from ..scoring.stream import StreamScore

    sentences = read_sentences(options)
    model, tokenizer = load_model(options)
    is_table, unknown_words, totals = options.format == "table", UnknownWords(), []
    for batch in in_batches(sentences, options.batch_size):
        scores = score_sentences(model, tokenizer, batch, options.batch_size, progress=False)
        if is_table and not totals:
            print(f"{'log probability':>15} {'tokens':>9} {'perplexity':>12}  sentence")
        for text, score in zip(batch, scores, strict=True):
            totals.append(score.total())
            sentence = read_text(tokenizer, text)
            unknown_words.add(sentence.units, sentence.unknown)
            if is_table:
                _print_row(totals[-1], " ".join(text.split()))
            else:
                unknown = [token == tokenizer.unk_token for token in score.tokens]
                fields = {"text": text, **_score_fields(totals[-1]), **score._asdict(), "unknown": unknown}
                print(json.dumps(fields, ensure_ascii=False))
        sys.stdout.flush()
    unknown_words.report()
    total = StreamScore(sum(item.total_log_likelihood for item in totals), sum(item.num_tokens for item in totals))
    if is_table:
        _print_row(total, f"total ({len(totals)} sentence{'s' if len(totals) > 1 else ''})")
    else:
        print(json.dumps({"total": {"num_sentences": len(totals), **_score_fields(total)}}))


def _print_row(score, text: str) -> None:
    print(f"{score.total_log_likelihood:15.4f} {score.num_tokens:9d} {score.perplexity:12.2f}  {text}")


def _score_fields(score) -> dict[str, float]:
    return {
        "log_probability": score.total_log_likelihood,
        "num_tokens": score.num_tokens,
        "perplexity": score.perplexity,
    }
