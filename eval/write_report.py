"""Writes RESULTS.md and the tables of other pages from the results files.

    python eval/write_report.py

Results files come from `--output` of the scripts here and from `--results` of training/train_seeds.py. To add a row,
put such a file into eval/results and run this script. It fills each page between the lines `<!-- report: NAME -->` and
`<!-- /report -->`.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.report import sections, tasks
from eval.report.by_task.logic import draw_accuracies, logic_table
from eval.report.by_task.narrative_cloze import cloze_table
from eval.report.by_task.syntax import syntax_table
from eval.report.published import published_tables
from eval.report.results_files import read_results
from eval.report.tables import markdown_table
from eval.task import run_task, task_parser
from onlstm_hf.utils.files import written_file

# Tables that take all results files of one task.
BY_TASK = {
    "adaptation": (tasks.LANGUAGE_MODELLING, sections.adaptation_settings),
    "syntax": (tasks.SYNTAX, syntax_table),
    "word-order": (tasks.WORD_ORDER, sections.word_order),
    "logical-inference": (tasks.LOGICAL_INFERENCE, logic_table),
    "listops": (tasks.LISTOPS, sections.listops),
    "narrative-cloze": (tasks.NARRATIVE_CLOZE, cloze_table),
    "toy-english": (tasks.TOY_ENGLISH, sections.toy_english),
    "punctuation": (tasks.PUNCTUATION, sections.punctuation),
    "punctuation-strengths": (tasks.PUNCTUATION, sections.punctuation_strengths),
    "speed": (tasks.SPEED, sections.speed),
}
TASKS = (*dict.fromkeys(task for task, _ in BY_TASK.values()), tasks.PARSING, tasks.UNKNOWN_WORDS)
INTRODUCTION = """\
# Results

`python eval/write_report.py` generates this file.

- `file` names a file of `eval/results/`. It has the command that reproduces the row, the date, machine and versions,
  and further figures. A name with `/` is a folder of training runs, with the recipe, versions and figures of each.
- Commands read data from the folder that the environment variable `ONLSTM_SHARED` names.
- Rows with several seeds show mean ± standard deviation.
- Published rows are the papers' models, systems like a measured one, and the best known. Their `file` is the place
  where the figure stands. [docs/published.md](docs/published.md) has all published figures and explains these places.
