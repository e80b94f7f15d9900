"""The sections of RESULTS.md: for each task one Markdown table of what was measured and what was published."""

from collections.abc import Sequence

from eval.report.agreement import agreement_table
from eval.report.by_task.languages import NOTE as LANGUAGES_NOTE
from eval.report.by_task.languages import is_by_language, language_table
from eval.report.by_task.listops import PUBLISHED_NOTE as LISTOPS_NOTE
from eval.report.by_task.listops import accuracy_table, depth_table, trees_table
from eval.report.by_task.logic import PUBLISHED as PUBLISHED_ACCURACIES
from eval.report.by_task.logic import PUBLISHED_NOTE as LOGIC_NOTE
from eval.report.by_task.logic import logic_table
from eval.report.by_task.narrative_cloze import NOTE as NARRATIVE_CLOZE_NOTE
from eval.report.by_task.narrative_cloze import cloze_table
from eval.report.by_task.parsing import INTERVAL_NOTE, PUBLISHED_MAX_WORDS, parsing_table, published_rows
from eval.report.by_task.syntax import BLIMP, MARVIN_LINZEN, accuracies, marvin_linzen_sections, published_accuracies
from eval.report.by_task.syntax import PUBLISHED as PUBLISHED_SYNTAX
from eval.report.by_task.syntax import PUBLISHED_NOTE as SYNTAX_NOTE
from eval.report.perplexities import settings_at_an_edge
from eval.report.results_files import Run, short_name, text_name
from eval.report.tables import markdown_table
from eval.report.tasks import (
    LANGUAGE_MODELLING,
    LISTOPS,
    LOGICAL_INFERENCE,
    NARRATIVE_CLOZE,
    PARSING,
    PUNCTUATION,
    SPEED,
    SYNTAX,
    TOY_ENGLISH,
    UNKNOWN_WORDS,
    WORD_ORDER,
)
from eval.speed.rows import HEADER as SPEED_HEADER
from eval.speed.rows import SETTINGS_NOTE, Row, with_rows_over_all_runs
from onlstm_hf.hub.cards.published import citation, published_figures

PUBLISHED_PARSING_NOTE = (
    "Rows marked as published: sentence F1 over several seeds, on the WSJ test set (section 23), on WSJ10 or on short "
    "sentences of the sample, each with its source; `secondary` are those that were taken from a list of reference "
    "figures and not checked against the paper, `computed` those that were computed for this project, by the papers' "
    "rule and the authors' sentence F1, from trees that the source holds. Systems other than ON-LSTM and PRPN read "
    "the text of sections 2 to 21"
)

AGREEMENT_NOTE = (
    "What can be told without gold trees: mean sentence F1, in per cent, of the trees of each model and layer with "
    "those of others in the place of gold trees, and Spearman's rank correlation of that with F1 against gold trees"
)


def language_modelling(runs: Sequence[Run]) -> str:
    """A row for each text and model, as it is and with adaptation; runs that scored the same share it."""
    rows = {}
    models = [(run.number, model) for run in runs for model in run.results.get("models", [run.results])]
    coverage = {  # what any run found of a model and text
        (model["model"], text): score["unknown_words"]
        for _, model in models
        for text, score in model["scores"].items()
        if "unknown_words" in score
    }
    for run_number, results in models:
        adapted = results["adaptation"]
        scored = [("", results["scores"])]
        if adapted:
            settings = ", ".join(f"{name} {value:g}" for name, value in adapted["settings"].items())
            scored.append((f"{adapted['method']}: {settings}{_tuning(adapted)}", adapted["scores"]))
        for adaptation, scores in scored:
            for text, score in scores.items():
                row = (
                    short_name(results["model"]),
                    _cell(results["seed"]),
                    f"{results['num_parameters']:,}",
                    text_name(text),
                    adaptation,
                    f"{score['perplexity']:.2f}",
                    f"{score['word_perplexity']:.2f}",
                    f"{score['bits_per_character']:.3f}",
                    _share(coverage.get((results["model"], text))),
                )
                rows.setdefault(row, []).append(f"[{run_number}]")
    measured = [[*row, " ".join(numbers)] for row, numbers in rows.items()]
    units = ["perplexity", "per word", "bits per character", "unknown words"]
    header = ["model", "seed", "parameters", "text", "adaptation", *units, "run"]
    table = markdown_table(header, measured)
    return (
        "Each text is one stream here. The model cards cut the validation text into ten rows, as the papers do, which "
        f"gives slightly other figures ([why](docs/evaluation.md#perplexity)).\n\n{table}"
    )


