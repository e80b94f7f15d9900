"""Averages the trees that several models find in a text, for another model to learn: no gold tree is needed.

    python training/average_trees.py SEED1 SEED2 SEED3 --files train.txt --output-dir runs/averaged

Each sentence gets the binary tree that agrees best with those of all models and layers, found exactly: of the trees
that the rule of splitting by distances can make, because distances will have to make it. The folder gets
    averaged.jsonl.xz   the averaged trees, which `train_lm.py --target_trees` draws a model to
    HASH.jsonl.xz       the distances of every layer of each model (by the hash of its weights), from which the same
                        command goes on after an interruption, and another one with further models
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.scoring.agreement import mean_agreement, tree_agreement
from onlstm_hf.trees.averaging import average_trees
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file, write_tree_file
from onlstm_hf.utils.checkpoints import checkpoint_hash, load_checkpoint
from onlstm_hf.utils.programs import add_code_option, run_program
from onlstm_hf.utils.results_file import portable
from training.language_models.text_batches import TextLines
from training.language_models.validation import distances_of_all_layers
from training.loop.task import fingerprint

AVERAGED = "averaged.jsonl.xz"
# Agreement is measured on so many sentences, spread evenly over the text.
AGREEMENT_SENTENCES = 2000


@dataclass(frozen=True)
class Member:
    """One layer of one model, whose trees are averaged with those of the others.

    Attributes:
        model: as it was named.
        model_type: its type.
        layer: counted from 0; `None` for a model with the same distances for all layers.
        distances: of the words of each sentence.
    """

    model: str
    model_type: str
    layer: int | None
    distances: list[list[float]]


def average_text(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Parses the text with every model, averages the trees, and writes the file."""
    text = fingerprint(TextLines(options.files))
    options.output_dir.mkdir(parents=True, exist_ok=True)
    sentences, members = read_members(options, text)

    def trees_of(index: int) -> list[InducedTree]:
        bias = options.branching_bias
        return [tree_from_distances(member.distances[index], sentences[index], bias) for member in members]

    chosen = range(0, len(sentences), max(1, len(sentences) // AGREEMENT_SENTENCES))
    matrix = tree_agreement(list(zip(*map(trees_of, chosen), strict=True)))
    agreements = mean_agreement(matrix, np.ones_like(matrix, dtype=bool)).tolist()
    weights = agreements if options.by_agreement else [1] * len(members)
    averages = (average_trees(trees_of(index), weights, options.branching_bias) for index in range(len(sentences)))
    known = {
        "averaged": [
            {"model": member.model, "model_type": member.model_type, "layer": member.layer, "weight": weight}
            for member, weight in zip(members, weights, strict=True)
        ],
        "branching_bias": options.branching_bias,
        "text": text,
        "command": shlex.join(portable(["python", "training/average_trees.py", *arguments])),
    }
    path = options.output_dir / AVERAGED
    write_tree_file(
        path, SentenceDistances(sentences, {None: [list(tree.distances) for tree in averages]}, None, known)
    )
    for member, agreement in zip(members, agreements, strict=True):
        layer = "" if member.layer is None else f", layer {member.layer + 1}"
        print(f"{100 * agreement:5.1f} mean agreement (F1) with the others: {member.model}{layer}")
    print(f"{len(sentences)} averaged trees in {path}")


def read_members(options: argparse.Namespace, text: str) -> tuple[list[tuple[str, ...]], list[Member]]:
    """The sentences, and what each layer that is asked for makes of them.

    Raises:
        ValueError: if the models split the text into other words, lack the layer, or are one layer in all.
    """
    lines = [line for line in TextLines(options.files) if line.strip()]
    sentences, members = None, []
    for name in options.models:
        stored = parsed_text(name, lines, text, options)
        if sentences is not None and stored.sentences != sentences:
            raise ValueError(f"{name} splits the text into other words than {options.models[0]}")
        sentences = stored.sentences
        layers = {"all": list(stored.by_layer), "own": [stored.parse_layer]}.get(options.layer, [options.layer])
        for layer in layers:
            if layer not in stored.by_layer:
                raise ValueError(f"{name} has no layer {layer}; layers: {', '.join(map(str, stored.by_layer))}")
            members.append(Member(portable(name), stored.model["model_type"], layer, stored.by_layer[layer]))
    if len(members) < 2:
        raise ValueError("one layer of one model is no ensemble: give several models, or --layer all")
    return sentences, members


def parsed_text(name: str, lines: list[str], text: str, options: argparse.Namespace) -> SentenceDistances:
    """The distances of all layers of a checkpoint: from its file in the folder, or computed and then stored there."""
    model, tokenizer = load_checkpoint(name, trust_remote_code=options.trust_remote_code)
    path = options.output_dir / f"{checkpoint_hash(model, tokenizer)[:16]}.jsonl.xz"
    if path.exists():
        stored = read_tree_file(path)
        if stored.model.get("text") == text:
            return stored
    print(f"{name} reads {len(lines)} sentences")
    stored = distances_of_all_layers(model, tokenizer, lines, text=text)
    write_tree_file(path, stored)
    return stored


def layer_number(text: str) -> int | str:
    """An argument that is a layer, counted from 0, all of them, or each model's own."""
    return text if text in ("all", "own") else int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="checkpoint folder or name on the Hub; several")
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="the text, one sentence a line")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--layer",
        type=layer_number,
        default="own",
        metavar="N|all|own",
        help="layer that makes the trees, counted from 0; own: the one that each model's parse() takes (%(default)s)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none"],
        default="right",
        help="the rule by which distances become trees, for the models and for the one that learns (%(default)s)",
    )
    parser.add_argument(
        "--by-agreement",
        action="store_true",
        help="let each model and layer count by its mean agreement with all others, instead of all the same",
    )
    add_code_option(parser)
    options = parser.parse_args(arguments)
    return run_program("average_trees.py", lambda: average_text(options, arguments))


if __name__ == "__main__":
    sys.exit(main())
