"""The Triton path: interpreter and compiler without a GPU, and all tests with one (`-m gpu`)."""

import copy
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import torch

from onlstm_hf.fast.onlstm import triton as module
from onlstm_hf.fast.recurrence.step_graphs import MAX_KEPT, KeptBuffers
from tests.helpers import onlstm_problems
from tests.helpers.fast_paths import compile_kernel, run_in_the_interpreter
from tests.helpers.onlstm_problems import (
    PADDINGS,
    SHAPES,
    STATES,
    assert_near,
    gradients,
    in_float64,
    make_problem,
    on_device,
)
from tests.helpers.recurrences import ordered_neurons
from tests.helpers.requirements import library
from tests.helpers.tiny_models import KINDS

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


# A recording does not allow synchronisation.
RECORDING_FAILS = """
import sys, warnings
sys.path.insert(0, "..")
import torch
from onlstm_hf.fast.onlstm.kernels import Workspace
from test_onlstm_triton import check, make_problem, module

run_steps = Workspace.forward_steps

def synchronising_steps(workspace, num_steps):
    run_steps(workspace, num_steps)
    workspace.table[0].item()

Workspace.forward_steps = synchronising_steps
stream = torch.cuda.current_stream()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    check(make_problem(40, 2, 3, 2, torch.float32))
    check(make_problem(70, 2, 3, 2, torch.float32))
messages = [str(warning.message) for warning in caught]
print("warnings:", sum("CUDA graphs could not be recorded" in message for message in messages))
print("stream:", torch.cuda.current_stream() == stream)
print("refused:", module.KEPT.has_failed)
"""


@pytest.mark.slow
def test_the_kernels_are_correct_in_the_interpreter():
    run_in_the_interpreter("interpreted_triton.py")


@pytest.mark.parametrize(
    ("capability", "dtype", "num_chunks", "chunk_size"),
    [(80, "fp32", 115, 10), (90, "fp32", 115, 10), (90, "bf16", 115, 10), (90, "bf16", 1150, 1), (90, "fp32", 1, 40)],
)
def test_the_kernels_compile_without_a_gpu(capability, dtype, num_chunks, chunk_size, tmp_path, monkeypatch):
    triton = library("triton", reason="Triton is not installed")
    from onlstm_hf.fast.onlstm import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    row = triton.next_power_of_2(num_chunks)
    constants = {
        "NUM_CHUNKS": num_chunks,
        "CHUNK_SIZE": chunk_size,
        "SEQUENCE": triton.language.float32 if dtype == "fp32" else triton.language.bfloat16,
        "ROW": row,
        "UNITS": triton.next_power_of_2(chunk_size),
    }
    numbers = dict.fromkeys(("offset", "batch_size", "gates_pitch", "hidden_pitch"), "i32")
    types = {"table": "*i64", "gates": f"*{dtype}", "hidden": f"*{dtype}", "carried": "*fp32"} | numbers
    for kernel, chunks in ((kernels._forward_kernel, min(row, 16)), (kernels._backward_kernel, row)):
        compile_kernel(kernel, constants | {"CHUNKS": chunks}, types, capability)


on_gpu = partial(on_device, device="cuda")
check = partial(onlstm_problems.check, device="cuda")


@pytest.fixture
def without_tf32():
    precision = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    yield
    torch.backends.cuda.matmul.fp32_precision = precision


@pytest.fixture
def graphs_work():
    """The fallback to single launches must not hide a failed recording."""
    yield
    assert not module.KEPT.has_failed


