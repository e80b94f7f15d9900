"""The tables of RESULTS.md, and those that other pages show between markers: a function a task.

A function takes the results files of its task by name (`{"lm_kneser_ney": {...}}`) and returns header and rows.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from eval.report.agreement import ALL, permutation_p
from eval.report.by_task.logic import logic_table
from eval.report.by_task.narrative_cloze import cloze_table
from eval.report.by_task.parsing import source_name
from eval.report.by_task.syntax import syntax_table
from eval.report.published import SHORT, SHORT_MAX, central_rows
from eval.report.results_files import short_name
from eval.report.tables import Table, per_cent, spread
from eval.report.tasks import ABLATIONS, CHARACTERS, GRAMMAR, LANGUAGE_MODELLING, LISTOPS, PARSING, TEXT8
from onlstm_hf.hub.cards.published import central_figures, citation
from onlstm_hf.hub.cards.text_descriptions import PENN_TREEBANK
from onlstm_hf.utils.training_stages import epochs_of, training_stages

Results = Mapping[str, dict]

UNBIASED = "F1, unbiased rule"
# Rows of the results files that the tables leave out.
LEFT_OUT = re.compile(r"random \(uniform splits\)|, by agreement")
RANDOM = "random (uniform trees)"
# Rows of the README's table: name, results file (that of the unbiased rule ends in `_no_bias`), and the row there.
UNSEEN_TREES = (
    ("**default model**, onlstm-english", "parsing_onlstm_english", "layer 3 (--layer 2)"),
    ("small ON-LSTM with averaged trees (three seeds)", "parsing_distilled_seeds", "layer 3 (--layer 2)"),
    ("small PRPN with averaged trees (three seeds)", "parsing_distilled_prpn", "induced trees"),
    ("small ON-LSTM, layer 2 (five seeds)", "parsing_seeds", "layer 2 (--layer 1)"),
    ("small PRPN (five seeds)", "parsing_seeds", "induced trees"),
    ("right branching", "parsing_seeds", "right branching"),
    ("balanced", "parsing_seeds", "balanced"),
)
# Labels of the table of recall.
LABELS = ("NP", "VP", "PP", "S", "SBAR", "ADJP", "ADVP")


def is_by_language(results: dict) -> bool:
    """Returns whether the treebank lies in a folder of its language, such as `languages/nl/test.mrg`."""
    return Path(results["treebank"]).parent.parent.name == "languages"


def read_training_runs(folder: Path) -> dict[str, list[dict]]:
    """The results of all seeds below a folder, by the name of the folder that they lie in."""
    runs: dict[str, list[dict]] = {}
    for path in sorted(folder.rglob("seed_*.json")):
        runs.setdefault(path.parent.relative_to(folder).as_posix(), []).append(json.loads(path.read_text("utf-8")))
    return runs


def language_models(files: Results, trained: Mapping[str, Sequence[dict]]) -> Table:
    """A row for each model of the Penn Treebank text, then one for each central published system.

    Args:
        files: results of language modelling.
        trained: what `read_training_runs` gives, for recipes of which no checkpoint was scored.
    """
    header = ["model", "parameters", "epochs", "validation", "test", "test, adapted", "unknown words", "file"]
    rows: dict[str, dict[str, str]] = {}
    adapted: dict[str, list[tuple[float, float, str]]] = {}
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
                own = (scores.get("valid.txt", math.inf), scores["test.txt"], adaptation["method"])
                adapted.setdefault(label, []).append(own)
        if mixture := results.get("mixture"):
            names = ", ".join(f"{short_name(part['model'])} {part['weight']:.2f}" for part in mixture["weights"])
            rows[f"mixture{in_rows}: {names}"] = _perplexities(mixture["scores"]) | {"file": name}
    for name, found in adapted.items():  # of several methods the one that validation chooses
        rows[name]["test, adapted"] = "{1:.2f} ({2})".format(*min(found))
    for name, seeds in trained.items():
        if "/" in name or seeds[0].get("task") == GRAMMAR:  # another language, or another kind of perplexity
            continue
        row = rows.setdefault(name, {"parameters": f"{seeds[0]['parameters']:,}", "file": f"{name}/"})
        row["epochs"] = epochs_of(training_stages(seeds[0]))
        for part in ("validation", "test"):
            row.setdefault(part, spread((s[f"{part}_perplexity"] for s in seeds if f"{part}_perplexity" in s), 2))
        row.setdefault("unknown words", per_cent(seeds[-1].get("test_unknown_words")))
    measured = [{"model": name} | row for name, row in rows.items()]
    return header, _in_columns(header, measured + central_rows(LANGUAGE_MODELLING))


def _in_columns(header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> list[list[str]]:
    return [[row.get(column, "") for column in header] for row in rows]


def _perplexities(scores: Mapping[str, Mapping]) -> dict[str, str]:
    """The cells of validation and test text, and of the latter's unknown words."""
    cells = {}
    for text, score in scores.items():
        part = {"valid.txt": "validation", "test.txt": "test"}.get(Path(text).name, "")
        cells[part] = f"{score['perplexity']:.2f}"
        if part == "test" and "unknown_words" in score:
            cells["unknown words"] = per_cent(score["unknown_words"])
    return cells


