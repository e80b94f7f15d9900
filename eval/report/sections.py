"""Tables of RESULTS.md and of the markers in other pages, one function per table.

Each function takes the results files of its task by name (`{"lm_kneser_ney": {...}}`) and returns header and rows.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from eval.report import tasks
from eval.report.agreement import MEAN_AGREEMENT, permutation_p
from eval.report.by_task.parsing import source_name
from eval.report.published import SHORT, SHORT_MAX, central_rows
from eval.report.results_files import Results, short_name
from eval.report.tables import Table, per_cent, spread
from onlstm_hf.hub.cards.published import central_figures, citation
from onlstm_hf.hub.cards.text_descriptions import PENN_TREEBANK
from onlstm_hf.utils.training_stages import epochs_of, training_stages

UNBIASED = "F1, unbiased rule"
# Parsers in the results files that have no row in the tables.
HIDDEN_PARSERS = re.compile(r"random \(uniform splits\)|, by agreement")
RANDOM = "random (uniform trees)"
RIGHT = "right branching"
RELEASED = "model_cards"  # folder of the released models
# Rows of the README's table: label, results file, and name of the trees there. The file with the suffix `_no_bias` has
# the scores by the unbiased rule.
README_PARSERS = (
    ("**default model**, onlstm-english", "parsing_onlstm_english", "layer 3 (--layer 2)"),
    ("small ON-LSTM with averaged trees (three seeds)", "parsing_distilled_seeds", "layer 3 (--layer 2)"),
    ("small PRPN with averaged trees (three seeds)", "parsing_distilled_prpn", "induced trees"),
    ("small ON-LSTM, layer 2 (five seeds)", "parsing_seeds", "layer 2 (--layer 1)"),
    ("small PRPN (five seeds)", "parsing_seeds", "induced trees"),
    (RIGHT, "parsing_seeds", RIGHT),
    ("balanced", "parsing_seeds", "balanced"),
)
RECALL_LABELS = ("NP", "VP", "PP", "S", "SBAR", "ADJP", "ADVP")
# Tables of the runs in a folder of results: task, column of the figure, figure of a seed, and its decimal places.
RUN_TABLES = {
    "characters": (tasks.CHARACTERS, "bits per character", lambda seed: math.log2(seed["test_perplexity"]), 3),
    "text8": (tasks.TEXT8, "perplexity", lambda seed: seed["validation_perplexity"], 2),
}


def is_by_language(results: dict) -> bool:
    """Returns whether the treebank lies in a folder of its language, such as `languages/nl/test.mrg`."""
    return Path(results["treebank"]).parent.parent.name == "languages"


def read_training_runs(folder: Path) -> dict[str, list[dict]]:
    """Returns the results of all seeds below a folder, by the name of the run's folder."""
    runs: dict[str, list[dict]] = {}
    for path in sorted(folder.rglob("seed_*.json")):
        runs.setdefault(path.parent.relative_to(folder).as_posix(), []).append(json.loads(path.read_text("utf-8")))
    return runs


def language_models(files: Results, trained: Mapping[str, Sequence[dict]]) -> Table:
    """Returns a row for each model of the Penn Treebank text, then one for each central published system.

    The training runs of `read_training_runs` fill the rows of recipes without a scored checkpoint.
    """
    header = ["model", "parameters", "epochs", "validation", "test", "test, adapted", "unknown words", "file"]
    rows: dict[str, dict[str, str]] = {}
    adapted: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for name, results in files.items():
        in_rows = f", in {results['batch_size']} rows" if results.get("batch_size", 1) > 1 else ""
        for model in results.get("models", [results]):
            label = short_name(model["model"]) + in_rows
            row = rows.setdefault(label, {"parameters": f"{model['num_parameters']:,}"})
            row["file"] = f"{row.get('file', '')} {name}".strip()
            row["epochs"] = _epochs_of_release(model["model"])
            row |= _perplexities(model["scores"])
            if adaptation := model["adaptation"]:
                scores = {Path(text).name: score["perplexity"] for text, score in adaptation["scores"].items()}
                valid, test = scores.get("valid.txt", math.inf), scores["test.txt"]
                adapted[label].append((valid, test, adaptation["method"]))
        if mixture := results.get("mixture"):
            names = ", ".join(f"{short_name(part['model'])} {part['weight']:.2f}" for part in mixture["weights"])
            rows[f"mixture{in_rows}: {names}"] = _perplexities(mixture["scores"]) | {"file": name}
    for name, methods in adapted.items():
        _, test, method = min(methods)  # the lowest validation perplexity chooses the method
        rows[name]["test, adapted"] = f"{test:.2f} ({method})"
    for name, seeds in trained.items():
        # Runs in subfolders read other texts, and a grammar's perplexity is not that of a language model.
        if "/" not in name and seeds[0].get("task") != tasks.GRAMMAR:
            known = {column: cell for column, cell in rows.get(name, {}).items() if cell}
            unknown_words = per_cent(seeds[-1].get("test_unknown_words"))
            rows[name] = _run_cells(name, seeds) | {"unknown words": unknown_words} | known
    measured = [{"model": name} | row for name, row in rows.items()]
    return header, _in_columns(header, measured + central_rows(tasks.LANGUAGE_MODELLING))


