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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.scoring.agreement import mean_agreement, tree_agreement
from onlstm_hf.text.word_alignment import encode_sentence, word_offsets, words_after_marks
from onlstm_hf.trees.averaging import TIES, average_trees
from onlstm_hf.trees.induced_tree import InducedTree
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
from training.grammar.sentences import EncodedSentences
from training.grammar.trees import parse_sentences, stored_trees
from training.language_models.text_batches import TextLines
from training.language_models.validation import distances_of_layers

AVERAGED = "averaged.jsonl.xz"
# Number of evenly spaced sentences on which the agreement is measured.
AGREEMENT_SENTENCES = 2000
GRAMMAR_BATCH_SIZE = 6000  # words


@dataclass(frozen=True)
class Member:
    """Trees of one model that are averaged. `layer` is `None` if all layers share their distances."""

    model: str
    model_type: str
    layer: int | None
    trees: list[InducedTree]
    weight: float


def average_text(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Parses the text with every model, averages the trees, and writes them."""
    options.output_dir.mkdir(parents=True, exist_ok=True)
    if options.only_ranks:
        for name, _ in split_weights(options.models):
            _, path = parsed_text(name, options)
            print(f"trees of {name} in {path}")
        return
    members = read_members(options)
    sentences = [tree.words for tree in members[0].trees]
    chosen = range(0, len(sentences), max(1, len(sentences) // AGREEMENT_SENTENCES))
    matrix = tree_agreement([[member.trees[index] for index in chosen] for member in members])
    weights = [member.weight for member in members]
    generator = np.random.default_rng(options.seed)
    trees_by_sentence = progress_bar(
        zip(*(member.trees for member in members), strict=True),
        total=len(sentences),
        description="averaging",
        unit="sentence",
    )
    averages = (
        average_trees(trees, weights, options.branching_bias, options.ties, generator) for trees in trees_by_sentence
    )
    description = {
        "averaged": [
            {"model": member.model, "model_type": member.model_type, "layer": member.layer, "weight": member.weight}
            for member in members
        ],
        "ties": options.ties,
        "seed": options.seed if options.ties == "random" else None,
        "text": fingerprint(TextLines(options.files)),
        "command": shlex.join(portable(["python", "training/average_trees.py", *arguments])),
    }
    path = options.output_dir / AVERAGED
    distances = [list(tree.distances) for tree in averages]
    write_tree_file(path, SentenceDistances(sentences, {None: distances}, None, description, options.branching_bias))
    for member, agreement in zip(members, mean_agreement(matrix), strict=True):
        layer = "" if member.layer is None else f", layer {member.layer + 1}"
        print(f"{100 * agreement:5.1f} mean agreement (F1) with the others: {member.model}{layer}")
    print(f"{len(sentences)} averaged trees in {path}")


def read_members(options: argparse.Namespace) -> list[Member]:
    """Returns each model with its trees."""
    weighted = split_weights(options.models)
    files = [name for name, _ in weighted if name.endswith(".xz")]
    models = [name for name, _ in weighted if name not in (*files, RIGHT_BRANCHING)]
    by_name: dict[str, SentenceDistances] = {}
    for name in models:
        by_name[name], _ = parsed_text(name, options)
        if by_name[name].sentences != by_name[models[0]].sentences:
            raise ValueError(f"{name} splits the text into other words than {models[0]} does")
    sentences = by_name[models[0]].sentences if models else words_of_lines(options)
    by_name |= {name: read_trees_of_text(name, sentences) for name in files}
    if RIGHT_BRANCHING in dict(weighted):
        by_name[RIGHT_BRANCHING] = right_branching(sentences, options, models)
    members = []
    for name, weight in progress_bar(weighted, description="building trees", unit="model"):
        stored = by_name[name]
        trees = stored.trees(branching_bias=options.branching_bias)
        model_type = stored.model.get("model_type", "unknown")
        members.append(Member(portable(name), model_type, stored.parse_layer, trees, weight))
    if len(members) < 2:
        raise ValueError("an average needs several models, but only one was given")
    return members


def lines_with_words(options: argparse.Namespace) -> list[str]:
    """Returns the non-blank lines of the text."""
    return [line for line in TextLines(options.files) if line.strip()]


def words_of_lines(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """Returns the words of each line, split by the tokenizer or, without one, at whitespace."""
    lines = lines_with_words(options)
    if options.tokenizer is None:
        return [tuple(line.split()) for line in lines]
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer, trust_remote_code=options.trust_remote_code)
    return [tuple(encode_sentence(tokenizer, line)[0]) for line in lines]


def parsed_text(name: str, options: argparse.Namespace) -> tuple[SentenceDistances, Path]:
    """Returns the trees of a checkpoint and their file in the output folder, which serves as a cache."""
    is_grammar = _is_grammar(name)
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


def right_branching(
    sentences: Sequence[tuple[str, ...]], options: argparse.Namespace, models: Sequence[str]
) -> SentenceDistances:
    """Returns right-branching trees, with the cue of punctuation if chosen."""
    rows = [[*range(len(words), 0, -1)] for words in sentences]
    stored = SentenceDistances(sentences, {None: rows}, None, {"model_type": RIGHT_BRANCHING}, "none")
    if options.punctuation != "cue":
        return stored
    name = options.tokenizer or next(iter(models), None)
    if name is None:
        raise ValueError("right-branching trees with the cue of punctuation need a tokenizer: give --tokenizer MODEL")
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=options.trust_remote_code)
    return with_cue(stored, lines_with_words(options), tokenizer)


def with_cue(stored: SentenceDistances, lines: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> SentenceDistances:
    """Raises the distances of words after punctuation marks, as `parse(..., punctuation="cue")` does."""
    marked = [words_after_marks(line, word_offsets(tokenizer, line)) for line in lines]
    by_layer = {layer: list(map(raise_at_marks, rows, marked)) for layer, rows in stored.by_layer.items()}
    return replace(stored, by_layer=by_layer)


def _is_grammar(name: str) -> bool:
    """Returns whether the name is a checkpoint folder of `train_grammar.py`."""
    config = Path(name) / "config.json"
    model_type = NeuralGrammar.config_class.model_type
    return config.is_file() and json.loads(config.read_text("utf-8")).get("model_type") == model_type


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("average_trees.py", lambda: average_text(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the script's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL[=WEIGHT]",
        help="checkpoint folder (also of a grammar), name on the Hub, file of trees, or right-branching; give several",
    )
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="text with one sentence per line")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="checkpoint that splits lines into words, if only files of trees are averaged (default: split at spaces)",
    )
    parser.add_argument(
        "--punctuation",
        choices=["drop", "cue"],
        default="drop",
        help="cue: marks in the text raise the distance of the next word; ignored for files of trees (%(default)s)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none"],
        default="right",
        help="rule that builds trees from distances, for the averaged models and the trained one (%(default)s)",
    )
    parser.add_argument(
        "--ties",
        choices=TIES,
        default="random",
        help="tie-breaking among equally good trees: a uniformly random one, or the most right- or left-branching one "
        "(%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choice (%(default)s)")
    parser.add_argument("--only-ranks", action="store_true", help="write the trees of each model without averaging")
    add_code_option(parser)
    add_implementation_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