def characters(trained: Mapping[str, Sequence[dict]]) -> Table:
    """Bits per character of the test text: runs in the folder `characters/`, then central published systems."""
    header = ["model", "parameters", "epochs", "bits per character", "file"]
    rows = _runs(trained, "characters")
    for row in rows:
        row["bits per character"] = spread((math.log2(seed["test_perplexity"]) for seed in trained[row["run"]]), 3)
    return header, _in_columns(header, rows and rows + central_rows(CHARACTERS))


def text8(trained: Mapping[str, Sequence[dict]]) -> Table:
    """Perplexity of the words of text8: runs in the folder `text8/`, then central published systems."""
    header = ["model", "parameters", "epochs", "perplexity", "file"]
    rows = _runs(trained, "text8")
    for row in rows:
        row["perplexity"] = spread((seed["validation_perplexity"] for seed in trained[row["run"]]), 2)
    return header, _in_columns(header, rows and rows + central_rows(TEXT8))


def _runs(trained: Mapping[str, Sequence[dict]], folder: str) -> list[dict[str, str]]:
    """Name, file, size and epochs of the runs in a folder of the results; `run` is their key in `trained`."""
    return [
        {"model": name.removeprefix(f"{folder}/"), "file": f"{name}/", "run": name}
        | {"parameters": f"{seeds[0]['parameters']:,}", "epochs": epochs_of(training_stages(seeds[0]))}
        for name, seeds in trained.items()
        if name.startswith(f"{folder}/")
    ]


def ablations(trained: Mapping[str, Sequence[dict]]) -> Table:
    """The PRPN without some of its parts: runs in the folder `ablations/` beside the paper's figures."""
    header = ["model", "parameters", "epochs", "validation", "test", "F1", "test, published", "by", "file"]
    rows = []
    for row in central_figures(ABLATIONS):
        name = f"ablations/{row['run']}"
        cells, seeds = [""] * 5, trained.get(name, ())
        if seeds:
            columns = [[seed[f"{part}_perplexity"] for seed in seeds] for part in ("validation", "test")]
            f1 = spread(100 * seed["parsing"]["sentence_f1"] for seed in seeds if "parsing" in seed)
            epochs = epochs_of(training_stages(seeds[0]))
            cells = [f"{seeds[0]['parameters']:,}", epochs, *(spread(column, 2) for column in columns), f1]
        published = [f"{row['perplexity']:.2f}", citation(row)]
        rows.append([row["system"], *cells, *published, f"{name}/" if seeds else ""])
    return header, rows if any(row[-1] for row in rows) else []


def _epochs_of_release(name: str) -> str:
    """Epochs of a released model, whose results lie in its folder of this checkout."""
    path = Path(name, "results.json")
    return epochs_of(training_stages(json.loads(path.read_text(encoding="utf-8")))) if path.is_file() else ""


