"""Stages of a model that was trained by several runs."""

import json

import pytest

from onlstm_hf.utils.training_stages import epochs_of, previous_stages, training_stages

RUN = {
    "validation_perplexity": 90.5,
    "updates": 7,
    "training_seconds": 1800.0,
    "recipe": {"num_epochs": 2, "init_from": None},
}
RELEASED = {
    "perplexity": {"validation": 80.0, "test": 81.0},
    "training": {"updates": 9, "recipe": {"num_epochs": 3, "init_from": "runs/first/best"}},
}


def test_a_run_and_a_released_model_are_one_stage_each():
    assert training_stages(RUN) == [
        {"goes_on": False, "epochs": 2, "updates": 7, "seconds": 1800.0, "validation": 90.5, "test": None}
    ]
    assert training_stages(RELEASED) == [
        {"goes_on": True, "epochs": 3, "updates": 9, "seconds": None, "validation": 80.0, "test": 81.0}
    ]


def test_recorded_stages_are_returned_unchanged():
    stages = training_stages(RUN) + training_stages(RELEASED)
    assert training_stages(RUN | {"stages": stages}) == stages
    assert training_stages(RELEASED | {"training": RELEASED["training"] | {"stages": stages}}) == stages


@pytest.mark.parametrize("folder", ["released", "run/best"])
def test_stages_are_found_for_released_checkpoints_and_runs(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    assert previous_stages(tmp_path / folder) == []
    (tmp_path / folder.split("/")[0] / "results.json").write_text(json.dumps(RUN))
    assert previous_stages(tmp_path / folder) == training_stages(RUN)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"training": 3}', '{"recipe": {}}', '{"recipe": "none"}'])
def test_unrelated_results_have_no_stages(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    assert previous_stages(tmp_path) == []


def test_epochs_are_summed_over_stages():
    first, second = training_stages(RUN)[0], training_stages(RELEASED)[0]
    assert epochs_of([first]) == "2"
    assert epochs_of([first, second]) == "5"
    assert epochs_of([second, first]) == "+ 5"


def test_the_epochs_of_a_run_are_its_actual_ones_and_unknown_if_it_had_a_number_of_updates():
    early = {"epochs": 1, "recipe": RUN["recipe"] | {"num_epochs": 1000}}
    assert epochs_of(training_stages(RUN | early)) == "1"
    assert epochs_of(training_stages(RELEASED | {"training": RELEASED["training"] | early})) == "1"
    (short,) = training_stages(RUN | {"recipe": RUN["recipe"] | {"max_steps": 7}})
    assert (short["epochs"], short["updates"]) == (None, 7)
    assert epochs_of([short, *training_stages(RUN)]) == ""
