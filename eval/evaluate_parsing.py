"""Unsupervised constituency parsing: the trees of checkpoints beside the gold trees and the baselines.

    python eval/evaluate_parsing.py MODEL --treebank wsj.mrg --output results.json
    python eval/evaluate_parsing.py MODEL --treebank DATASET --split test --column tree --layer 1
    python eval/evaluate_parsing.py SEED1 SEED2 SEED3 --treebank wsj.mrg --layer 1 --table table.tex --ensemble
    python eval/evaluate_parsing.py --trees-from seed_1111.trees.jsonl.xz seed_2222.trees.jsonl.xz --treebank wsj.mrg
    python eval/evaluate_parsing.py --trees-from *.trees.jsonl.xz --treebank wsj.mrg --agreement --ensemble
    python eval/evaluate_parsing.py MODEL --treebank trees.mrg --preset universal
    python eval/evaluate_parsing.py MODEL --treebank gum/ --by-file

Unless options or models say otherwise, words and scores are those of the PRPN and ON-LSTM papers
(onlstm_hf/trees/treebank.py and onlstm_hf/scoring/parsing_scores.py). Trees come from checkpoints, or without any
weights from the files of them that training runs leave (onlstm_hf/trees/tree_files.py). For several
checkpoints, such as one model trained with several seeds, the table has mean, standard deviation, minimum and maximum.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.treebanks import Treebank, add_treebank_options
from eval.report.agreement import agreement_summary, agreement_table
from eval.report.by_task.parsing import (
    INTERVAL_NOTE,
    MAX_WORDS,
    PUBLISHED_NOTE,
    group_table,
    parsing_table,
    source_name,
    summarize,
)
from eval.report.tables import check_table_name, format_table, write_table
from eval.report.tasks import PARSING
from eval.task import check_writable, describe_checkpoint, run_task, task_parser
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.scoring.coverage import unknown_words
from onlstm_hf.scoring.parsing_scores import ParsingScores, score_baselines, score_parses
from onlstm_hf.trees.averaging import TIES, average_trees
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from onlstm_hf.trees.treebank import GoldTree
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.files import written_file
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import add_code_option, add_implementation_option, split_weights

PROTOCOL = "every sentence after one <eos>; sentence F1 without the whole-sentence span, averaged over sentences"
# The trees of one source (a layer, or the model where it gives only one tree) for all sentences, by its name.
Trees = dict[str, list[InducedTree]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    return run_task("eval/evaluate_parsing.py", build_parser(), evaluate_parsing, arguments)


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="checkpoint folder or name on the Hub; several; or MODEL=WEIGHT"
    )
    parser.add_argument(
        "--trees-from", nargs="+", default=[], metavar="FILE", help="trees.jsonl.xz of training runs; or FILE=WEIGHT"
    )
    add_treebank_options(parser)
    parser.add_argument("--by-file", action="store_true", help="also a table with a row for each file of the treebank")
    parser.add_argument("--by-length", action="store_true", help="also a table with a row for every ten words")
    parser.add_argument(
        "--layer",
        type=layer_number,
        default="all",
        metavar="N|all|own",
        help="layer that makes the trees, counted from 0; own: the one that a model's parse() takes (%(default)s)",
    )
    parser.add_argument(
        "--branching-bias",
        choices=["right", "none", "ranges"],
        default="right",
        help="the papers' rule, one without that bias, or that of a PRPN's hard gates (%(default)s)",
    )
    parser.add_argument(
        "--ensemble",
        action="store_true",
        help="also average the trees of all models and layers, each with the WEIGHT of its model (1)",
    )
    parser.add_argument(
        "--ties",
        nargs="+",
        choices=TIES,
        default=["random", "right"],
        help="choice among equally good trees of an average, a row each (random right)",
    )
    parser.add_argument(
        "--agreement",
        action="store_true",
        help="also say how far models and layers agree with all others",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of random baselines, ties and intervals (%(default)s)"
    )
    parser.add_argument(
        "--sentences-read",
        choices=["yes", "no"],
        help="store whether the training text had these sentences",
    )
    parser.add_argument("--note", metavar="TEXT", help="a remark to print and store")
    add_code_option(parser)
    add_implementation_option(parser)
    parser.add_argument("--trees", metavar="FILE", help="gold and induced trees as JSON lines; replaced as well")
    parser.add_argument("--table", metavar="FILE", help="the table as .md, .tex, .csv or .txt; replaced as well")
    return parser


def layer_number(text: str) -> int | str:
    """The type of an argument that is a layer, all of them, or each model's own."""
    return text if text in ("all", "own") else int(text)


