"""The PRPN's Triton path: in the interpreter and the compiler without a GPU, and everything with one (`-m gpu`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.fast.prpn import triton as module
from tests.helpers.reading_problems import arguments, check
from tests.helpers.recurrences import read_sequence
from tests.helpers.requirements import library

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.slow
def test_the_kernels_are_right_in_the_interpreter():
    library("triton", reason="Triton is not installed")
    tests = Path(__file__).parents[1] / "helpers" / "interpreted_triton_prpn.py"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("capability", "dtype", "num_slots", "size", "has_mask"),
    [
        (80, "fp32", 15, 320, True),
        (90, "fp32", 15, 1200, True),
        (90, "bf16", 15, 1200, False),
        (90, "bf16", 1, 3, True),
    ],
)
def test_the_kernels_compile_without_a_gpu(capability, dtype, num_slots, size, has_mask, tmp_path, monkeypatch):
    triton = library("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from onlstm_hf.fast.prpn import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {"HAS_MASK": has_mask, "EPSILON": 1e-6, "ATTENTION_EPSILON": 1e-8}
    constants["SLOTS"] = triton.next_power_of_2(num_slots)
    numbers = {"step": "i32", "length": "i32", "num_slots": "i32", "size": "i32"}
    in_products = {"product", "operand"}
    for kernel, block in {
        kernels._attention_kernel: min(256, triton.next_power_of_2(size)),
        kernels._cell_kernel: triton.next_power_of_2(size),
        kernels._cell_backward_kernel: triton.next_power_of_2(size),
        kernels._attention_backward_kernel: min(256, triton.next_power_of_2(size)),
    }.items():
        known = {**constants, "BLOCK": block}
        if not has_mask:
            known |= {"newest_keep": None, "key_keep": None}
        used = {name: value for name, value in known.items() if name in kernel.arg_names}
        pointers = {name: f"*{dtype}" if name in in_products else "*fp32" for name in kernel.arg_names}
        types = {name: "constexpr" if name in used else numbers.get(name, pointers[name]) for name in kernel.arg_names}
        places = {(kernel.arg_names.index(name),): value for name, value in used.items()}
        compiled = triton.compile(ASTSource(kernel, types, places), target=GPUTarget("cuda", capability, 32))
        assert compiled.asm["cubin"]


def test_it_says_why_it_cannot_run():
    assert "on a GPU, not on cpu" in module.obstacle(torch.zeros(1))
    tensors, keep = arguments(1, 1, 1, 2)
    with pytest.raises(ValueError, match="triton implementation cannot run here: it needs tensors on a GPU"):
        read_sequence(*tensors, *keep, implementation="triton")


class TestOnGPU:
    pytestmark = gpu

    @pytest.mark.parametrize("masks", [True, False])
    @pytest.mark.parametrize("sizes", [(1, 1, 1, 2), (3, 7, 4, 6), (64, 35, 15, 320), (16, 20, 15, 1200)])
    def test_it_computes_the_reference(self, sizes, masks):
        check(sizes, masks, "cuda", tolerance=2e-4)

    def test_a_recorded_sequence_computes_the_reference(self):
        for seed in range(module.RECORDED_AFTER + 4):
            check((8, 35, 15, 64), True, "cuda", seed, tolerance=2e-4)
        assert not module.RECORDINGS.recorder.has_failed
        assert module.RECORDINGS.num_recorded >= 2

    def test_training_has_the_losses_of_the_plain_path(self):
        config = PRPNConfig(vocab_size=50, embedding_size=16, hidden_size=24, num_slots=5)
        batches = torch.randint(50, (12, 4, 9), generator=torch.Generator().manual_seed(0)).cuda()
        losses = {}
        for implementation in ("fused", "triton"):
            torch.manual_seed(0)
            model = PRPNForCausalLM(config).cuda().train()
            model.set_implementation(implementation)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.manual_seed(1)
            losses[implementation] = []
            for batch in batches:
                loss = model(batch, labels=batch).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses[implementation].append(loss.item())
        assert losses["triton"] == pytest.approx(losses["fused"], rel=1e-3)
