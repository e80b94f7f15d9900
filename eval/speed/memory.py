"""Peak memory of a training step above the weights and their gradients, each measured in a process of its own.

The gradients are there before the step, as when they are accumulated, so that what comes on top of both is what the
step itself takes: activations, temporary results, and what an operator keeps for itself. On a GPU it is what PyTorch's
allocator counts. On a CPU it is the peak of the resident memory (Linux: VmHWM, set back before the step), which also
sees what operators take behind PyTorch's back. The C library is told to hand freed blocks back at once, so that only
memory in use counts.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout that this script belongs to

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM

TINY = {"vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "chunk_size": 4}
STATUS, CLEAR_REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(
    config: dict, batch_size: int, length: int, contestants: dict[str, tuple[str, bool]], device: str
) -> dict[str, int]:
    """Bytes above weights and gradients, at the peak of the forward and backward pass of a whole model.

    Args:
        config: fields of the `ONLSTMConfig`.
        batch_size: rows of a step.
        length: tokens of each.
        contestants: by name which implementation runs, and whether under bfloat16 autocast.
        device: type of the device.

    Returns:
        The peak of every contestant that can run here.

    Raises:
        ValueError: if the system does not tell the peak of a process.
    """
    if device == "cpu" and not CLEAR_REFERENCES.exists():
        raise ValueError("the peak of a process's memory is only known on Linux")
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "PYTHONPATH": paths}
    arguments = [contestants, config, batch_size, length, device, torch.get_num_threads()]
    ended = subprocess.run(
        [sys.executable, __file__, json.dumps(arguments)], env=environment, capture_output=True, text=True
    )
    if ended.returncode:
        raise ValueError(f"peak memory could not be measured: {ended.stderr.strip().splitlines()[-1]}")
    return json.loads(ended.stdout)


def _measure_each(contestants: dict[str, tuple[str, bool]], *sizes) -> dict[str, int]:
    """Peaks in forks of this process, which has imported what takes seconds and has started no thread."""
    peaks = {}
    for name, contestant in contestants.items():
        with ProcessPoolExecutor(1, get_context("fork")) as fork:
            peak = fork.submit(_measure, *contestant, *sizes).result()
        if peak is not None:
            peaks[name] = peak
    return peaks


def _measure(implementation, autocast, config, batch_size, length, device, num_threads) -> int | None:
    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    try:  # a tiny step first: libraries that it loads and threads that it starts are not to count
        _step(ONLSTMForCausalLM(ONLSTMConfig(**config | TINY)).to(device), implementation, autocast, 2, 16)
    except ValueError:
        return None
    model = ONLSTMForCausalLM(ONLSTMConfig(**config)).to(device).train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = _start_counting(device)
    _step(model, implementation, autocast, batch_size, length)
    return _peak(device) - before


def _step(model: ONLSTMForCausalLM, implementation: str, autocast: bool, batch_size: int, length: int) -> None:
    model.set_implementation(implementation)
    input_ids = torch.randint(model.config.vocab_size, (batch_size, length), device=model.device)
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=autocast):
        loss = model(input_ids, labels=input_ids, skip_logits=True).loss
    loss.backward()


def _start_counting(device: str) -> int:
    """Sets the peak back, and returns how many bytes are in use."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    CLEAR_REFERENCES.write_text("5")
    return resident_bytes("VmRSS")


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else resident_bytes("VmHWM")


def resident_bytes(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s*(\d+) kB", STATUS.read_text()).group(1))


if __name__ == "__main__":
    print(json.dumps(_measure_each(*json.loads(sys.argv[1]))))