def adaptation_settings(files: Results) -> Table:
    """The settings that each adaptation was tuned to, and what it was tuned on."""
    rows = []
    for name, results in files.items():
        if adaptation := results.get("adaptation"):
            settings = ", ".join(f"{key} {value:g}" for key, value in adaptation["settings"].items())
            figures = [f"{score['perplexity']:.2f}" for score in adaptation["scores"].values()]
            tuning = adaptation["tuning"]
            grid = f"{len(tuning['grid'])} on {tuning['num_tokens']:,}" if tuning else ""
            rows.append([short_name(results["model"]), adaptation["method"], settings, grid, *figures, name])
    return ["model", "adaptation", "settings", "tried, on tokens", "validation", "test", "file"], rows


def parsing(files: Results) -> Table:
    """English: a row for each model and layer by both rules, then baselines and central published systems."""
    header = ["trees", "model", "seeds", "read", "F1", "max", SHORT, UNBIASED, "file"]
    published = [{SHORT: row.get(SHORT_MAX, "")} | row for row in central_rows(PARSING, "trees")]
    return header, _in_columns(header, _parsed(files) + published)


def _parsed(files: Results) -> list[dict[str, str]]:
    """The cells of all measured rows by column, with recall by label; baselines, which have no model, at the end."""
    rows: dict[tuple, dict[str, str]] = {}
    for name, results in sorted(files.items(), key=lambda item: item[1].get("sentences_read") != "no"):
        is_biased = results["protocol"]["branching_bias"] == "right"
        for trees, scores in results["summary"]["all"].items():
            models = _models_of(trees, results)
            is_average = trees.startswith("ensemble")
            is_own = is_average or trees in {source_name(model["parse_layer"]) for model in models}
            if LEFT_OUT.search(trees) or (len(models) == 1 and not is_own):
                continue
            if "weights" in results and models and not is_average:  # the mean of unlike models
                continue
            names = _names(models)
            seeds = [str(model["seed"]) for model in models if model["seed"] is not None]
            seeds = f"{len(seeds)}" if len(seeds) > 1 else "".join(seeds)
            if not models:
                names = seeds = read = ""
            else:
                read = results.get("sentences_read") or ""
            # The same seed was trained twice on different machines, so that its name does not tell the runs apart.
            place = name if "/best" in "".join(m["model"] for m in models) else ""
            cells = {"trees": trees, "model": names, "seeds": seeds, "read": read, "own": "yes" if is_own else ""}
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


def _unread(files: Results) -> list[dict[str, str]]:
    """The rows for several seeds, averages and released models that have not read the sentences."""
    return [
        row
        for row in _parsed(files)
        if row["read"] == "no"
        and row["own"]
        and ("±" in row.get("F1", "") or "-" in row["model"] or row["trees"].startswith("ensemble"))
    ]


def unseen_trees(files: Results) -> Table:
    """The table of the README: F1 on sentences that no model has read; rows whose files are missing are left out."""
    header = ["trees", "papers' rule", "unbiased rule", "papers' rule, at most 10 words", "unbiased, at most 10 words"]
    rows = []
    for name, file, source in UNSEEN_TREES:
        rules = [files.get(file), files.get(f"{file}_no_bias")]
        if all(rules):
            summaries = [rule["summary"][part][source] for part in ("all", "short") for rule in rules]
            rows.append([name, *(_f1(summary["sentence_f1"]) for summary in summaries)])
    return header, rows


def unread_sentences(files: Results) -> Table:
    """The rows of `parsing` for sentences that were not read, and right branching."""
    header = ["trees", "model", "seeds", "F1", "max", SHORT, UNBIASED]
    rows = _unread(files) + [row for row in _parsed(files) if row["trees"] == "right branching"]
    return header, _in_columns(header, rows)


def label_recall(files: Results) -> Table:
    """Recall by label on sentences that were not read, of baselines, and of the papers' models."""
    header = ["trees", "model", "seeds", "F1", *LABELS]
    measured = [row for row in _unread(files) if not row["trees"].startswith("ensemble")]
    baselines = [row for row in _parsed(files) if not row["model"] and row["trees"] != "upper bound"]
    published = [row for row in central_rows(PARSING, "trees") if row.keys() & set(LABELS)]
    return header, _in_columns(header, measured + baselines + published)


