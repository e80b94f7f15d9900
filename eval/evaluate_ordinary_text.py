"""Ordinary text: share of words outside the vocabulary of a model, and F1 of its trees.

    python eval/evaluate_ordinary_text.py MODEL --treebank wsj.mrg --output results.json
    python eval/evaluate_ordinary_text.py MODEL --treebank wsj.mrg --parse

NLTK's detokenizer (extra `nltk`) turns the sentences of the treebank into ordinary text. The first row splits the
text at white space, the second row with the model's tokenizer.

`--parse` also parses this text and scores the trees against those of the treebank. Sentences that the tokenizer splits
into another number of words than the treebank are left out. Currency signs are words here, as in the tokenizers.
"""

import argparse
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report.tables import format_table
from eval.report.tasks import UNKNOWN_WORDS
from eval.task import add_model_options, import_extra, load_model, run_task, task_parser
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.treebank import AS_WRITTEN, EMPTY_ELEMENT_TAGS, PUNCTUATION_TAGS, Preprocessing, read_treebank
from onlstm_hf.utils.programs import positive_integer

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}"}


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub")
    parser.add_argument("--treebank", required=True, metavar="FILE", help="Penn-style trees with punctuation")
    parser.add_argument(
        "--sentences", type=positive_integer, default=500, metavar="N", help="use the first N (default: %(default)s)"
    )
    parser.add_argument("--parse", action="store_true", help="also score the trees of the ordinary text")
    add_model_options(parser)
    return parser


def evaluate_ordinary_text(options: argparse.Namespace) -> dict:
    """Reads the sentences, prints the shares and returns the results."""
    texts = ordinary_sentences(options.treebank, options.sentences)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    vocabulary = tokenizer.get_vocab()
    words = [word for text in texts for word in text.split()]
    shares = {
        "words between spaces": sum(word not in vocabulary for word in words) / len(words),
        "words of the tokenizer": unknown_words(tokenizer, texts),
    }
    print(f"{len(texts)} sentences of {options.treebank} in ordinary writing, read by {options.model}\n")
    rows = [[reader, f"{100 * share:.1f} %"] for reader, share in shares.items()]
    print(format_table(["read as", "unknown words"], rows))
    results = {"task": UNKNOWN_WORDS, "model": options.model, "num_sentences": len(texts), "unknown_words": shares}
    return results | (score_trees(options, texts) if options.parse else {})


def score_trees(options: argparse.Namespace, texts: list[str]) -> dict:
    """Parses the text, prints the scores and returns them."""
    model, tokenizer = load_model(options.model, options)
    words_only = Preprocessing(dropped_tags=PUNCTUATION_TAGS | EMPTY_ELEMENT_TAGS)
    all_gold = read_treebank(options.treebank, words_only)[: len(texts)]
    scores = {}
    for punctuation in ("drop", "cue"):
        trees = zip(model.parse(texts, tokenizer, punctuation=punctuation), all_gold, strict=True)
        pairs = [(tree.distances, gold) for tree, gold in trees if len(tree.words) == len(gold.words)]
        for bias in ("right", "none"):
            induced = [tree_from_distances(distances, gold.words, bias) for distances, gold in pairs]
            f1 = score_parses(induced, [gold for _, gold in pairs], num_resamples=0).sentence_f1
            scores[f"{punctuation}, {bias}"] = f1
    print(f"\nsentence F1 of the {len(pairs)} sentences that the tokenizer splits like the treebank\n")
    print(
        format_table(["punctuation, branching bias", "F1"], [[name, f"{100 * f1:.1f}"] for name, f1 in scores.items()])
    )
    return {"num_scored_sentences": len(pairs), "sentence_f1": scores}


def ordinary_sentences(path: str, num_sentences: int) -> list[str]:
    """Returns the first sentences of a treebank as ordinary text."""
    detokenize = import_extra("nltk").tokenize.treebank.TreebankWordDetokenizer().detokenize
    trees = read_treebank(path, replace(AS_WRITTEN, dropped_tags=EMPTY_ELEMENT_TAGS))
    sentences = []
    for tree in trees[:num_sentences]:
        words = [BRACKETS.get(word, word.replace("\\/", "/").replace("\\*", "*")) for word in tree.words]
        text = detokenize(words).replace("``", '"').replace("''", '"')
        sentences.append(re.sub(r'(^|[\s(])" ', r'\1"', text))
    return sentences


main = partial(run_task, "eval/evaluate_ordinary_text.py", build_parser, evaluate_ordinary_text)

if __name__ == "__main__":
    sys.exit(main())
