import json

import pytest

from eval.report.by_task.language_models import HEADER as OVERVIEW_HEADER
from eval.report.by_task.language_models import overview
from eval.report.by_task.languages import is_by_language, language_table
from eval.report.by_task.parsing import summarize
from eval.report.by_task.training_runs import read_training_runs, training_table
from eval.report.results_files import Run
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.treebank import GoldTree

GOLD = [GoldTree.from_bracket("(S (NP (D the) (N cat)) (VP (V sat) (ADV (A very) (B still))))")]
WORDS = list(GOLD[0].words)
RIGHT, BALANCED = [5, 4, 3, 2, 1], [1, 1, 3, 1, 2]


def parsing_run(number, language, rule, distances_of_seeds, kind="", unknown_words=0.25):
    """A run that scored one model a list of distances."""
    scores = [score_parses([tree_from_distances(distances, WORDS)], GOLD) for distances in distances_of_seeds]
    models = [
        {
            "model": f"runs/onlstm_{language}{kind}/best",
            "seed": seed,
            "unknown_words": unknown_words,
            "scores": {"all": {"layer 2": score.to_dict()}},
        }
        for seed, score in enumerate(scores)
    ]
    summary = {"layer 2": summarize(scores), "right branching": summarize(scores[:1])}
    content = {"models": models, "protocol": {"branching_bias": rule}, "summary": {"all": summary}}
    return Run(number, f"{number}.json", content | {"treebank": f"data/languages/{language}/test.mrg"})


def test_languages_are_columns_and_models_have_a_row_for_each_rule():
    right, balanced = (
        100 * score_parses([tree_from_distances(distances, WORDS)], GOLD).sentence_f1
        for distances in (RIGHT, BALANCED)
    )
    runs = [
        parsing_run(1, "zh", "none", [RIGHT]),
        parsing_run(2, "zh", "right", [RIGHT, BALANCED]),
        parsing_run(3, "es", "right", [BALANCED], unknown_words=0.5),
        parsing_run(4, "es", "right", [RIGHT], kind="_subwords", unknown_words=0),
    ]
    header, rows = language_table(runs)
    deviation = abs(right - balanced) / 2**0.5
    assert header == ["trees", "es", "zh"]
    assert rows == [
        ["onlstm, layer 2", f"{balanced:.1f} (1)", f"{(right + balanced) / 2:.1f} ± {deviation:.1f} (2)"],
        ["onlstm, layer 2, no branching bias", "-", f"{right:.1f} (1)"],
        ["onlstm, words unknown to it", "50.0", "25.0"],
        ["onlstm_subwords, layer 2", f"{right:.1f} (1)", "-"],
        ["onlstm_subwords, words unknown to it", "0.0", "-"],
        ["right branching", f"{right:.1f}", f"{right:.1f}"],
        ["run", "[3] [4]", "[2] [1]"],
    ]
    assert right != balanced


@pytest.mark.parametrize(("treebank", "answer"), [("languages/nl/test.mrg", True), ("wsj_sample/wsj.mrg", False)])
def test_a_treebank_in_the_folder_of_its_language_is_of_another_language(treebank, answer):
    assert is_by_language(Run(1, "", {"treebank": f"$ONLSTM_SHARED/data/{treebank}"})) is answer


def test_training_runs_of_a_folder_are_a_row_and_a_figure_that_one_lacks_is_of_the_others(tmp_path):
    recipe = {"dataset": "shared/ptb", "train_split": "train", "num_epochs": 3}
    common = {"parameters": 1200, "training_seconds": 1800}
    files = {
        "small/seed_2.json": common | {"validation_perplexity": 80, "recipe": recipe | {"seed": 2}},
        "small/seed_10.json": common
        | {"validation_perplexity": 84, "test_perplexity": 90.0, "recipe": recipe | {"seed": 10}},
        "nl/onlstm/seed_1.json": common
        | {
            "validation_perplexity": 70.5,
            "validation_unknown_words": 0.25,
            "test_perplexity": 60.0,
            "recipe": {"train_files": ["text/nl/train.txt"], "num_epochs": 1, "seed": 1},
        },
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "small" / "seed_2.trees.jsonl.xz").touch()
    header, rows = training_table(read_training_runs(tmp_path))
    folders = [f"`{(tmp_path / name).as_posix()}`" for name in ("nl/onlstm", "small")]
    assert len(header) == len(rows[0])
    assert rows == [
        ["onlstm", "1", "nl/train.txt", "1,200", "1", "0.5", "70.50", "60.00", "25.0", folders[0]],
        ["small", "2, 10", "shared/ptb, train", "1,200", "3", "0.5", "82.00 ± 2.83", "90.00 (1 of 2)", "", folders[1]],
    ]


def perplexity_run(number, model, of_texts, adapted=None, method="cache", **coverage):
    scores = {f"$ONLSTM_SHARED/data/{text}": {"perplexity": value, **coverage} for text, value in of_texts.items()}
    adaptation = adapted and {"method": method, "scores": {"data/ptb/test.txt": {"perplexity": adapted}}}
    content = {"model": model, "seed": 3, "num_parameters": 1200, "scores": scores, "adaptation": adaptation}
    return Run(number, f"{number}.json", content)


def test_a_language_model_is_a_row_with_its_lowest_adapted_perplexity_and_its_training(tmp_path):
    released = tmp_path / "released"
    released.mkdir()
    (released / "results.json").write_text(json.dumps({"training": {"recipe": {"num_epochs": 7}}}))
    seed = {
        "parameters": 1300,
        "training_seconds": 5400,
        "validation_perplexity": 95.0,
        "test_perplexity": 90.0,
        "test_unknown_words": 0.5,
        "recipe": {"train_files": ["ptb/train.txt"], "num_epochs": 2, "seed": 1, "init_from": "runs/one/best"},
    }
    trained = {"results/small": [seed], "results/scored": [seed], "results/languages/nl": [seed]}
    texts = {"ptb/valid.txt": 80, "ptb/test.txt": 75.125}
    runs = [
        perplexity_run(1, str(released), texts, adapted=70.0, method="dynamic"),
        perplexity_run(2, str(released), texts, adapted=65.5, unknown_words=0.061),
        perplexity_run(3, "runs/scored/best", {"ptb/test.txt": 81}),
        perplexity_run(4, "runs/other", {"wikitext/test.txt": 300}),
    ]
    rows = overview(runs, trained)
    measured = [row for row in rows if not row[0].endswith("(published)")]
    assert all(len(row) == len(OVERVIEW_HEADER) for row in rows)
    assert measured == [
        ["released", "3", "1,200", "7", "", "80.00", "75.12", "65.50 (cache)", "6.1 %", "[1] [2]"],
        ["scored", "3", "1,200", "+ 2", "1.5", "", "81.00", "", "", "[3]"],
        ["small", "1", "1,300", "+ 2", "1.5", "95.00", "90.00", "", "50.0 %", "`results/small`"],
    ]
    (published,) = (row for row in rows if row[0] == "AWD-LSTM (published)")
    assert published[5:8] == ["60.00", "57.30", "52.80 (cache)"]