def by_length(files: Results) -> Table:
    """Sentence F1 by length, by both rules."""
    return _by_group(files, "by_length", "words")


def by_genre(files: Results) -> Table:
    """Sentence F1 of each file of a treebank, by both rules, and the mean of the files."""
    return _by_group(files, "by_file", "genre")


def _by_group(files: Results, kind: str, heading: str) -> Table:
    """Sentence F1 by group of sentences: models by both rules, then baselines, which are the same by both.

    Args:
        files: results.
        kind: a key of `GROUPS`.
        heading: of the first column.
    """
    groups: dict[str, str] = {}
    columns: dict[str, list[dict[str, Mapping]]] = {}
    baselines: dict[str, list[dict[str, Mapping]]] = {}
    for results in sorted(files.values(), key=lambda results: results["protocol"]["branching_bias"] == "none"):
        found = results.get(kind, {})
        groups |= {group: str(content["num_sentences"]) for group, content in found.items()}
        for trees in next(iter(found.values()), {"summary": {}})["summary"]:
            scores = {group: content["summary"][trees]["sentence_f1"] for group, content in found.items()}
            if models := _models_of(trees, results):
                columns.setdefault(f"{_names(models)}, {trees}", []).append(scores)
            elif trees in ("right branching", "balanced"):
                baselines[trees] = [scores]
    columns |= baselines
    rows = [
        [group, count, *(" / ".join(_f1(scores[group]) for scores in rules) for rules in columns.values())]
        for group, count in groups.items()
    ]
    if kind == "by_file" and rows:
        f1 = [[[figure["mean"] for figure in scores.values()] for scores in rules] for rules in columns.values()]
        rows.append(["mean", "", *(" / ".join(per_cent(mean(values)) for values in rules) for rules in f1)])
    return [heading, "sentences", *columns], rows


def _models_of(trees: str, results: Mapping) -> list[dict]:
    """The models of a results file that gave the trees of a name; none for baselines."""
    return [m for m in results["models"] if trees.startswith("ensemble") or trees in m["scores"]["all"]]


def _names(models: Sequence[Mapping]) -> str:
    return ", ".join(dict.fromkeys(short_name(model["model"]) for model in models))


def _f1(figure: Mapping) -> str:
    """Mean and, of several checkpoints, standard deviation, in per cent."""
    deviation = figure["standard_deviation"]
    return per_cent(figure["mean"]) + ("" if deviation is None else f" ± {per_cent(deviation)}")


def agreement(files: Results) -> Table:
    """Spearman's rank correlation of a parser's mean agreement with all others and its F1 against gold trees."""
    kinds = ["all", *map(source_name, range(3)), "induced trees"]
    rows: dict[str, dict[str, str]] = {}
    for name, results in files.items():
        if "agreement" in results:
            row = rows.setdefault(name.removesuffix("_no_bias"), {"parsers": len(results["agreement"]["parsers"])})
            rule = {"right": "", "none": ", unbiased"}[results["protocol"]["branching_bias"]]
            parsers = results["agreement"]["parsers"]
            for kind, correlation in results["agreement"]["rank_correlation"][ALL].items():
                if correlation is not None:
                    ranked = [parser for parser in parsers if kind in ("all", parser["trees"])]
                    p = permutation_p([p["sentence_f1"] for p in ranked], [p[ALL] for p in ranked])
                    row[kind + rule] = f"{correlation:.2f} (p {p:.2f})"
    header = ["parsers", *kinds, "all, unbiased"]
    return ["file", *header], [[name, *(str(row.get(column, "")) for column in header)] for name, row in rows.items()]


