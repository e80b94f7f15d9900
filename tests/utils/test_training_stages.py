"""How a model came about that was trained on, stage by stage."""

import json

import pytest

from onlstm_hf.utils.training_stages import epochs_and_hours, stages_before, training_stages

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


def test_a_run_and_a_released_model_are_a_stage_each():
    assert training_stages(RUN) == [
        {"goes_on": False, "epochs": 2, "updates": 7, "seconds": 1800.0, "validation": 90.5, "test": None}
    ]
    assert training_stages(RELEASED) == [
        {"goes_on": True, "epochs": 3, "updates": 9, "seconds": None, "validation": 80.0, "test": 81.0}
    ]


def test_stages_that_are_recorded_are_taken_as_they_are():
    stages = training_stages(RUN) + training_stages(RELEASED)
    assert training_stages(RUN | {"stages": stages}) == stages
    assert training_stages(RELEASED | {"training": RELEASED["training"] | {"stages": stages}}) == stages


@pytest.mark.parametrize("place", ["best/results.json", "results.json"])
def test_the_stages_of_a_checkpoint_are_found_in_its_folder_or_beside_it(tmp_path, place):
    (tmp_path / "best").mkdir()
    assert stages_before(tmp_path / "best") == []
    (tmp_path / place).write_text(json.dumps(RUN))
    assert stages_before(tmp_path / "best") == training_stages(RUN)


def test_epochs_and_hours_are_those_of_all_stages():
    first, second = training_stages(RUN)[0], training_stages(RELEASED)[0]
    assert epochs_and_hours([first]) == ("2", 0.5)
    assert epochs_and_hours([first, second | {"seconds": 3600}]) == ("5", 1.5)
    assert epochs_and_hours([second, first]) == ("+ 5", None)