@pytest.mark.usefixtures("without_tf32", "graphs_work")
class TestOnGPU:
    pytestmark = gpu

    @SHAPES
    @STATES
    @PADDINGS
    def test_it_computes_the_reference(self, length, batch_size, num_chunks, chunk_size, state, padding):
        check(make_problem(length, batch_size, num_chunks, chunk_size, torch.float32, state, padding))

    @pytest.mark.parametrize(
        ("num_chunks", "chunk_size"), [(115, 10), (40, 10), (1150, 1), (1, 300), (33, 33), (17, 3), (64, 4)]
    )
    @pytest.mark.parametrize("padding", [None, "everywhere"])
    def test_it_computes_the_reference_at_full_sizes(self, num_chunks, chunk_size, padding):
        check(make_problem(9, 5, num_chunks, chunk_size, torch.float32, padding=padding))

    def test_auto_chooses_it(self):
        problem = on_gpu(make_problem(7, 2, 3, 4, torch.float32))
        assert all(map(torch.equal, ordered_neurons(*problem), ordered_neurons(*problem, "triton")))

    @pytest.mark.parametrize("padding", [None, "left"])
    def test_it_is_correct_at_every_length_in_sequence(self, padding):
        for length in (70, 67, 71, 16, 4, 5, 1, 3, 35, 70):
            check(make_problem(length, 3, 5, 4, torch.float32, padding=padding))

    @pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize(("num_chunks", "chunk_size"), [(115, 10), (4, 4), (33, 33)])
    def test_products_in_bfloat16_stay_close(self, input_dtype, num_chunks, chunk_size):
        problem = make_problem(36, 20, num_chunks, chunk_size, torch.float32, padding="left")
        problem = problem._replace(input_gates=problem.input_gates.detach().to(input_dtype).requires_grad_())
        with torch.autocast("cuda", torch.bfloat16):
            check(problem, tolerance=0.02)

    def test_tf32_is_used_only_if_allowed(self):
        if torch.cuda.get_device_capability() < (8, 0):
            pytest.skip("needs a GPU that has TF32")
        problem = make_problem(36, 20, 40, 10, torch.float32)
        expected = ordered_neurons(*in_float64(problem), "reference").outputs
        errors = []
        for precision in ("ieee", "tf32", "ieee"):
            torch.backends.cuda.matmul.fp32_precision = precision
            outputs = ordered_neurons(*on_gpu(problem), "triton").outputs.cpu().double()
            errors.append(((outputs - expected).norm() / expected.norm()).item())
        assert max(errors[0], errors[2]) < 2e-6
        assert 10 * errors[0] < errors[1] < 5e-3

    def test_other_streams_have_their_own_buffers(self):
        problem = on_gpu(make_problem(40, 3, 5, 4, torch.float32))
        expected = gradients(problem, "reference")
        results = []
        streams = [torch.cuda.Stream() for _ in range(3)]
        torch.cuda.synchronize()
        for stream in streams * 2:
            with torch.cuda.stream(stream):
                results.append(gradients(problem, "triton"))
        torch.cuda.synchronize()
        assert_near(results, [expected] * len(results))

    def test_threads_are_independent(self):
        problem = on_gpu(make_problem(40, 3, 5, 4, torch.float32))
        expected = gradients(problem, "reference")
        gradients(problem, "triton")
        results = []
        threads = [
            threading.Thread(target=lambda: results.extend(gradients(problem, "triton") for _ in range(5)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_near(results, [expected] * 20)

    def test_it_can_be_recorded_in_a_larger_graph(self, monkeypatch):
        problem = on_gpu(make_problem(20, 3, 5, 4, torch.float32))
        gates = problem.input_gates.detach().clone()
        with torch.no_grad():
            ordered_neurons(gates, *problem[1:], "triton")  # compiles
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = ordered_neurons(gates, *problem[1:], "triton")
            monkeypatch.setattr(module, "KEPT", KeptBuffers())
            for factor in (0.5, 0.1):
                gates.copy_(problem.input_gates * factor)
                graph.replay()
                assert_near(outputs, ordered_neurons(gates, *problem[1:], "reference"))

    def test_evicted_buffers_may_still_be_in_use(self):
        """Runs more sizes than are kept, without waiting for the GPU."""
        problems = [make_problem(23, size, 3, 2, torch.float32) for size in range(1, 2 * MAX_KEPT)]
        outputs = [ordered_neurons(*on_gpu(problem), "triton").outputs for _ in range(3) for problem in problems]
        for problem, output in zip(problems * 3, outputs, strict=True):
            assert_near(output.cpu(), ordered_neurons(*in_float64(problem), "reference").outputs)

    def test_a_failed_recording_does_not_change_results(self):
        """Runs in another process, because the memory allocator may not recover."""
        run = subprocess.run(
            [sys.executable, "-c", RECORDING_FAILS], cwd=Path(__file__).parent, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.split() == ["warnings:", "1", "stream:", "True", "refused:", "True"]

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
    def test_it_runs_on_another_device_than_the_current_one(self):
        problem = make_problem(39, 3, 5, 4, torch.float32)
        other = on_device(problem, "cuda:1")
        assert_near(gradients(other, "triton"), gradients(problem, "reference"))

    @pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_a_compiled_model_trains_like_a_plain_one(self, mode, precision):
        torch.manual_seed(0)
        kind = KINDS["onlstm"]
        sizes = {"vocab_size": 50, "embedding_size": 24, "hidden_size": 40, "initializer_range": 1.0}
        reference = kind.causal_class(kind.config(**sizes, **kind.no_dropout)).cuda().train()
        for layer in reference.model.layers:
            layer.implementation = "reference"
        model = copy.deepcopy(reference)
        for layer in model.model.layers:
            layer.implementation = "triton"
        compiled = torch.compile(model, mode=mode)
        for length in (37, 37, 37, 70):
            ids = torch.randint(50, (4, length), device="cuda")
            losses = []
            for each in (reference, compiled):
                each.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
                    loss = each(ids, labels=ids).loss
                loss.backward()
                losses.append(loss.detach().clone())
            tolerance = 1e-4 if precision == "float32" else 0.03
            assert_near(losses[1], losses[0], tolerance)
            ours, theirs = ([parameter.grad for parameter in each.parameters()] for each in (model, reference))
            assert_near(ours, theirs, 10 * tolerance if precision == "float32" else 0.1)
