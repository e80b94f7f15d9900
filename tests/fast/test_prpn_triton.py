"""The PRPN's Triton path: interpreter and compiler without a GPU, and all tests with one (`-m gpu`)."""

import pytest
import torch

from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.fast.prpn import triton as module
from tests.helpers.fast_paths import compile_kernel, run_in_the_interpreter
from tests.helpers.reading_problems import check
from tests.helpers.requirements import library

gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.slow
def test_the_kernels_are_correct_in_the_interpreter():
    run_in_the_interpreter("interpreted_triton_prpn.py")


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
    from onlstm_hf.fast.prpn import kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {"SLOTS": triton.next_power_of_2(num_slots)}
    if not has_mask:
        constants |= {"newest_keep": None, "key_keep": None}
    others = dict.fromkeys(("step", "length", "num_slots", "size"), "i32")
    others |= dict.fromkeys(("product", "operand"), f"*{dtype}")
    row = triton.next_power_of_2(size)
    for kernel, block in {
        kernels._attention_kernel: min(256, row),
        kernels._cell_kernel: row,
        kernels._cell_backward_kernel: row,
        kernels._attention_backward_kernel: min(256, row),
    }.items():
        types = dict.fromkeys(kernel.arg_names, "*fp32") | others
        compile_kernel(kernel, constants | {"BLOCK": block}, types, capability)


class TestOnGPU:
    pytestmark = gpu

    @pytest.mark.parametrize("masks", [True, False])
    @pytest.mark.parametrize("sizes", [(1, 1, 1, 2), (3, 7, 4, 6), (64, 35, 15, 320), (16, 20, 15, 1200)])
    def test_it_computes_the_reference(self, sizes, masks):
        check(sizes, masks, "cuda", tolerance=2e-4)

    def test_a_recorded_sequence_computes_the_reference(self):
        for seed in range(module.RECORDED_AFTER + 4):
            check((8, 35, 15, 64), True, "cuda", seed, tolerance=2e-4)
        assert not module.KEPT.has_failed
        assert sum(recording.graph is not None for recording in module.KEPT._kept.values()) >= 2

    def test_training_losses_equal_the_reference(self):
        config = PRPNConfig(vocab_size=50, embedding_size=16, hidden_size=24, num_slots=5)
        batches = torch.randint(50, (12, 4, 9), generator=torch.Generator().manual_seed(0)).cuda()
        losses = {}
        for implementation in ("reference", "triton"):
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
        assert losses["triton"] == pytest.approx(losses["reference"], rel=1e-3)
