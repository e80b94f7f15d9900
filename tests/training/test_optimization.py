"""Learning rates, optimisers and the rule that starts averaging."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import get_wsd_schedule

from training.language_models.recipe import OptimizationArguments
from training.loop.optimization import bfloat16_speed, build_optimizer, has_stalled, learning_rate_factor


def test_warm_up_is_linear_and_the_cosine_falls_to_zero():
    arguments = OptimizationArguments(optimizer="adamw", schedule="cosine", warmup_steps=4)
    factors = [learning_rate_factor(step, arguments, 12) for step in range(14)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4:13] == pytest.approx([0.5 + 0.5 * math.cos(math.pi * n / 8) for n in range(9)])
    assert factors[8] == pytest.approx(0.5)
    assert factors[12] == factors[13] == 0.0
    constant = OptimizationArguments(schedule="constant", warmup_steps=2)
    assert [learning_rate_factor(step, constant, None) for step in (0, 1, 2, 10**6)] == [0.5, 1.0, 1.0, 1.0]


@given(st.integers(0, 9), st.integers(1, 12), st.integers(0, 30))
def test_the_decay_matches_transformers_except_for_its_empty_first_update(warmup_steps, decay_steps, stable_steps):
    steps = {"warmup_steps": warmup_steps, "decay_steps": decay_steps}
    arguments = OptimizationArguments(schedule="warmup_stable_decay", **steps)
    total_steps = warmup_steps + stable_steps + decay_steps
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = get_wsd_schedule(optimizer, warmup_steps, decay_steps, None, stable_steps, decay_type="linear")
    for step in range(total_steps + 2):
        factor = learning_rate_factor(step, arguments, total_steps)
        (theirs,) = scheduler.get_last_lr()
        if step < warmup_steps:
            theirs = (step + 1) / warmup_steps
        assert factor == pytest.approx(theirs)
        optimizer.step()
        scheduler.step()


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=20), st.integers(0, 3), st.sampled_from([0.5, 0.1]))
def test_plateaus_lower_the_rate_like_the_pytorch_scheduler(losses, patience, factor):
    arguments = OptimizationArguments(schedule="plateau", plateau_patience=patience, plateau_factor=factor)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, factor=factor, patience=patience, threshold=0, eps=0)
    for count, loss in enumerate(losses, start=1):
        scheduler.step(loss)
        rate = learning_rate_factor(0, arguments, None, losses[:count])
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=20), st.integers(1, 6))
def test_averaging_starts_by_the_rule_of_the_paper(losses, interval):
    """Compares with algorithm 1 of Merity et al. (2018), with its variables `t` and `logs`."""
    logs, stalled = [], False
    for t, loss in enumerate(losses):
        stalled = t > interval and loss > min(logs[: t - interval])
        logs.append(loss)
    assert has_stalled(losses, interval) == stalled


def test_optimizers_have_the_values_of_the_recipe():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    sgd = build_optimizer(model, OptimizationArguments(learning_rate=30.0, weight_decay=1.2e-6))
    assert isinstance(sgd, torch.optim.SGD)
    plain = build_optimizer(model, OptimizationArguments(optimizer="sgd", learning_rate=30.0))
    assert plain.state_dict() == sgd.state_dict()
    (group,) = sgd.param_groups
    assert (group["lr"], group["weight_decay"], group["momentum"], len(group["params"])) == (30.0, 1.2e-6, 0, 1)

    arguments = OptimizationArguments(
        optimizer="adamw", learning_rate=0.1, adam_beta1=0.0, adam_beta2=0.9, adam_epsilon=1e-9, weight_decay=0.2
    )
    (group,) = build_optimizer(model, arguments).param_groups
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.1, (0.0, 0.9), 1e-9, 0.2)
    assert type(build_optimizer(model, replace(arguments, optimizer="adam"))) is torch.optim.Adam


def test_the_speed_of_bfloat16_is_measured():
    assert bfloat16_speed() > 0