def languages(files: Results) -> Table:
    """Other languages: a column a treebank, a row for each kind of model and baseline.

    A cell has F1 by the papers' rule and by the unbiased one, and the number of seeds.
    """
    measured: dict[str, dict[str, dict[str, str]]] = {}
    baselines: dict[str, dict[str, str]] = {}
    for results in files.values():
        language = Path(results["treebank"]).parent.name
        for trees, summary in results["summary"]["all"].items():
            if LEFT_OUT.search(trees):
                continue
            models = [model for model in results["models"] if trees in model["scores"]["all"]]
            if not models:
                baselines.setdefault(trees, {})[language] = per_cent(summary["sentence_f1"]["mean"])
                continue
            system = short_name(models[0]["model"]).replace(f"_{language}", "")
            cell = measured.setdefault(f"{system}, {trees}", {}).setdefault(language, {"seeds": f"({len(models)})"})
            cell[results["protocol"]["branching_bias"]] = _f1(summary["sentence_f1"])
            _, _, tokens = system.partition("_")
            unknown = baselines.setdefault(f"unknown words, models of {tokens or 'words'}", {})
            unknown[language] = per_cent(mean(model["unknown_words"] for model in models))
    columns = sorted({language for row in baselines.values() for language in row})
    cells = {
        name: {language: f"{cell['right']} / {cell['none']} {cell['seeds']}" for language, cell in row.items()}
        for name, row in sorted(measured.items())
    }
    rows = [[name, *(row.get(column, "") for column in columns)] for name, row in (cells | baselines).items()]
    return ["trees", *columns], rows


def syntax(files: Results) -> Table:
    """Accuracy on all pairs, and in brackets on those whose words the model knows, by test case."""
    return syntax_table([model for results in files.values() for model in results["models"]])


def word_order(files: Results) -> Table:
    """Accuracy of preferring a sentence to its words in another order."""
    rows = [
        [short_name(model["model"]), str(results["num_sentences"]), per_cent(model["accuracy"]), name]
        for name, results in files.items()
        for model in results["models"]
    ]
    return ["model", "sentences", "accuracy", "file"], rows


def punctuation(files: Results) -> Table:
    """F1 without marks and with marks as cues, by both rules: a row for each treebank and kind of model."""
    rows = []
    for name, results in files.items():
        if len(results["strengths"]) != 2:  # the strength was chosen by these
            continue
        kinds: dict[str, list[Mapping]] = {}
        for model in results["models"]:
            kind = short_name(model["model"].removesuffix("/trees.jsonl.xz"))
            kinds.setdefault(kind, []).append(model["sentence_f1"])
        for kind, scores in kinds.items():
            cells = [
                spread(100 * score[rule][f"{strength:g}"] for score in scores)
                for rule in ("right", "none")
                for strength in results["strengths"]
            ]
            number = "" if kind == "right branching" else f" ({len(scores)})"
            rows.append([_treebank_name(results), kind + number, *cells, name])
    return ["treebank", "model (runs)", "no marks", "cue", "no marks, unbiased", "cue, unbiased", "file"], rows


def punctuation_strengths(files: Results) -> Table:
    """F1 on validation trees by the strength of the cue, from which the strength was chosen."""
    chosen_by = {name: results for name, results in files.items() if len(results["strengths"]) > 2}
    strengths = dict.fromkeys(f"{value:g}" for results in chosen_by.values() for value in results["strengths"])
    header = ["validation trees", "model", "rule", *(f"k = {strength}" for strength in strengths), "file"]
    rows = [
        [
            _treebank_name(results),
            short_name(model["model"]),
            name_of_rule,
            *(per_cent(model["sentence_f1"][rule].get(strength)) for strength in strengths),
            name,
        ]
        for name, results in chosen_by.items()
        for model in results["models"]
        for rule, name_of_rule in (("right", "papers'"), ("none", "unbiased"))
    ]
    return header, rows


def _treebank_name(results: Mapping) -> str:
    """The language of a treebank in the folder of its language, else the name of its file, or of the folder."""
    path = Path(results["treebank"])
    if results.get("files", 1) > 1:
        return f"{path.parent.name} ({results['files']} files)"
    return path.parent.name if is_by_language(results) else path.name