def _in_columns(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> list[list[str]]:
    return [[row.get(column, "") for column in header] for row in rows]


def _perplexities(scores: Mapping[str, Mapping]) -> dict[str, str]:
    """Returns the cells of the validation and test perplexity, and of the unknown words of the test text."""
    cells = {}
    for text, score in scores.items():
        part = {"valid.txt": "validation", "test.txt": "test"}.get(Path(text).name, "")
        cells[part] = f"{score['perplexity']:.2f}"
        if part == "test" and "unknown_words" in score:
            cells["unknown words"] = per_cent(score["unknown_words"])
    return cells


def _run_cells(name: str, seeds: Sequence[dict]) -> dict[str, str]:
    """Returns the cells of all seeds of a training run by column."""
    cells = {"file": f"{name}/", "parameters": f"{seeds[0]['parameters']:,}"}
    cells["epochs"] = epochs_of(training_stages(seeds[0]))
    for part in ("validation", "test"):
        figure = f"{part}_perplexity"
        cells[part] = spread((seed[figure] for seed in seeds if figure in seed), 2)
    return cells


def training_runs(trained: Mapping[str, Sequence[dict]], folder: str) -> Table:
    """Returns the runs in a folder of results, a key of `RUN_TABLES`, then the central published systems."""
    task, column, figure, digits = RUN_TABLES[folder]
    header = ["model", "parameters", "epochs", column, "file"]
    rows = [
        _run_cells(name, seeds)
        | {"model": name.removeprefix(f"{folder}/"), column: spread(map(figure, seeds), digits)}
        for name, seeds in trained.items()
        if name.startswith(f"{folder}/")
    ]
    return header, _in_columns(header, rows and rows + central_rows(task))


def ablations(trained: Mapping[str, Sequence[dict]]) -> Table:
    """Returns the PRPN with single parts removed: runs in the folder `ablations/` beside the paper's figures."""
    header = ["model", "parameters", "epochs", "validation", "test", "F1", "test, published", "by", "file"]
    rows = []
    for row in central_figures(tasks.ABLATIONS):
        cells = {"model": row["system"], "test, published": f"{row['perplexity']:.2f}", "by": citation(row)}
        if seeds := trained.get(f"ablations/{row['run']}"):
            f1 = spread(100 * seed["parsing"]["sentence_f1"] for seed in seeds if "parsing" in seed)
            cells |= _run_cells(f"ablations/{row['run']}", seeds) | {"F1": f1}
        rows.append(cells)
    return header, _in_columns(header, rows) if any("file" in row for row in rows) else []


def _epochs_of_release(name: str) -> str:
    """Returns the epochs of a released model from the results file in its folder; empty for other models."""
    path = Path(name, "results.json")
    return epochs_of(training_stages(json.loads(path.read_text(encoding="utf-8")))) if path.is_file() else ""


def adaptation_settings(files: Results) -> Table:
    """Returns the tuned settings of each adaptation, and the size of the grid and of the tuning text."""
    rows = []
    for name, results in files.items():
        if adaptation := results.get("adaptation"):
            settings = ", ".join(f"{key} {value:g}" for key, value in adaptation["settings"].items())
            figures = [f"{score['perplexity']:.2f}" for score in adaptation["scores"].values()]
            tuning = adaptation["tuning"]
            grid = f"{len(tuning['grid'])} on {tuning['num_tokens']:,}" if tuning else ""
            rows.append([short_name(results["model"]), adaptation["method"], settings, grid, *figures, name])
    return ["model", "adaptation", "settings", "tried, on tokens", "validation", "test", "file"], rows


def parsing(measured: Sequence[Mapping]) -> Table:
    """English: `parsing_rows` for each model and layer by both rules, then baselines and central published systems."""
    header = ["trees", "model", "seeds", "read", "F1", "max", SHORT, UNBIASED, "file"]
    published = [{SHORT: row.get(SHORT_MAX, "")} | row for row in central_rows(tasks.PARSING, "trees")]
    return header, _in_columns(header, [*measured, *published])


def parsing_rows(files: Results) -> list[dict]:
    """Returns the cells of all measured rows by column, with recall by label; baselines have no model and come last.

    `is_unread_summary` marks several seeds, averages and released models that have not read the sentences.
    """
    rows: dict[tuple, dict] = {}
    for name, results in sorted(files.items(), key=lambda item: item[1].get("sentences_read") != "no"):
        is_biased = results["protocol"]["branching_bias"] == "right"
        for trees, scores in results["summary"]["all"].items():
            models = _models_of(trees, results)
            is_average = trees.startswith("ensemble")
            is_parse_layer = is_average or trees in {source_name(model["parse_layer"]) for model in models}
            if HIDDEN_PARSERS.search(trees) or (len(models) == 1 and not is_parse_layer):
                continue
            if "weights" in results and models and not is_average:  # a mean over models of different recipes
                continue
            names = _names(models)
            seeds = [str(model["seed"]) for model in models if model["seed"] is not None]
            seeds = f"{len(seeds)}" if len(seeds) > 1 else "".join(seeds)
            read = (results.get("sentences_read") or "") if models else ""
            # The name and the seed are ambiguous: the same seed was trained on two machines.
            place = name if "/best" in "".join(m["model"] for m in models) else ""
            is_summary = len(models) > 1 or any(Path(m["model"]).parent.name == RELEASED for m in models)
            cells = {"trees": trees, "model": names, "seeds": seeds, "read": read}
            cells["is_unread_summary"] = read == "no" and is_parse_layer and is_summary
            row = rows.setdefault((not models, trees, names, seeds, read, place), cells)
            f1 = scores["sentence_f1"]
            if not is_biased:
                row[UNBIASED] = _f1(f1)
            else:
                row |= {"F1": _f1(f1), "max": per_cent(f1["max"]) if f1["standard_deviation"] is not None else ""}
                if results["max_words"] == 10:
                    row[SHORT] = _f1(results["summary"]["short"][trees]["sentence_f1"])
                row |= {label: per_cent(recall["mean"]) for label, recall in scores["label_recall"].items()}
            if models:
                row["file"] = " ".join(dict.fromkeys(f"{row.get('file', '')} {name}".split()))
    return [row for _, row in sorted(rows.items(), key=lambda item: item[0][0])]


def unseen_trees(files: Results) -> Table:
    """Returns the README's table: F1 on sentences that no model has read, without rows whose files are missing."""
    header = ["trees", "papers' rule", "unbiased rule", "papers' rule, at most 10 words", "unbiased, at most 10 words"]
    rows = []
    for name, file, source in README_PARSERS:
        rules = [files.get(file), files.get(f"{file}_no_bias")]
        if all(rules):
            summaries = [rule["summary"][part][source] for part in ("all", "short") for rule in rules]
            rows.append([name, *(_f1(summary["sentence_f1"]) for summary in summaries)])
    return header, rows


def unread_sentences(measured: Sequence[Mapping]) -> Table:
    """Returns the `parsing_rows` of models that have not read the sentences, then right branching."""
    header = ["trees", "model", "seeds", "F1", "max", SHORT, UNBIASED]
    rows = [row for row in measured if row["is_unread_summary"] or row["trees"] == RIGHT]
    return header, _in_columns(header, rows)


def label_recall(measured: Sequence[Mapping]) -> Table:
    """Returns recall by label of models that have not read the sentences, baselines, and published models."""
    header = ["trees", "model", "seeds", "F1", *RECALL_LABELS]
    models = [row for row in measured if row["is_unread_summary"] and not row["trees"].startswith("ensemble")]
    baselines = [row for row in measured if not row["model"] and row["trees"] != "upper bound"]
    published = [row for row in central_rows(tasks.PARSING, "trees") if row.keys() & set(RECALL_LABELS)]
    return header, _in_columns(header, models + baselines + published)


def by_group(files: Results, kind: str, heading: str) -> Table:
    """Returns sentence F1 by group of a `kind` in `GROUPS`: models by both rules, then the baselines.

    Files have a further row with their mean.
    """
    counts: dict[str, str] = {}
    columns: dict[str, dict[str, list[Mapping]]] = defaultdict(lambda: defaultdict(list))
    baselines: dict[str, dict[str, list[Mapping]]] = defaultdict(dict)
    for results in sorted(files.values(), key=_is_unbiased):
        for group, content in results.get(kind, {}).items():
            counts[group] = str(content["num_sentences"])
            for trees, scores in content["summary"].items():
                if models := _models_of(trees, results):
                    columns[f"{_names(models)}, {trees}"][group].append(scores["sentence_f1"])
                elif trees in (RIGHT, "balanced"):
                    baselines[trees][group] = [scores["sentence_f1"]]
    columns |= baselines
    rows = [
        [group, count, *(" / ".join(map(_f1, column[group])) for column in columns.values())]
        for group, count in counts.items()
    ]
    if kind == "by_file" and rows:
        by_rule = [zip(*column.values(), strict=True) for column in columns.values()]
        means = [[per_cent(mean(f1["mean"] for f1 in scores)) for scores in rules] for rules in by_rule]
        rows.append(["mean", "", *map(" / ".join, means)])
    return [heading, "sentences", *columns], rows


def _is_unbiased(results: Mapping) -> bool:
    return results["protocol"]["branching_bias"] == "none"


def _models_of(trees: str, results: Mapping) -> list[dict]:
    """Returns the models of a results file that produced the trees of this name; none for baselines."""
    return [m for m in results["models"] if trees.startswith("ensemble") or trees in m["scores"]["all"]]


def _names(models: Sequence[Mapping]) -> str:
    return ", ".join(dict.fromkeys(short_name(model["model"]) for model in models))


def _f1(figure: Mapping) -> str:
    """Formats the mean in per cent, with the standard deviation if there are several checkpoints."""
    deviation = figure["standard_deviation"]
    return per_cent(figure["mean"]) + ("" if deviation is None else f" ± {per_cent(deviation)}")


def agreement(files: Results) -> Table:
    """Returns Spearman's rank correlation between the mean agreement of parsers and their F1 against gold trees."""
    kinds = ["all", *map(source_name, range(3)), "induced trees"]
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name, results in files.items():
        if "agreement" in results:
            row, parsers = rows[name.removesuffix("_no_bias")], results["agreement"]["parsers"]
            row["parsers"] = str(len(parsers))
            rule = {"right": "", "none": ", unbiased"}[results["protocol"]["branching_bias"]]
            for kind, correlation in results["agreement"]["rank_correlation"][MEAN_AGREEMENT].items():
                if correlation is not None:
                    ranked = [parser for parser in parsers if kind in ("all", parser["trees"])]
                    p = permutation_p([p["sentence_f1"] for p in ranked], [p[MEAN_AGREEMENT] for p in ranked])
                    row[kind + rule] = f"{correlation:.2f} (p {p:.2f})"
    header = ["file", "parsers", *kinds, "all, unbiased"]
    return header, _in_columns(header, [{"file": name} | row for name, row in rows.items()])


def languages(files: Results) -> Table:
    """Returns a column per treebank of another language, and a row for each kind of model and baseline.

    A cell has F1 by the papers' rule, F1 by the unbiased rule, and the number of seeds.
    """
    measured: dict[str, dict[str, str]] = defaultdict(dict)
    baselines: dict[str, dict[str, str]] = defaultdict(dict)
    for results in sorted(files.values(), key=_is_unbiased):
        language = Path(results["treebank"]).parent.name
        for trees, summary in results["summary"]["all"].items():
            f1, models = _f1(summary["sentence_f1"]), [m for m in results["models"] if trees in m["scores"]["all"]]
            if not models and not HIDDEN_PARSERS.search(trees):
                baselines[trees][language] = f1
            if models:
                system = short_name(models[0]["model"]).replace(f"_{language}", "")
                row = measured[f"{system}, {trees}"]
                row[language] = f"{row[language]} / {f1} ({len(models)})" if _is_unbiased(results) else f1
                _, _, tokens = system.partition("_")
                unknown_words = per_cent(mean(model["unknown_words"] for model in models))
                baselines[f"unknown words, models of {tokens or 'words'}"][language] = unknown_words
    header = ["trees", *sorted({language for row in baselines.values() for language in row})]
    rows = [*sorted(measured.items()), *baselines.items()]
    return header, _in_columns(header, [{"trees": name} | row for name, row in rows])


def word_order(files: Results) -> Table:
    """Returns how often each model prefers a sentence to a random order of its words."""
    rows = [
        [short_name(model["model"]), str(results["num_sentences"]), per_cent(model["accuracy"]), name]
        for name, results in files.items()
        for model in results["models"]
    ]
    return ["model", "sentences", "accuracy", "file"], rows


def punctuation(files: Results) -> Table:
    """Returns F1 without marks and with marks as cues, by both rules: a row per treebank and kind of model."""
    rows = []
    for name, results in files.items():
        if len(results["strengths"]) != 2:  # more strengths mean a search on validation trees
            continue
        kinds: dict[str, list[Mapping]] = defaultdict(list)
        for model in results["models"]:
            kind = short_name(model["model"].removesuffix("/trees.jsonl.xz"))
            kinds[kind].append(model["sentence_f1"])
        for kind, scores in kinds.items():
            cells = [
                spread(100 * score[rule][f"{strength:g}"] for score in scores)
                for rule in ("right", "none")
                for strength in results["strengths"]
            ]
            number = "" if kind == RIGHT else f" ({len(scores)})"
            rows.append([_treebank_name(results), kind + number, *cells, name])
    return ["treebank", "model (runs)", "no marks", "cue", "no marks, unbiased", "cue, unbiased", "file"], rows


def punctuation_strengths(files: Results) -> Table:
    """Returns F1 on validation trees for each tried strength of the cue."""
    searches = {name: results for name, results in files.items() if len(results["strengths"]) > 2}
    strengths = dict.fromkeys(f"{value:g}" for results in searches.values() for value in results["strengths"])
    header = ["validation trees", "model", "rule", *(f"k = {strength}" for strength in strengths), "file"]
    rows = [
        [
            _treebank_name(results),
            short_name(model["model"]),
            name_of_rule,
            *(per_cent(model["sentence_f1"][rule].get(strength)) for strength in strengths),
            name,
        ]
        for name, results in searches.items()
        for model in results["models"]
        for rule, name_of_rule in (("right", "papers'"), ("none", "unbiased"))
    ]
    return header, rows


def _treebank_name(results: Mapping) -> str:
    """Returns the folder of a treebank if that is a language or there are several files, else the file's name."""
    path = Path(results["treebank"])
    if results.get("files", 1) > 1:
        return f"{path.parent.name} ({results['files']} files)"
    return path.parent.name if is_by_language(results) else path.name


def listops(files: Results) -> Table:
    """Returns accuracy by length and recall of lists by induced trees, then baselines and published systems."""
    lengths = sorted(
        {n for run in files.values() for n in run["test"]["by_length"]}, key=lambda n: int(n.split("-")[0])
    )
    header = ["model", "parameters", "epochs", "accuracy", *(f"{length} tokens" for length in lengths)]
    header += ["recall of lists", "file"]
    rows, baseline = [], []
    for name, run in files.items():
        figures = {"parameters": f"{run['parameters']:,}", "epochs": str(run["epochs"])}
        figures["accuracy"] = per_cent(run["test"]["accuracy"])
        for length, group in run["test"]["by_length"].items():
            figures[f"{length} tokens"] = per_cent(group["accuracy"])
        if trees := run["trees"]:
            figures["recall of lists"] = per_cent(trees["induced"]["list_recall"])
            baseline = [{"model": RANDOM, "recall of lists": per_cent(trees[RANDOM]["list_recall"])}]
        rows.append({"model": name, "file": name} | figures)
    return header, _in_columns(header, rows + baseline + central_rows(tasks.LISTOPS))


def toy_english(files: Results) -> Table:
    """Returns perplexity and F1 on held-out sentences of the toy corpus: a row per layer, then right branching."""
    rows, baseline = [], []
    for name, results in files.items():
        for trees, f1 in results["sentence_f1"].items():
            if trees.startswith("layer") or trees == "induced trees":
                rows.append([results["model_type"], trees, f"{results['test_perplexity']:.2f}", per_cent(f1), name])
            elif trees == RIGHT:
                baseline = [["", trees, "", per_cent(f1), ""]]
    return ["model", "trees", "perplexity", "F1", "file"], rows + baseline


def speed(files: Results) -> Table:
    """Returns ratios and times of the benchmark: median and quartiles over its rounds."""
    rows = [
        [row["case"], row["figure"], row["spread"], results["machine"].get("gpu", results["machine"]["cpu"]), name]
        for name, results in files.items()
        for row in results["rows"]
        if not row["figure"].startswith("reference")
    ]
    return ["case", "figure", "median (quartiles)", "machine", "file"], rows


def released_models(folder: Path) -> Table:
    """Returns perplexity and F1 of `parse` for each released model of the Penn Treebank text; links start at docs/."""
    header = ["model", "parameters", "perplexity, test", "F1, WSJ sample", SHORT, UNBIASED]
    rows, baseline = [], []
    for link, results in _releases(folder):
        if results["data"]["text"]["dataset"] == PENN_TREEBANK:
            figures = [f"{results['parameters'] / 1e6:.1f} million", f"{results['perplexity']['test']:.2f}"]
            if scores := results.get("parsing"):
                biased, unbiased = _rows_of_parse(scores)
                figures += _cells_of(scores, ("all", biased), ("short", biased), ("all", unbiased))
                right = _cells_of(scores, ("all", RIGHT), ("short", RIGHT), ("all", RIGHT))
                baseline = [[RIGHT, "", "", *right]]
            else:
                figures += ["no trees", "", ""]
            rows.append([link, *figures])
    return header, rows + baseline


def released_language_models(folder: Path) -> Table:
    """Returns F1 of `parse` and of baselines for each released model of another language; links start at docs/."""
    header = ["model", "gold trees", "F1", UNBIASED, RIGHT, "balanced"]
    rows = []
    for link, results in _releases(folder):
        if results["data"]["text"]["language"] != "en":
            scores = results["parsing"]
            names = (*_rows_of_parse(scores), RIGHT, "balanced")
            f1 = _cells_of(scores, *(("all", name) for name in names))
            rows.append([link, results["data"]["treebank"]["title"], *f1])
    return header, rows


def _releases(folder: Path) -> Iterable[tuple[str, dict]]:
    """Returns a link to the card and the results of each released language model."""
    for path in sorted(folder.glob("*/results.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        if "perplexity" in results:
            name = path.parent.name
            yield f"[{name}](../{folder.name}/{name}/README.md)", results


def _rows_of_parse(scores: dict) -> tuple[str, str]:
    """Returns the names of the rows with the trees of `parse`: by the papers' rule and by the unbiased one."""
    (unbiased,) = [row for row in scores["all"] if row.endswith(", no branching bias")]
    return unbiased.removesuffix(", no branching bias"), unbiased


def _cells_of(scores: dict, *cells: tuple[str, str]) -> list[str]:
    """Returns sentence F1 by part of the sentences and name of the trees."""
    return [per_cent(scores[part][trees]["sentence_f1"]) for part, trees in cells]