def _tuning(adapted: dict) -> str:
    tuning = adapted["tuning"]
    if tuning is None:
        return ""
    edges = settings_at_an_edge(adapted)
    beyond = f"; none beyond this {' and '.join(edges)} was tried" if edges else ""
    tokens = f"{tuning['num_tokens']:,} tokens of {text_name(tuning['text'])}"
    return f" (best of {len(tuning['grid'])} on {tokens}{beyond})"


def _share(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f} %"


def parsing(runs: Sequence[Run]) -> str:
    """The table of English, and that of other languages where there are such runs."""
    by_language = [run for run in runs if is_by_language(run)]
    english = [run for run in runs if not is_by_language(run)]
    sections = [_parsing_of_english(english)] if english else []
    compared = [_agreement(run) for run in english if "agreement" in run.results]
    if compared:
        sections += ["### Agreement of models and layers", f"{AGREEMENT_NOTE}.", *compared]
    if by_language:
        sections.append(f"### Other languages\n\n{LANGUAGES_NOTE}.\n\n{markdown_table(*language_table(by_language))}")
    return "\n\n".join(sections)


def _parsing_of_english(runs: Sequence[Run]) -> str:
    """A row for each layer and ensemble, then one for each baseline; figures of several checkpoints are means.

    Short sentences are those of the papers' WSJ10; runs with others have no figures for them. What scores the same in
    several runs has one row. Models that have not read the sentences come first.
    """
    measured, baselines = {}, {}
    for run in sorted(runs, key=lambda run: run.results.get("sentences_read") != "no"):
        results = run.results
        read = results.get("sentences_read") or ""
        summary = results["summary"]
        if results["max_words"] != PUBLISHED_MAX_WORDS:
            summary = {"all": summary["all"]}
        header, table = parsing_table(summary, PUBLISHED_MAX_WORDS)
        for name, *figures in table:
            place, number = text_name(results["treebank"]), f"[{run.number}]"
            is_of_all = name.startswith("ensemble")
            models = [model for model in results["models"] if is_of_all or name in model["scores"]["all"]]
            if models:
                names = ", ".join(dict.fromkeys(short_name(model["model"]) for model in models))
                seeds = ", ".join(_cell(model["seed"]) for model in models)
                unknown = ", ".join(dict.fromkeys(_share(model.get("unknown_words")) for model in models))
                rule = "" if results["protocol"]["branching_bias"] == "right" else ", no branching bias"
                measured.setdefault((f"{name}{rule}", names, seeds, place, read, *figures, unknown), []).append(number)
            else:
                baselines.setdefault((name, "", "", place, "", *figures, ""), []).append(number)
    rows = [[*row, " ".join(numbers)] for row, numbers in (measured | baselines).items()]
    published = published_figures(PARSING)
    for row, (name, *figures) in zip(published, published_rows(PUBLISHED_MAX_WORDS, published), strict=True):
        place = "WSJ section 23" if "wsj" in row else "wsj_0001-0199.mrg"
        rows.append([name, "", "", place, "", *figures, "", citation(row)])
    columns = ["model", "seed", "treebank", "read in training", *header[1:], "unknown words", "run"]
    table = markdown_table([header[0], *columns], rows)
    return f"In per cent, but for the depth; {INTERVAL_NOTE}. {PUBLISHED_PARSING_NOTE}.\n\n{table}"


