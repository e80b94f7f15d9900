"""Unsupervised constituency parsing: the trees of a checkpoint beside the gold trees and the baselines.

    python eval/evaluate_parsing.py MODEL --treebank wsj.mrg --output results.json
    python eval/evaluate_parsing.py MODEL --treebank DATASET --split test --column tree --layer 1
    python eval/evaluate_parsing.py MODEL --treebank wsj.mrg --layer 1 --ensemble SECOND_MODEL THIRD_MODEL

Words and scores are those of the PRPN and ON-LSTM papers (onlstm_hf/treebank.py and onlstm_hf/parsing_scores.py).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from reporting import check_writable, describe_run, format_table, load_column
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.checkpoints import load_checkpoint
from onlstm_hf.command_line import positive_integer, run_program
from onlstm_hf.files import write_json, written_file
from onlstm_hf.parsing_scores import ParsingScores, score_baselines, score_parses
from onlstm_hf.tree_averaging import average_trees
from onlstm_hf.treebank import GoldTree, gold_trees_from_brackets, read_treebank
from onlstm_hf.trees import InducedTree

LABELS = ("ADJP", "NP", "PP", "INTJ")
PUBLISHED_MAX_WORDS = 10
PUBLISHED = [
    {"model": "ON-LSTM, layer 2", "wsj": {"mean": 47.7, "max": 49.4}, "wsj10": {"mean": 65.1, "max": 66.8}},
    {"model": "PRPN-LM", "wsj": {"mean": 37.4, "max": 38.1}, "wsj10": {"mean": 70.5, "max": 71.3}},
    {"model": "PRPN-UP", "wsj": {"mean": 26.0, "max": 32.8}, "wsj10": {"mean": 62.2, "max": 70.3}},
]
PUBLISHED_NOTE = (
    "published: sentence F1, mean / maximum over 5 seeds, on the WSJ test set (section 23) and on WSJ10; "
    "not the sentences scored here unless these are the same"
)
PROTOCOL = (
    "words only (no punctuation, currency signs, empty elements), lower case, N for digits; every sentence after one "
    "<eos>; sentence F1 without the whole-sentence span, averaged over sentences"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = build_parser().parse_args(arguments)
    return run_program("evaluate_parsing.py", lambda: evaluate_parsing(options, arguments))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub")
    parser.add_argument(
        "--treebank",
        required=True,
        metavar="PATH",
        help="Penn-style bracketed trees: a file, or a folder with .mrg files; otherwise the folder or Hub name of a "
        "Hugging Face dataset",
    )
    parser.add_argument("--config", metavar="NAME", help="configuration of the dataset")
    parser.add_argument("--split", default="test", help="split of the dataset (%(default)s)")
    parser.add_argument("--column", default="tree", help="column of the dataset that has the trees (%(default)s)")
    parser.add_argument(
        "--layer",
        type=layer_number,
        default="all",
        metavar="N|all",
        help="layer that makes the trees, counted from 0: 1 is the papers' layer 2 (%(default)s)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none", "ranges"],
        default="right",
        help="the papers' rule, one without that bias, or that of a PRPN's hard gates (%(default)s)",
    )
    parser.add_argument(
        "--ensemble",
        nargs="*",
        metavar="MODEL",
        help="also average the trees of MODEL and of these further checkpoints, of each layer asked for: the binary "
        "tree that agrees best with all of them; without a name the layers of MODEL alone",
    )
    parser.add_argument(
        "--max-words",
        type=positive_integer,
        default=PUBLISHED_MAX_WORDS,
        metavar="N",
        help="sentences of at most so many words are scored by themselves, too (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random baselines and intervals (%(default)s)")
    parser.add_argument(
        "--note", metavar="TEXT", help="a remark to print and store, for instance on the training text"
    )
    parser.add_argument("--output", metavar="FILE", help="results as JSON; an older file is replaced")
    parser.add_argument("--trees", metavar="FILE", help="gold and induced trees as JSON lines; replaced as well")
    return parser


def layer_number(text: str) -> int | str:
    """An argument that is a layer, counted from 0, or all of them."""
    return text if text == "all" else int(text)


def evaluate_parsing(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Parses the treebank with every layer asked for, prints the table and writes the results."""
    check_writable(options.output, options.trees)
    gold = read_gold_trees(options)
    model, tokenizer = load_checkpoint(options.model)
    induced: dict[int | str, list[InducedTree]] = parse_layers(model, tokenizer, gold, options)
    if options.ensemble is not None:
        members = list(induced.values())
        for name in options.ensemble:
            members += parse_layers(*load_checkpoint(name), gold, options).values()
        if len(members) == 1:
            raise ValueError("one layer of one model is no ensemble: give --layer all, or --ensemble MODEL ...")
        induced[f"ensemble of {len(members)}"] = [average_trees(trees) for trees in zip(*members, strict=True)]
    scores = {"all": score_layers_and_baselines(None, induced, gold, options.seed)}
    if any(len(tree.words) <= options.max_words for tree in gold):
        scores["short"] = score_layers_and_baselines(options.max_words, induced, gold, options.seed)

    print(f"{options.model} on {options.treebank}: {len(gold)} sentences; {PROTOCOL}\n")
    print(report(scores, options.max_words))
    print(f"\n{PUBLISHED_NOTE}" + (f"\nnote: {options.note}" if options.note else ""))
    if options.trees:
        write_trees(options.trees, induced, gold)
    if options.output:
        results = {
            "task": "unsupervised constituency parsing",
            "model": options.model,
            "parse_layer": getattr(model.config, "parse_layer", None),
            "ensemble": options.ensemble,
            "treebank": options.treebank,
            "protocol": {"description": PROTOCOL, "branching_bias": options.branching_bias, "seed": options.seed},
            "note": options.note,
            "max_words": options.max_words,
            "scores": {part: {name: row.to_dict() for name, row in rows.items()} for part, rows in scores.items()},
            "published": {"description": PUBLISHED_NOTE, "rows": PUBLISHED},
            **describe_run("evaluate_parsing.py", arguments),
        }
        write_json(options.output, results)