def evaluate_parsing(options: argparse.Namespace) -> dict:
    """Parses the treebank with every model and layer asked for, prints the table, writes files, returns results."""
    check_writable(options.trees, options.table)
    check_table_name(options.table)
    if not options.models + options.trees_from:
        raise ValueError("give checkpoints, or files of trees with --trees-from")
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
        model, tokenizer = load_checkpoint(
            name, trust_remote_code=options.trust_remote_code, implementation=options.implementation
        )
        gold = treebank.read_for(name, model.config.treebank_preprocessing)
        parses.append(parse_layers(model, tokenizer, gold, options))
        known = {"parse_layer": model.parse_layer, "unknown_words": unknown_words(tokenizer, words_of(gold))}
        models.append(describe_checkpoint(name, model) | known)
    for name, _ in tree_files:
        stored = read_tree_file(name)
        treebank.read_for(name, stored.model.get("treebank_preprocessing"))
        parses.append(stored_layers(name, stored, treebank, options))
        known = {key: stored.model.get(key) for key in ("num_parameters", "seed", "unknown_words")}
        models.append({"model": name, **known, "parse_layer": stored.parse_layer})
    gold = treebank.trees
    members = [trees for sources in parses for trees in sources.values()]
    if (options.ensemble or options.agreement) and len(members) == 1:
        raise ValueError("one layer of one model is no ensemble: give --layer all, or several models")
    agreement = tree_agreement(members) if options.agreement else None
    further: Trees = {}
    if options.ensemble:
        of_members = [weight for weight, sources in zip(weights, parses, strict=True) for _ in sources]
        further = average_members(members, of_members if is_weighted else None, options)

    parts: dict[str, Sequence[int]] = {"all": range(len(gold))}
    if short := [index for index, tree in enumerate(gold) if len(tree.words) <= MAX_WORDS]:
        parts["short"] = short
    scored = {part: score(gold, parses, further, indices, options.seed) for part, indices in parts.items()}
    summaries = {part: scores.summary for part, scores in scored.items()}
    for index, model in enumerate(models):
        model["scores"] = {part: _as_dictionaries(scores.of_models[index]) for part, scores in scored.items()}
    groups = {"by_file": treebank.by_file} if options.by_file else {}
    groups |= {"by_length": groups_by_length(gold)} if options.by_length else {}
    by_group = {
        kind: {
            name: {
                "num_sentences": len(indices),
                "num_words": sum(len(gold[index].words) for index in indices),
                "summary": score(gold, parses, further, indices, options.seed, num_resamples=0).summary,
            }
            for name, indices in found.items()
            if indices
        }
        for kind, found in groups.items()
    }
    if options.agreement:
        parsers = [
            {"model": model["model"], "trees": source, "sentence_f1": scores["sentence_f1"]}
            for model in models
            for source, scores in model["scores"]["all"].items()
        ]
        agreement = agreement_summary(parsers, agreement)

    is_english = treebank.is_read_as_in_the_papers  # other figures are not of this language
    header, rows = parsing_table(summaries, has_published=is_english)
    protocol = f"{treebank.describe()}; {PROTOCOL}"
    print(f"{', '.join(names)} on {treebank.name}: {len(gold)} sentences; {protocol}")
    if treebank.num_left_out:
        print(f"{treebank.num_left_out} sentences without a word are left out")
    print(f"\n{format_table(header, rows)}\n\n{INTERVAL_NOTE}")
    for kind, summary in by_group.items():
        print(f"\n{format_table(*group_table(kind, summary))}")
    by_model = ", by model" if len(models) > 1 else ""
    shares = ["?" if model["unknown_words"] is None else f"{100 * model['unknown_words']:.1f} %" for model in models]
    print(f"\nunknown words{by_model}: {', '.join(shares)}")
    if agreement:
        print(f"\n{format_table(*agreement_table(agreement))}")
    if is_english:
        print(f"\n{PUBLISHED_NOTE}")
    if options.sentences_read:
        print(f"\nsentences read in training: {options.sentences_read}")
    if options.note:
        print(f"\nnote: {options.note}")
    if options.table:
        write_table(options.table, header, rows)
    if options.trees:
        write_trees(options.trees, gold, dict(zip(names, parses, strict=True)), further)
    return {
        "task": PARSING,
        "models": models,
        "others": {part: _as_dictionaries(scores.others) for part, scores in scored.items()},
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


def parse_layers(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, gold: list[GoldTree], options: argparse.Namespace
) -> Trees:
    """The trees that each layer asked for gives the sentences; "induced trees" of a model without such layers."""
    layers: Sequence[int | None] = [None]
    if options.layer != "all":
        layers = [chosen_layer(options, model.parse_layer)]
    elif model.parse_layer is not None:
        layers = range(model.config.num_hidden_layers)
    sentences = [list(tree.words) for tree in gold]
    trees = model.parse_layers(sentences, tokenizer, layers, branching_bias=options.branching_bias)
    return dict(zip(map(source_name, layers), trees, strict=True))


def stored_layers(name: str, stored: SentenceDistances, treebank: Treebank, options: argparse.Namespace) -> Trees:
    """The same from the distances in a file.

    Raises:
        ValueError: if these are of other sentences, or there is no such layer.
    """
    if stored.sentences != words_of(treebank.trees):
        raise ValueError(f"{name} has other sentences than {treebank.name}, or other words in them")
    layers = stored.by_layer if options.layer == "all" else [chosen_layer(options, stored.parse_layer)]
    return {source_name(layer): stored.trees(layer, options.branching_bias) for layer in layers}


def chosen_layer(options: argparse.Namespace, parse_layer: int | None) -> int | None:
    """The one layer that is asked for."""
    return parse_layer if options.layer == "own" else options.layer


def average_members(
    members: Sequence[list[InducedTree]], weights: Sequence[float] | None, options: argparse.Namespace
) -> Trees:
    """The averages of several parsers' trees with each choice among equally good trees."""
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


def words_of(gold: Sequence[GoldTree]) -> list[tuple[str, ...]]:
    """The words of each sentence."""
    return [tree.words for tree in gold]


class Scores(NamedTuple):
    """Scores of some sentences by the name of their trees: of each model, of averages and baselines, and of all."""

    of_models: list[dict[str, ParsingScores]]
    others: dict[str, ParsingScores]
    summary: dict[str, dict]


def score(
    gold: list[GoldTree], parses: list[Trees], further: Trees, indices: Sequence[int], seed: int, **options: int
) -> Scores:
    """Scores some of the sentences, also by the baselines; `options` go to `score_parses`.

    The summary has `summarize` over the models that have a row, and of each average and baseline by itself.
    """
    chosen = [gold[index] for index in indices]

    def score_all(trees: Trees) -> dict[str, ParsingScores]:
        return {
            source: score_parses([induced[index] for index in indices], chosen, seed=seed, **options)
            for source, induced in trees.items()
        }

    of_models = [score_all(trees) for trees in progress_bar(parses, description="scoring", unit="model")]
    others = score_all(further) | score_baselines(chosen, seed, **options)
    names = dict.fromkeys(name for rows in of_models for name in rows)
    rows = {name: [scores[name] for scores in of_models if name in scores] for name in names}
    rows |= {name: [scores] for name, scores in others.items()}
    return Scores(of_models, others, {name: summarize(scores, seed) for name, scores in rows.items()})


def groups_by_length(gold: Sequence[GoldTree]) -> dict[str, list[int]]:
    """The indices of the sentences of 1 to 10 words, 11 to 20, and so on; those of more than 40 are one group."""
    groups: dict[str, list[int]] = {}
    for index in sorted(range(len(gold)), key=lambda index: len(gold[index].words)):
        tens = (len(gold[index].words) - 1) // 10
        name = f"{10 * tens + 1} to {10 * tens + 10}" if tens < 4 else "more than 40"
        groups.setdefault(name, []).append(index)
    return groups


def write_trees(path: str, gold: list[GoldTree], parses: dict[str, Trees], further: Trees) -> None:
    """Writes one JSON object a sentence: the gold tree, those of each model's layers, and the averages."""
    with written_file(path) as file:
        for index, gold_tree in enumerate(gold):
            induced = {
                name: {source: trees[index].to_bracket() for source, trees in sources.items()}
                for name, sources in parses.items()
            }
            ensembles = {name: trees[index].to_bracket() for name, trees in further.items()}
            row = {"gold": gold_tree.to_bracket(), "induced": induced, **({"ensembles": ensembles} if further else {})}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