def _agreement(run: Run) -> str:
    """The table of one run, with the short names of its models."""
    results = run.results
    names = {model["model"]: f"{short_name(model['model'])}, {_cell(model['seed'])}" for model in results["models"]}
    parsers = [parser | {"model": names[parser["model"]]} for parser in results["agreement"]["parsers"]]
    rule = "" if results["protocol"]["branching_bias"] == "right" else ", no branching bias"
    header, rows = agreement_table(results["agreement"] | {"parsers": parsers})
    return markdown_table([f"run [{run.number}]{rule}", *header[1:]], rows)


def syntax(runs: Sequence[Run]) -> str:
    """A table for each test, with a column for each model; of BLiMP one row a phenomenon."""
    columns = [(run, model) for run in runs for model in run.results["models"]]
    tables = []
    for test in (MARVIN_LINZEN, BLIMP):
        chosen = [(run, model) for run, model in columns if test in model["scores"]]
        if not chosen:
            continue
        scores = [model["scores"][test] for _, model in chosen]
        published = PUBLISHED_SYNTAX if test == MARVIN_LINZEN else ()
        header = [test, *(short_name(model["model"]) for _, model in chosen)]
        rows = [
            ["seed", *(_cell(model["seed"]) for _, model in chosen), *[""] * len(published)],
            ["run", *(f"[{run.number}]" for run, _ in chosen), *["published"] * len(published)],
        ]
        names = dict.fromkeys(name for score in scores for name in score["by_group"])
        sections = marvin_linzen_sections(names) if test == MARVIN_LINZEN else {"": sorted(names)}
        for section, groups in sections.items():
            if section:
                rows.append([f"*{section}*", *[""] * (len(chosen) + len(published))])
            for name in groups:
                figures = published_accuracies(name) if published else []
                rows.append([name, *(_accuracy(score["by_group"].get(name)) for score in scores), *figures])
        rows.append(["all", *map(_accuracy, scores), *[""] * len(published)])
        tables.append(markdown_table([*header, *(f"{model['system']} (published)" for model in published)], rows))
    note = f"Accuracy on all pairs, and in brackets on those whose words a model knows; {SYNTAX_NOTE}."
    return "\n\n".join([note, *tables])


def _accuracy(score: dict | None) -> str:
    return "-" if score is None else "{} ({})".format(*accuracies(score))


def logical_inference(runs: Sequence[Run]) -> str:
    """Accuracy by number of operators, a column for each run."""
    header, rows = logic_table([run.results["name"] for run in runs], [run.results for run in runs])
    empty = [""] * len(PUBLISHED_ACCURACIES)
    rows.append(["seed", "", *(_cell(run.results["recipe"]["seed"]) for run in runs), *empty])
    rows.append(["run", "", *(f"[{run.number}]" for run in runs), *["published"] * len(empty)])
    return f"Accuracy in per cent; {LOGIC_NOTE}.\n\n{markdown_table(header, rows)}"


def listops(runs: Sequence[Run]) -> str:
    """Accuracy by length and by depth, and the F1 of induced trees."""
    names, results = [run.results["name"] for run in runs], [run.results for run in runs]
    tables = [
        accuracy_table(names, results, [f"[{run.number}]" for run in runs]),
        trees_table(names, results),
        depth_table(names, results),
    ]
    return "\n\n".join([f"In per cent; {LISTOPS_NOTE}.", *(markdown_table(*table) for table in tables)])


def narrative_cloze(runs: Sequence[Run]) -> str:
    """A row for each kind of arguments and system, then the published ones."""
    results = [run.results for run in runs]
    documents = "; ".join(
        f"{part}: {numbers['num_documents']} documents, {numbers['num_events']:,} events, "
        f"{numbers['events_a_document']:.0f} a document"
        for part, numbers in results[0]["documents"].items()
    )
    table = markdown_table(*cloze_table(results, [f"[{run.number}]" for run in runs]))
    return f"{NARRATIVE_CLOZE_NOTE}. Of the runs, {documents}.\n\n{table}"


def speed(runs: Sequence[Run]) -> str:
    """The rows of the benchmark's summary, and of what several runs measured rows over all their rounds."""
    rows = [
        (Row.from_dict(row), f"[{run.number}]", run.results["machine"]["cpu"])
        for run in runs
        for row in run.results["rows"]
    ]
    table = [[*row.cells(), number] for row, number in with_rows_over_all_runs(rows)]
    return f"{SETTINGS_NOTE}.\n\n{markdown_table([*SPEED_HEADER, 'run'], table)}"