- [docs/speed.md](docs/speed.md) has the speed measurements."""
# Heading, name of the table, and the text below the heading. A table without measured rows is left out.
LAYOUT = """\
## Language modelling | language-models | Perplexity of the Penn Treebank text, read as one stream. `test, \
adapted` is the perplexity after adaptation to the test text. Rows whose file is a folder read the validation text in \
ten rows, as the papers do. `+` before the epochs means that the model started from another one. The weights of a \
mixture are tuned on the validation text. [All published figures](docs/published.md#language-modelling).
### Adaptation | adaptation | Settings were chosen by validation perplexity.
## Unsupervised constituency parsing | parsing | Sentence F1 in per cent. Measured rows are for the WSJ sample \
(wsj_0001 to wsj_0199). Published rows are for section 23 and, for at most 10 words, for WSJ10 (such sentences of the \
whole treebank). `read` says whether the model was trained on the words of these sentences. [All published \
figures](docs/published.md#unsupervised-constituency-parsing).
### Recall by label | label-recall | Recall of gold constituents by label in per cent, without whole \
sentences, for models that have not read the sentences. [All published figures](docs/published.md#recall-by-label).
### Agreement | agreement | Rank correlation between F1 and the agreement with all other parsers. In \
brackets, how often chance alone gives a correlation as far from 0.
### Other languages | languages | Sentence F1 on unread sentences, papers' rule / unbiased rule (seeds).
### Punctuation as a cue | punctuation | Sentence F1 in per cent if punctuation raises the distance of the \
next word by four standard deviations ([docs/text.md](docs/text.md#punctuation)). This is not the papers' protocol, \
which has no punctuation.
## Targeted syntactic evaluation | syntax | Accuracy on all pairs, and in brackets on pairs without unknown words. \
The published models were trained on 90 million words of Wikipedia. [All published \
figures](docs/published.md#targeted-syntactic-evaluation).
## Word order | word-order | How often a model prefers a sentence to a random order of its words, in per cent.
## Logical inference | logical-inference | Accuracy in per cent by number of operators, trained on at most 6. \
[All published figures](docs/published.md#logical-inference).
## ListOps | listops | Accuracy in per cent by length, trained on at most 100 tokens. [All published \
figures](docs/published.md#listops).
## Scripts: the narrative cloze | narrative-cloze | Recall at 25 for held-out events in per cent. [All \
published figures](docs/published.md#scripts-the-narrative-cloze).
## Toy English | toy-english | Scores on held-out sentences of the corpus of `training/quickstart.py`.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__, has_results=False)
    parser.add_argument("--folder", default=".", help="the checkout (the current folder)")
    return parser


def write_report(options: argparse.Namespace) -> None:
    """Writes RESULTS.md, the figure of logical inference, and the tables in README.md and docs/."""
    folder = Path(options.folder)
    files = {path.stem: read_results(path, TASKS) for path in sorted((folder / "eval" / "results").glob("*.json"))}
    if not files:
        raise FileNotFoundError("there are no results: run this in a checkout, or name its folder with --folder")
    tables = report_tables(files, folder)
    logic = {name: results for name, results in files.items() if results["task"] == tasks.LOGICAL_INFERENCE}
    if logic:
        draw_accuracies(logic, str(folder / "docs" / "logic.svg"))
    parts = [INTRODUCTION]
    for heading, name, sentence in ([part.strip() for part in line.split("|")] for line in LAYOUT.splitlines()):
        if name in tables:
            parts += [f"{heading}\n{sentence}".strip(), tables[name]]
    with written_file(folder / "RESULTS.md") as file:
        file.write("\n\n".join(parts) + "\n")
    for page in (folder / "README.md", *sorted((folder / "docs").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if (filled := fill_markers(text, tables)) != text:
            page.write_text(filled, encoding="utf-8", newline="\n")


def report_tables(files: Mapping[str, dict], folder: Path) -> dict[str, str]:
    """Returns all non-empty tables by name, as Markdown."""

    def of(task: str) -> dict[str, dict]:
        return {name: results for name, results in files.items() if results["task"] == task}

    lm, parsed = of(tasks.LANGUAGE_MODELLING), of(tasks.PARSING)
    by_language = {name: results for name, results in parsed.items() if sections.is_by_language(results)}
    by_genre = {name: results for name, results in parsed.items() if "by_file" in results}
    english = {name: results for name, results in parsed.items() if name not in by_language | by_genre}
    english_rows = sections.parsing_rows(english)
    trained = sections.read_training_runs(folder / "eval" / "results")
    tables = {name: table(of(task)) for name, (task, table) in BY_TASK.items() if of(task)}
    tables |= {
        "unseen-trees": sections.unseen_trees(parsed),
        "language-models": lm and sections.language_models(lm, trained),
        "ablations": sections.ablations(trained),
        **{name: sections.training_runs(trained, name) for name in sections.RUN_TABLES},
        "parsing": english and sections.parsing(english_rows),
        "unread-sentences": english and sections.unread_sentences(english_rows),
        "label-recall": english and sections.label_recall(english_rows),
        "by-length": english and sections.by_group(english, "by_length", "words"),
        "by-genre": by_genre and sections.by_group(by_genre, "by_file", "genre"),
        "agreement": english and sections.agreement(english),
        "languages": by_language and sections.languages(by_language),
        "released-models": sections.released_models(folder / "model_cards"),
        "released-languages": sections.released_language_models(folder / "model_cards"),
        **published_tables(),
    }
    return {name: markdown_table(*table) for name, table in tables.items() if table and table[1]}


def fill_markers(text: str, tables: Mapping[str, str]) -> str:
    """Replaces the text between the markers of a page by the tables that they name."""

    def table(match: re.Match) -> str:
        start, name, end = match.groups()
        if name not in tables:
            raise ValueError(f"there is no table {name}; the tables are {', '.join(tables)}")
        return f"{start}\n{tables[name]}\n{end}"

    return re.sub(r"(<!-- report: (\S+) -->)\n.*?(<!-- /report -->)", table, text, flags=re.DOTALL)


main = partial(run_task, "eval/write_report.py", build_parser, write_report)

if __name__ == "__main__":
    sys.exit(main())