def parse_layers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, gold: list[GoldTree], options: argparse.Namespace
) -> dict[int | str, list[InducedTree]]:
    """The trees that each layer asked for gives the sentences; "induced trees" of a model without such layers."""
    chosen: dict[int | str, dict] = {"induced trees": {}}
    if options.layer != "all":
        chosen = {options.layer: {"layer": options.layer}}
    elif hasattr(model.config, "parse_layer"):
        chosen = {layer: {"layer": layer} for layer in range(model.config.num_hidden_layers)}
    sentences = [list(tree.words) for tree in gold]
    return {
        source: model.parse(sentences, tokenizer, branching_bias=options.branching_bias, **layer)
        for source, layer in chosen.items()
    }


def read_gold_trees(options: argparse.Namespace) -> list[GoldTree]:
    """The gold trees of files in Penn style or of a dataset's column, words by the papers' protocol."""
    path = Path(options.treebank)
    is_penn_style = path.is_file() or path.suffix.lower() == ".mrg" or any(path.rglob("*.[mM][rR][gG]"))
    if is_penn_style:
        return read_treebank(path)
    return gold_trees_from_brackets(load_column(options.treebank, options.config, options.split, options.column))


def score_layers_and_baselines(
    max_words: int | None, induced: dict[int | str, list[InducedTree]], gold: list[GoldTree], seed: int
) -> dict[str, ParsingScores]:
    """Scores of every layer, ensemble and baseline, by name, on the sentences of at most `max_words` words."""
    chosen = [index for index, tree in enumerate(gold) if max_words is None or len(tree.words) <= max_words]
    chosen_gold = [gold[index] for index in chosen]
    scores = {
        row_name(source): score_parses([trees[i] for i in chosen], chosen_gold, seed=seed)
        for source, trees in induced.items()
    }
    return scores | score_baselines(chosen_gold, seed=seed)


def row_name(source: int | str) -> str:
    """What a layer, counted from 0, or an ensemble is called in the table."""
    return source if isinstance(source, str) else f"layer {source + 1} (--layer {source})"


def report(scores: dict[str, dict[str, ParsingScores]], max_words: int) -> str:
    """The table, in per cent: sentence and corpus F1, depth, recall by label, F1 of short sentences."""
    short = scores.get("short", {})
    rows = []
    for name, row in scores["all"].items():
        recalls = [row.label_recall.get(label) for label in LABELS]
        rows.append(
            [
                name,
                _per_cent(row.sentence_f1),
                _per_cent(row.corpus_f1),
                _per_cent(short[name].sentence_f1) if short else "-",
                f"{row.average_depth:.1f}",
                *(_per_cent(recall.recall) if recall else "-" for recall in recalls),
            ]
        )
    published = [
        [
            f"{row['model']} (published)",
            _mean_and_max(row["wsj"]),
            "",
            _mean_and_max(row["wsj10"]) if max_words == PUBLISHED_MAX_WORDS else "",
            *[""] * (1 + len(LABELS)),
        ]
        for row in PUBLISHED
    ]
    header = ["trees", "sentence F1", "corpus F1", f"F1, <= {max_words} words", "depth", *LABELS]
    return format_table(header, [*rows, [], *published])


def _per_cent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _mean_and_max(figures: dict[str, float]) -> str:
    return f"{figures['mean']:.1f} / {figures['max']:.1f}"


def write_trees(path: str, induced: dict[int | str, list[InducedTree]], gold: list[GoldTree]) -> None:
    """Writes one JSON object a sentence: the gold tree, and the tree of each layer, counted from 0, and ensemble."""
    with written_file(path) as file:
        for index, gold_tree in enumerate(gold):
            brackets = {str(source): trees[index].to_bracket() for source, trees in induced.items()}
            file.write(json.dumps({"gold": gold_tree.to_bracket(), "induced": brackets}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