def logical_inference(files: Results) -> Table:
    """Accuracy by number of operators, from the most that were trained on, a column for each run."""
    trained = min(results["recipe"]["max_train_operators"] for results in files.values())
    header, rows = logic_table(list(files), list(files.values()))
    return header, [row for row in rows if row and not (row[0].isdigit() and int(row[0]) < trained)]


def listops(files: Results) -> Table:
    """Accuracy by length, and how many lists induced trees find, then their baselines and published systems."""
    lengths = sorted(
        {n for run in files.values() for n in run["test"]["by_length"]}, key=lambda n: int(n.split("-")[0])
    )
    header = ["model", "parameters", "epochs", "accuracy", *(f"{length} tokens" for length in lengths)]
    header += ["recall of lists", "file"]
    rows, baselines = [], {}
    for name, run in files.items():
        groups = [run["test"]["by_length"].get(length) for length in lengths]
        cells = [per_cent(group and group["accuracy"]) for group in groups]
        trees = run["trees"] or {}
        recall = per_cent(trees["induced"]["list_recall"]) if trees else ""
        figures = [f"{run['parameters']:,}", str(run["epochs"]), per_cent(run["test"]["accuracy"])]
        rows.append([name, *figures, *cells, recall, name])
        if trees:
            baselines[RANDOM] = per_cent(trees[RANDOM]["list_recall"])
    others = [{"model": name, "recall of lists": recall} for name, recall in baselines.items()]
    return header, rows + _in_columns(header, others + central_rows(LISTOPS))


def narrative_cloze(files: Results) -> Table:
    """Recall of held-out events, a row for each kind of arguments and system."""
    header, rows = cloze_table(list(files.values()), list(files))
    return [*header[:-1], "file"], rows


def toy_english(files: Results) -> Table:
    """Perplexity and F1 on held-out sentences of the toy corpus, a row a layer, then right branching."""
    rows, baselines = [], {}
    for name, results in files.items():
        for trees, f1 in results["sentence_f1"].items():
            if trees.startswith("layer") or trees == "induced trees":
                rows.append([results["model_type"], trees, f"{results['test_perplexity']:.2f}", per_cent(f1), name])
            elif trees == "right branching":
                baselines[trees] = ["", trees, "", per_cent(f1), ""]
    return ["model", "trees", "perplexity", "F1", "file"], [*rows, *baselines.values()]


def speed(files: Results) -> Table:
    """Ratios and times of the benchmark: median and quartiles over its rounds."""
    rows = [
        [row["case"], row["figure"], row["spread"], results["machine"].get("gpu", results["machine"]["cpu"]), name]
        for name, results in files.items()
        for row in results["rows"]
        if not row["figure"].startswith("reference")
    ]
    return ["case", "figure", "median (quartiles)", "machine", "file"], rows


def released_models(folder: Path) -> Table:
    """Models of the Penn Treebank text, with links from docs/: perplexity, and F1 of the trees that `parse` gives."""
    header = ["model", "parameters", "perplexity, test", "F1, WSJ sample", SHORT, UNBIASED]
    rows, baseline = [], []
    for path in sorted(folder.glob("*/results.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        if "perplexity" not in results or results["data"]["text"]["dataset"] != PENN_TREEBANK:
            continue
        name = path.parent.name
        link, size = f"[{name}](../{folder.name}/{name}/README.md)", f"{results['parameters'] / 1e6:.1f} million"
        figures = ["no trees", "", ""]
        if scores := results.get("parsing"):
            (unbiased,) = [row for row in scores["all"] if row.endswith(", no branching bias")]
            main = unbiased.removesuffix(", no branching bias")
            f1 = [scores["all"][main], scores["short"][main], scores["all"][unbiased]]
            figures = [per_cent(score["sentence_f1"]) for score in f1]
            right = [per_cent(scores[part]["right branching"]["sentence_f1"]) for part in ("all", "short", "all")]
            baseline = [["right branching", "", "", *right]]
        rows.append([link, size, f"{results['perplexity']['test']:.2f}", *figures])
    return header, rows + baseline
