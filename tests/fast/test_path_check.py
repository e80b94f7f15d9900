"""Fast paths are tried on a tiny problem before `"auto"` takes them: wrong ones, failing ones, and right ones."""

import re
import threading
import time
import warnings

import pytest
import torch

from onlstm_hf.fast.onlstm import native
from onlstm_hf.fast.onlstm import operator as module
from onlstm_hf.fast.recurrence.path_check import TRUSTED_PATH, PathChecks
from tests.helpers.fast_paths import record_paths
from tests.helpers.native_operators import needs_operator
from tests.helpers.onlstm_problems import gradients, make_problem
from tests.helpers.recurrences import ordered_neurons

pytestmark = needs_operator(native.OPERATOR)


def wrong_values(inputs, options):
    trace = native.PATH.forward(inputs, options)
    return trace._replace(outputs=trace.outputs * 1.05)


def wrong_gradients(*arguments):
    gradients = native.PATH.backward(*arguments)
    return gradients._replace(hidden=-gradients.hidden)


def not_finite(inputs, options):
    trace = native.PATH.forward(inputs, options)
    return trace._replace(last_cell=trace.last_cell * float("nan"))


def failing(*_):
    raise RuntimeError("no kernel image is available")


def slow(*arguments):
    time.sleep(0.2)
    return wrong_values(*arguments)


@pytest.fixture
def add_path(monkeypatch):
    """Puts a path before all others that is tried first; returns the list of the paths that run."""

    def add(forward=native.PATH.forward, backward=native.PATH.backward) -> list[tuple[str, str]]:
        path = native.PATH._replace(forward=forward, backward=backward, is_checked=True)
        monkeypatch.setattr(module.RECURRENCE, "paths", {"new": path, **module.RECURRENCE.paths})
        ran = record_paths(monkeypatch, module.RECURRENCE)

        def compute(name, setting):
            already = len(ran)
            results = module.RECURRENCE.solve_tiny_problem(name, setting)
            if name == TRUSTED_PATH:  # what a path is compared with is not counted
                del ran[already:]
            return results

        monkeypatch.setattr(module.RECURRENCE, "checks", PathChecks(compute, module.RECURRENCE.paths))
        return ran

    return add


@pytest.fixture
def problem():
    return make_problem(5, 3, 2, 3, torch.float32, padding="left")


def test_a_path_that_is_right_is_taken_and_tried_once_for_each_setting(add_path, problem):
    ran = add_path()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = gradients(problem, "auto")
    tried = [("new", "forward"), ("new", "backward")]
    assert ran == tried * 2
    gradients(problem, "auto")
    assert ran == tried * 3
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ordered_neurons(*make_problem(5, 3, 2, 3, torch.bfloat16))
    assert ran == tried * 4 + [("new", "forward")]
    assert all(map(torch.equal, first, gradients(problem, "native")))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ({"forward": wrong_values}, r"does not compute what the native one does \(relative error 0\.05\)"),
        ({"backward": wrong_gradients}, r"does not compute what the native one does \(relative error 2\)"),
        ({"forward": not_finite}, r"does not compute what the native one does \(relative error nan\)"),
        ({"forward": failing}, "it failed with RuntimeError: no kernel image is available"),
        ({"backward": failing}, "it failed with RuntimeError: no kernel image is available"),
    ],
)
def test_a_path_that_is_wrong_or_fails_is_not_taken_and_warned_of_once(add_path, problem, path, message):
    add_path(**path)
    with pytest.warns(RuntimeWarning) as warned:
        results = [(*ordered_neurons(*problem), *gradients(problem, "auto")) for _ in range(3)]
    (warning,) = warned
    assert re.search(f"new implementation is not used on cpu \\(float32\\).*{message}", str(warning.message))
    expected = (*ordered_neurons(*problem, "native"), *gradients(problem, "native"))
    for result in results:
        assert all(map(torch.equal, result, expected))


def test_a_path_that_is_asked_for_by_name_runs_as_it_is(add_path, problem):
    ran = add_path(wrong_values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = ordered_neurons(*problem, "new").outputs
    assert torch.equal(outputs, 1.05 * ordered_neurons(*problem, "native").outputs)
    assert [name for name, _ in ran] == ["new", "native"]


def test_threads_that_come_at_once_wait_for_one_answer(add_path, problem):
    ran = add_path(slow)
    expected = ordered_neurons(*problem, "native")
    results = []
    with pytest.warns(RuntimeWarning) as warned:
        threads = [threading.Thread(target=lambda: results.append(ordered_neurons(*problem))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(warned) == 1 and ran.count(("new", "forward")) == 1
    assert len(results) == 6
    assert all(torch.equal(ours, theirs) for result in results for ours, theirs in zip(result, expected, strict=True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad, torch.random.fork_rng])
def test_trying_a_path_leaves_random_numbers_and_the_modes_of_the_caller_as_they_are(add_path, mode):
    add_path()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with mode(), torch.autocast("cpu", torch.bfloat16):
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        ordered_neurons(*make_problem_without_seed())
        after = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        assert before == after
        assert torch.equal(torch.rand(4), expected)


def make_problem_without_seed():
    return [torch.zeros(5, 2, 14), torch.zeros(14, 3), torch.zeros(2, 3), torch.zeros(2, 1, 3)]


def test_a_path_is_tried_with_gradients_though_the_caller_wants_none(add_path, problem):
    add_path(backward=wrong_gradients)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="relative error 2"):
        ordered_neurons(*problem)


def test_a_compiled_model_tries_a_path_before_it_takes_it(add_path, problem):
    ran = add_path(wrong_values)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *tensors: ordered_neurons(*tensors).outputs, backend="aot_eager", fullgraph=True)
    with pytest.warns(RuntimeWarning, match="relative error 0.05"):
        outputs = compiled(*problem[:4])
    assert torch.equal(outputs, ordered_neurons(*problem[:4], implementation="native").outputs)
    outputs.sum().backward()
    assert ("native", "backward") in ran and ran[-1] != ("new", "backward")


def test_without_the_compiled_operator_a_path_that_runs_is_taken(add_path, problem, monkeypatch):
    monkeypatch.setitem(module._PATHS, "native", native.PATH._replace(obstacle=lambda sequence: "it is not installed"))
    ran = add_path(wrong_values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ordered_neurons(*problem)
    assert ran[-1] == ("new", "forward")


def test_only_the_kernels_for_gpus_are_tried():
    assert {name for name, path in module._PATHS.items() if path.is_checked} == {"triton"}
