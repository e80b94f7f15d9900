"""Unsupervised constituency parsing: scores of the trees of checkpoints and of baselines against gold trees.

    python eval/evaluate_parsing.py MODEL --treebank wsj.mrg --output results.json
    python eval/evaluate_parsing.py MODEL --treebank DATASET --split test --column tree --layer 1
    python eval/evaluate_parsing.py --trees-from *.trees.jsonl.xz --treebank wsj.mrg --agreement --ensemble
    python eval/evaluate_parsing.py MODEL --treebank trees.mrg --preset universal

By default, words and scores follow the PRPN and ON-LSTM papers (onlstm_hf/trees/treebank.py and
onlstm_hf/scoring/parsing_scores.py). Trees come from checkpoints, or from tree files of training runs
(onlstm_hf/trees/tree_files.py). With several checkpoints, such as several seeds, the table has mean, standard
deviation, minimum and maximum.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.treebanks import Treebank, add_treebank_options
from eval.report.agreement import agreement_summary, agreement_table
from eval.report.by_task.parsing import (
    INTERVAL_NOTE,
    MAX_WORDS,
    PUBLISHED_NOTE,
    group_scores,
    group_table,
    parsing_table,
    source_name,
    summarize,
)
from eval.report.tables import FORMATS, format_table, write_table
from eval.report.tasks import PARSING
from eval.task import add_model_options, describe_checkpoint, load_model, run_task, task_parser
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.scoring.parsing_scores import ParsingScores, score_baselines, score_parses
from onlstm_hf.trees.averaging import TIES, average_trees
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from onlstm_hf.trees.treebank import GoldTree
from onlstm_hf.utils.files import check_writable, written_file
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import split_weights
from training.language_models.validation import distances_of_layers

PROTOCOL = "every sentence after one <eos>; sentence F1 without the whole-sentence span, averaged over sentences"
# Trees of all sentences by source: a layer, or the model if it has only one tree per sentence.
Trees = dict[str, list[InducedTree]]


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="checkpoint folders or Hub names, or MODEL=WEIGHT")
    parser.add_argument(
        "--trees-from", nargs="+", default=[], metavar="FILE", help="trees.jsonl.xz of training runs, or FILE=WEIGHT"
    )
    add_treebank_options(parser)
    parser.add_argument("--by-file", action="store_true", help="also print a table by file of the treebank")
    parser.add_argument("--by-length", action="store_true", help="also print a table by length, in steps of ten words")
    parser.add_argument(
        "--layer",
        type=lambda text: text if text in ("all", "own") else int(text),
        default="all",
        metavar="N|all|own",
        help="layer of the trees, counted from 0; own: the default layer of the model's parse() (%(default)s)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none", "ranges"],
        default="right",
        help="right: the papers' rule; none: without its bias; ranges: hard gates of a PRPN (%(default)s)",
    )
    parser.add_argument(
        "--ensemble",
        action="store_true",
        help="also average the trees of all models and layers, weighted by the WEIGHT of each model (1)",
    )
    parser.add_argument(
        "--ties",
        nargs="+",
        choices=TIES,
        default=["random", "right"],
        help="tie-breaking among equally good average trees, one row each (random right)",
    )
    parser.add_argument(
        "--agreement", action="store_true", help="also print the agreement of each model and layer with all others"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of random baselines, ties and intervals (%(default)s)"
    )
    parser.add_argument(
        "--sentences-read", choices=["yes", "no"], help="store whether the training text contains these sentences"
    )
    parser.add_argument("--note", metavar="TEXT", help="a remark to print and store")
    add_model_options(parser)
    parser.add_argument("--trees", metavar="FILE", help="write gold and induced trees as JSON lines")
    parser.add_argument("--table", metavar="FILE", help="write the table as .md, .tex, .csv or .txt")
    return parser


def evaluate_parsing(options: argparse.Namespace) -> dict:
    """Parses the treebank with all requested models and layers, prints tables, and returns the results."""
    check_writable(options.trees)
    check_writable(options.table, endings=FORMATS)
    if not options.models + options.trees_from:
        raise ValueError("give checkpoints, or tree files with --trees-from")
    checkpoints, tree_files = map(split_weights, (options.models, options.trees_from))
    names, weights = zip(*checkpoints, *tree_files, strict=True)
    is_weighted = any(weight != 1 for weight in weights)
    if is_weighted and not options.ensemble:
        raise ValueError("weights of models need --ensemble")
    treebank = Treebank(options)
    if options.by_file and not treebank.by_file:
        raise ValueError(f"--by-file needs files of trees; {treebank.name} is a dataset")
    models, parses = [], []
    for name, _ in checkpoints:
        model, tokenizer = load_model(name, options)
        gold = treebank.read_for(name, model.config.treebank_preprocessing)
        layers = None if options.layer == "all" else [chosen_layer(options, model.parse_layer)]
        read = distances_of_layers(model, tokenizer, [list(tree.words) for tree in gold], layers)
        parses.append(trees_of_layers(read, options))
        fields = {"parse_layer": model.parse_layer, "unknown_words": read.model["unknown_words"]}
        models.append(describe_checkpoint(name, model) | fields)
    for name, _ in tree_files:
        stored = read_tree_file(name)
        gold = treebank.read_for(name, stored.model.get("treebank_preprocessing"))
        if stored.sentences != [tree.words for tree in gold]:
            raise ValueError(f"{name} has other sentences than {treebank.name}, or other words in them")
        parses.append(trees_of_layers(stored, options))
        fields = {key: stored.model.get(key) for key in ("num_parameters", "seed", "unknown_words")}
        models.append({"model": name, **fields, "parse_layer": stored.parse_layer})
    gold = treebank.trees
    members = [trees for sources in parses for trees in sources.values()]
    if (options.ensemble or options.agreement) and len(members) == 1:
        raise ValueError("an ensemble or agreement needs several parsers: give --layer all, or several models")
    agreement = tree_agreement(members) if options.agreement else None
    averages: Trees = {}
    if options.ensemble:
        member_weights = [weight for weight, sources in zip(weights, parses, strict=True) for _ in sources]
        averages = average_members(members, member_weights if is_weighted else None, options)

    lengths = np.array([len(tree.words) for tree in gold])
    parts = {"all": np.arange(len(gold))}
    if len(short := np.flatnonzero(lengths <= MAX_WORDS)):
        parts["short"] = short
    scored = {part: score(gold, parses, averages, indices, options.seed) for part, indices in parts.items()}
    summaries = {
        part: {source: summarize(of_models, options.seed) for source, of_models in group_by_source(scores).items()}
        for part, scores in scored.items()
    }
    for index, model in enumerate(models):
        model["scores"] = {part: _as_dictionaries(scores[index]) for part, scores in scored.items()}
    groups = {"by_file": treebank.by_file} if options.by_file else {}
    groups |= {"by_length": groups_by_length(lengths)} if options.by_length else {}
    by_group = {kind: group_scores(group_by_source(scored["all"]), parts, lengths) for kind, parts in groups.items()}
    if options.agreement:
        parsers = [
            {"model": model["model"], "trees": source, "sentence_f1": scores["sentence_f1"]}
            for model in models
            for source, scores in model["scores"]["all"].items()
        ]
        agreement = agreement_summary(parsers, agreement)

    is_english = treebank.is_read_as_in_the_papers  # the published figures are for this preprocessing
    header, rows = parsing_table(summaries, has_published=is_english)
    protocol = f"{treebank.describe()}; {PROTOCOL}"
    printed = [f"{', '.join(names)} on {treebank.name}: {len(gold)} sentences; {protocol}"]
    if treebank.num_left_out:
        printed.append(f"{treebank.num_left_out} sentences without a word are left out")
    printed += [format_table(header, rows), INTERVAL_NOTE]
    printed += [format_table(*group_table(kind, groups)) for kind, groups in by_group.items()]
    shares = ["?" if model["unknown_words"] is None else f"{100 * model['unknown_words']:.1f} %" for model in models]
    printed.append(f"unknown words{', by model' if len(models) > 1 else ''}: {', '.join(shares)}")
    if agreement:
        printed.append(format_table(*agreement_table(agreement)))
    if is_english:
        printed.append(PUBLISHED_NOTE)
    if options.sentences_read:
        printed.append(f"sentences read in training: {options.sentences_read}")
    if options.note:
        printed.append(f"note: {options.note}")
    print("\n\n".join(printed))
    if options.table:
        write_table(options.table, header, rows)
    if options.trees:
        write_trees(options.trees, gold, dict(zip(names, parses, strict=True)), averages)
    return {
        "task": PARSING,
        "models": models,
        "others": {part: _as_dictionaries(scores[-1]) for part, scores in scored.items()},
        **({"agreement": agreement} if agreement else {}),
        "summary": summaries,
        **by_group,
        "treebank": treebank.name,
        "protocol": {
            "description": protocol,
            "preprocessing": treebank.preprocessing.to_dict(),
            "sentences_without_words": treebank.num_left_out,
            "branching_bias": options.branching_bias,
            "seed": options.seed,
        },
        **({"weights": weights} if is_weighted else {}),
        "sentences_read": options.sentences_read,
        "note": options.note,
        "max_words": MAX_WORDS,
    }


def _as_dictionaries(scores: Mapping[str, ParsingScores]) -> dict[str, dict]:
    return {name: row.to_dict() for name, row in scores.items()}


def trees_of_layers(read: SentenceDistances, options: argparse.Namespace) -> Trees:
    """Builds the trees of each requested layer; a model with one tree per sentence has "induced trees"."""
    layers = read.by_layer if options.layer == "all" else [chosen_layer(options, read.parse_layer)]
    return {source_name(layer): read.trees(layer, options.branching_bias) for layer in layers}


def chosen_layer(options: argparse.Namespace, own_layer: int | None) -> int | None:
    return own_layer if options.layer == "own" else options.layer


def average_members(
    members: Sequence[list[InducedTree]], weights: Sequence[float] | None, options: argparse.Namespace
) -> Trees:
    """Averages the trees of several parsers with each kind of tie-breaking."""
    averages, weighted = {}, ", weighted" if weights else ""
    for ties in dict.fromkeys(options.ties):
        generator = np.random.default_rng(options.seed)
        sentences = progress_bar(
            zip(*members, strict=True), total=len(members[0]), description="averaging", unit="sentence"
        )
        averages[f"ensemble of {len(members)}{weighted}, {ties} ties"] = [
            average_trees(trees, weights, ties=ties, seed=generator) for trees in sentences
        ]
    return averages


def score(
    gold: list[GoldTree], parses: list[Trees], averages: Trees, indices: Sequence[int], seed: int
) -> list[dict[str, ParsingScores]]:
    """Scores trees on some of the sentences: by source for each model, then for averages and baselines together."""
    chosen = [gold[index] for index in indices]

    def score_all(trees: Trees) -> dict[str, ParsingScores]:
        return {
            source: score_parses([induced[index] for index in indices], chosen, seed=seed)
            for source, induced in trees.items()
        }

    of_models = [score_all(trees) for trees in progress_bar(parses, description="scoring", unit="model")]
    return [*of_models, score_all(averages) | score_baselines(chosen, seed)]


def group_by_source(scores: Sequence[dict[str, ParsingScores]]) -> dict[str, list[ParsingScores]]:
    """Returns the scores of all models with the same source, and of each average and baseline."""
    sources = dict.fromkeys(source for of_model in scores for source in of_model)
    return {source: [of_model[source] for of_model in scores if source in of_model] for source in sources}


def groups_by_length(lengths: np.ndarray) -> dict[str, np.ndarray]:
    """Groups the indices of sentences by length."""
    names = ("1 to 10", "11 to 20", "21 to 30", "31 to 40", "more than 40")
    groups = np.minimum((lengths - 1) // 10, len(names) - 1)
    return {name: np.flatnonzero(groups == number) for number, name in enumerate(names)}


def brackets_of(trees: Trees, index: int) -> dict[str, str]:
    return {source: induced[index].to_bracket() for source, induced in trees.items()}


def write_trees(path: str, gold: list[GoldTree], parses: dict[str, Trees], averages: Trees) -> None:
    """Writes one JSON object per sentence: the gold tree, the trees of each model's layers, and the averages."""
    with written_file(path) as file:
        for index, gold_tree in enumerate(gold):
            induced = {name: brackets_of(sources, index) for name, sources in parses.items()}
            row = {"gold": gold_tree.to_bracket(), "induced": induced}
            if averages:
                row["ensembles"] = brackets_of(averages, index)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


main = partial(run_task, "eval/evaluate_parsing.py", build_parser, evaluate_parsing)

if __name__ == "__main__":
    sys.exit(main())
