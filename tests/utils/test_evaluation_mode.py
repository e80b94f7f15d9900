"""Evaluation mode for a while, also where several threads ask for it at once."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from onlstm_hf.scoring.prefixes import sequence_log_probabilities
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from tests.helpers.tiny_models import MODEL_TYPES, VOCAB_SIZE

NUM_THREADS, REPETITIONS = 8, 3


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.fixture
def sentences() -> list[list[int]]:
    torch.manual_seed(3)
    return [torch.randint(VOCAB_SIZE - 1, (length,)).tolist() for length in range(2, 9)]


def use(model, sentences):
    """The trees, where the model has some, and the log probabilities."""
    trees = model.parse(sentences, progress=False) if model.induces_trees else []
    return [tree.distances for tree in trees], sequence_log_probabilities(model, sentences)


@pytest.fixture
def hurried_threads():
    """Threads take turns so often that what one does to another shows."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurried_threads")
@pytest.mark.parametrize("model_type", list(MODEL_TYPES))
def test_threads_that_share_a_model_in_training_get_what_it_computes_in_evaluation(model_type, sentences):
    model = MODEL_TYPES[model_type].make()
    expected = use(model, sentences)
    model.train()
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    barrier = Barrier(NUM_THREADS)

    def work(_) -> list:
        barrier.wait()
        return [use(model, sentences) for _ in range(REPETITIONS)]

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        found = [result for results in threads.map(work, range(NUM_THREADS)) for result in results]
    assert len(found) == NUM_THREADS * REPETITIONS and all(result == expected for result in found)
    assert all(modes(model))
    assert all(torch.equal(tensor, values[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("fails", [False, True])
def test_each_module_has_the_mode_afterwards_that_it_had_before(fails):
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()))
    model[1][0].eval()  # as where it is frozen in finetuning
    before = modes(model)
    try:
        with evaluation_mode(model):
            assert not any(modes(model))
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert modes(model) == before


def test_overlapping_blocks_of_a_model_and_of_one_around_it_end_with_the_last():
    inner = nn.Sequential(nn.Dropout(), nn.Dropout())
    outer = nn.Sequential(inner, nn.Dropout())
    first, second = (evaluation_mode(model, gradients=True) for model in (outer, inner))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert outer.training and not any(modes(inner))
    second.__exit__(None, None, None)
    assert all(modes(outer))


def test_a_compiled_model_has_its_mode_again():
    model = torch.compile(nn.Sequential(nn.Dropout(), nn.Linear(2, 2)), backend="eager")
    with evaluation_mode(model):
        assert not any(modes(model))
    assert all(modes(model)) and len(modes(model)) == 4


@pytest.mark.parametrize("gradients", [False, True])
def test_operations_are_recorded_on_request(gradients):
    model = nn.Linear(2, 2)
    with torch.no_grad(), evaluation_mode(model, gradients):
        output = model(torch.ones(1, 2))
    assert output.requires_grad is gradients and output.is_inference() is not gradients
