from contextlib import suppress

import pytest
import torch
from torch import nn

from onlstm_hf.utils.evaluation_mode import evaluation_mode


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_mode_of_each_module_is_restored(fails):
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()))
    model[1][0].eval()  # like a frozen module in finetuning
    before = modes(model)
    with suppress(KeyError), evaluation_mode(model):
        assert not any(modes(model))
        if fails:
            raise KeyError
    assert modes(model) == before


def test_the_mode_of_a_compiled_model_is_restored():
    model = torch.compile(nn.Sequential(nn.Dropout(), nn.Linear(2, 2)), backend="eager")
    with evaluation_mode(model):
        assert not any(modes(model))
    assert all(modes(model)) and len(modes(model)) == 4


@pytest.mark.parametrize("gradients", [False, True])
def test_gradients_are_recorded_on_request(gradients):
    model = nn.Linear(2, 2)
    with torch.no_grad(), evaluation_mode(model, gradients):
        output = model(torch.ones(1, 2))
    assert output.requires_grad is gradients and output.is_inference() is not gradients