def toy_english(runs: Sequence[Run]) -> str:
    """A row for each layer of each model, then one for each baseline; those of several runs are the same."""
    rows, baselines = [], {}
    for run in runs:
        results, number = run.results, f"[{run.number}]"
        perplexity, seconds = f"{results['test_perplexity']:.2f}", f"{results['cpu_seconds']:.0f}"
        for name, f1 in results["sentence_f1"].items():
            figure = f"{100 * f1:.1f}"
            if name.startswith("layer") or name == "induced trees":
                rows.append([results["model_type"], str(results["seed"]), perplexity, seconds, name, figure, number])
            else:
                baselines.setdefault(("", "", "", "", name, figure), []).append(number)
    rows += [[*row, " ".join(numbers)] for row, numbers in baselines.items()]
    header = ["model", "seed", "perplexity", "seconds of the CPU", "trees", "sentence F1", "run"]
    return (
        "Held-out sentences of the toy corpus of `training/quickstart.py`. The seconds are those that the processor "
        f"worked for the whole command.\n\n{markdown_table(header, rows)}"
    )


def word_order(runs: Sequence[Run]) -> str:
    """A row for each model and text: how often it prefers a sentence to its words in another order."""
    rows = [
        [
            short_name(model["model"]),
            _cell(model["seed"]),
            ", ".join(map(text_name, run.results["files"])),
            str(run.results["num_sentences"]),
            f"{100 * model['accuracy']:.1f}",
            str(model["num_ties"]),
            f"[{run.number}]",
        ]
        for run in runs
        for model in run.results["models"]
    ]
    return markdown_table(["model", "seed", "text", "sentences", "accuracy", "ties", "run"], rows)


def punctuation(runs: Sequence[Run]) -> str:
    """A row for each treebank, model and rule: F1 without marks, and with marks as cues of each strength."""
    strengths = sorted({strength for run in runs for strength in run.results["strengths"]})
    rows = [
        [
            text_name(run.results["treebank"]),
            short_name(model["model"]),
            rule,
            *(f"{100 * scores[f'{k:g}']:.1f}" if f"{k:g}" in scores else "" for k in strengths),
            f"[{run.number}]",
        ]
        for run in runs
        for model in run.results["models"]
        for rule, scores in model["sentence_f1"].items()
    ]
    header = ["treebank", "model", "rule", *(f"k = {k:g}" if k else "no marks" for k in strengths), "run"]
    note = (
        "Sentence F1 where marks raise the distance of the next word by k standard deviations (docs/text.md): not the "
        "papers' protocol, which has no punctuation"
    )
    return f"{note}.\n\n{markdown_table(header, rows)}"


def unknown_words(runs: Sequence[Run]) -> str:
    """A row for each model and door: the share of unknown words of ordinary sentences."""
    rows = [
        [short_name(run.results["model"]), door, f"{100 * share:.1f} %", f"[{run.number}]"]
        for run in runs
        for door, share in run.results["unknown_words"].items()
    ]
    return markdown_table(["model", "read by", "unknown words", "run"], rows)


# By the task that a results file names: the heading, and what writes the section.
SECTIONS = {
    LANGUAGE_MODELLING: ("Language modelling", language_modelling),
    PARSING: ("Unsupervised constituency parsing", parsing),
    SYNTAX: ("Targeted syntactic evaluation", syntax),
    WORD_ORDER: ("Word order", word_order),
    PUNCTUATION: ("Punctuation as a cue", punctuation),
    UNKNOWN_WORDS: ("Unknown words of ordinary text", unknown_words),
    LOGICAL_INFERENCE: ("Logical inference", logical_inference),
    LISTOPS: ("ListOps", listops),
    NARRATIVE_CLOZE: ("Scripts: the narrative cloze", narrative_cloze),
    TOY_ENGLISH: ("Toy English", toy_english),
    SPEED: ("Speed", speed),
}


def _cell(value: object) -> str:
    return "" if value is None else str(value)
