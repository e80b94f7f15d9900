"""Averages the trees of several models for a text, as training targets of another model. No gold tree is needed.

    python training/average_trees.py SEED1 SEED2 SEED3 --files train.txt --output-dir runs/averaged
    python training/average_trees.py SEED1 SEED2 runs/grammar/text.ranks.xz=2 --files train.txt --output-dir runs/all
    python training/average_trees.py SEED1 --files train.txt --output-dir runs/ranks --only-ranks --punctuation cue
    python training/average_trees.py SEED1 SEED2 right-branching=0.5 --files train.txt --output-dir runs/prior

Each sentence gets the binary tree with the best agreement with all models, found by exact search. Only trees that
distances can yield by the chosen rule are candidates. The output folder gets
    averaged.jsonl.xz   the averaged trees, for `train_lm.py --target_trees`
    HASH.ranks.xz       the trees of each model as ranks of its distances, without the words. HASH is the model's hash.
                        Later commands reuse the file. It can also be given in place of a model.
                        `--punctuation cue`, where marks raise the distance of the next word, writes HASH.cue.ranks.xz
Each model has weight 1, or WEIGHT if given as MODEL=WEIGHT. `right-branching` in place of a model stands for the
right-branching tree of each sentence, a prior for languages such as English. With `--punctuation cue` this tree is
split before marks first.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.scoring.agreement import mean_agreement, tree_agreement
from onlstm_hf.text.word_alignment import encode_sentence, word_offsets, words_after_marks
from onlstm_hf.trees.averaging import TIES, average_trees
from onlstm_hf.trees.punctuation import raise_at_marks
from onlstm_hf.trees.rank_files import SUFFIX, read_rank_file, read_trees_of_text, write_rank_file
from onlstm_hf.trees.tree_files import SentenceDistances, write_tree_file
from onlstm_hf.utils.checkpoints import checkpoint_hash, load_checkpoint
from onlstm_hf.utils.files import fingerprint
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import add_code_option, add_implementation_option, run_program, split_weights
from onlstm_hf.utils.results_file import portable
from training.distillation.target_trees import RIGHT_BRANCHING
from training.grammar.model import NeuralGrammar
from training.grammar.sentences import EncodedSentences, parse_sentences, stored_trees
from training.language_models.text_batches import TextLines
from training.language_models.validation import distances_of_layers

AVERAGED = "averaged.jsonl.xz"
# Number of evenly spaced sentences on which the agreement is measured.
AGREEMENT_SENTENCES = 2000
GRAMMAR_BATCH_SIZE = 6000  # words


def average_text(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Parses the text with every model, averages the trees, and writes them."""
    options.output_dir.mkdir(parents=True, exist_ok=True)
    weighted = split_weights(options.models)
    if options.only_ranks:
        for name, _ in weighted:
            print(f"trees of {name} in {parsed_text(name, options)[1]}")
        return
    if len(weighted) < 2:
        raise ValueError("an average needs several models, but only one was given")
    weights = [weight for _, weight in weighted]
    members = read_members([name for name, _ in weighted], options)
    trees_of_members = [
        stored.trees(branching_bias=options.branching_bias)
        for stored in progress_bar(members, description="building trees", unit="model")
    ]
    sentences = members[0].sentences
    chosen = range(0, len(sentences), max(1, len(sentences) // AGREEMENT_SENTENCES))
    matrix = tree_agreement([[trees[index] for index in chosen] for trees in trees_of_members])
    generator = np.random.default_rng(options.seed)
    trees_by_sentence = progress_bar(
        zip(*trees_of_members, strict=True), total=len(sentences), description="averaging", unit="sentence"
    )
    averages = (
        average_trees(trees, weights, options.branching_bias, options.ties, generator) for trees in trees_by_sentence
    )
    averaged = [
        {
            "model": portable(name),
            "model_type": stored.model.get("model_type", "unknown"),
            "layer": stored.parse_layer,  # `None` if all layers share their distances
            "weight": weight,
        }
        for (name, weight), stored in zip(weighted, members, strict=True)
    ]
    description = {
        "averaged": averaged,
        "ties": options.ties,
        "seed": options.seed if options.ties == "random" else None,
        "text": fingerprint(TextLines(options.files)),
        "command": shlex.join(portable(["python", "training/average_trees.py", *arguments])),
    }
    path = options.output_dir / AVERAGED
    distances = [list(tree.distances) for tree in averages]
    write_tree_file(path, SentenceDistances(sentences, {None: distances}, None, description, options.branching_bias))
    for member, agreement in zip(averaged, mean_agreement(matrix), strict=True):
        layer = "" if member["layer"] is None else f", layer {member['layer'] + 1}"
        print(f"{100 * agreement:5.1f} mean agreement (F1) with the others: {member['model']}{layer}")
    print(f"{len(sentences)} averaged trees in {path}")


def read_members(names: Sequence[str], options: argparse.Namespace) -> list[SentenceDistances]:
    """Returns the distances of each model, file of trees, or right-branching tree."""
    files = [name for name in names if name.endswith(".xz")]
    models = [name for name in names if name not in (*files, RIGHT_BRANCHING)]
    by_name = {name: parsed_text(name, options)[0] for name in models}
    lines, tokenizer = lines_with_words(options), None
    if reader := options.tokenizer or next(iter(models), None):
        tokenizer = AutoTokenizer.from_pretrained(reader, trust_remote_code=options.trust_remote_code)
    if models:
        sentences = by_name[models[0]].sentences
    elif tokenizer is not None:
        sentences = [tuple(encode_sentence(tokenizer, line)[0]) for line in lines]
    else:
        sentences = [tuple(line.split()) for line in lines]
    for name in models:
        if by_name[name].sentences != sentences:
            raise ValueError(f"{name} splits the text into other words than {models[0]} does")
    by_name |= {name: read_trees_of_text(name, sentences) for name in files}
    if RIGHT_BRANCHING in names:
        rows = [[*range(len(words), 0, -1)] for words in sentences]
        stored = SentenceDistances(sentences, {None: rows}, None, {"model_type": RIGHT_BRANCHING}, "none")
        if options.punctuation == "cue":
            if tokenizer is None:
                raise ValueError("right-branching trees with the cue need a tokenizer: give --tokenizer MODEL")
            stored = with_cue(stored, lines, tokenizer)
        by_name[RIGHT_BRANCHING] = stored
    return [by_name[name] for name in names]


def lines_with_words(options: argparse.Namespace) -> list[str]:
    return [line for line in TextLines(options.files) if line.strip()]


def parsed_text(name: str, options: argparse.Namespace) -> tuple[SentenceDistances, Path]:
    """Returns the trees of a checkpoint and their file in the output folder, which serves as a cache."""
    config = Path(name) / "config.json"
    is_grammar = config.is_file() and json.loads(config.read_text("utf-8")).get("model_type") == "neural_grammar"
    if is_grammar:
        model, tokenizer = load_checkpoint(name, auto_class=NeuralGrammar)
    else:
        model, tokenizer = load_checkpoint(
            name, trust_remote_code=options.trust_remote_code, implementation=options.implementation
        )
    lines = lines_with_words(options)
    cue = ".cue" if options.punctuation == "cue" else ""
    path = options.output_dir / f"{checkpoint_hash(model, tokenizer)[:16]}{cue}{SUFFIX}"
    if path.exists():
        sentences = [encode_sentence(tokenizer, line)[0] for line in lines]
        with suppress(ValueError):  # a file of another text or an earlier version is overwritten
            return read_rank_file(path, sentences), path
    print(f"{name} parses {len(lines)} sentences")
    if is_grammar:
        text = EncodedSentences.from_lines(lines, tokenizer)
        trees = parse_sentences(model, text, GRAMMAR_BATCH_SIZE, progress=None)
        stored = stored_trees(trees, model_type=model.config.model_type, num_parameters=model.num_parameters())
    else:
        stored = distances_of_layers(model, tokenizer, lines, [model.parse_layer])
    if options.punctuation == "cue":
        stored = with_cue(stored, lines, tokenizer)
    write_rank_file(path, stored)
    return stored, path


def with_cue(stored: SentenceDistances, lines: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> SentenceDistances:
    """Raises the distances of words after punctuation marks, as `parse(..., punctuation="cue")` does."""
    marked = [words_after_marks(line, word_offsets(tokenizer, line)) for line in lines]
    by_layer = {layer: list(map(raise_at_marks, rows, marked)) for layer, rows in stored.by_layer.items()}
    return replace(stored, by_layer=by_layer)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("average_trees.py", lambda: average_text(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = "checkpoint folder (also of a grammar), Hub name, file of trees, or right-branching; give several"
    parser.add_argument("models", nargs="+", metavar="MODEL[=WEIGHT]", help=models)
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="text with one sentence per line")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="FOLDER")
    tokenizer = "checkpoint that splits lines into words, if all are files of trees (default: split at spaces)"
    parser.add_argument("--tokenizer", metavar="MODEL", help=tokenizer)
    punctuation = "cue: marks in the text raise the distance of the next word, not for files of trees (%(default)s)"
    parser.add_argument("--punctuation", choices=["drop", "cue"], default="drop", help=punctuation)
    rule = "rule that builds trees from distances, for the averaged models and the trained one (%(default)s)"
    parser.add_argument("--branching-bias", choices=["right", "none"], default="right", help=rule)
    ties = "choice among equally good trees: a random one, or the most right- or left-branching one (%(default)s)"
    parser.add_argument("--ties", choices=TIES, default="random", help=ties)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice (%(default)s)")
    parser.add_argument("--only-ranks", action="store_true", help="write the trees of each model without averaging")
    add_code_option(parser)
    add_implementation_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
