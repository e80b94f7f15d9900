"""Peak memory of a training step above the weights and their gradients, measured in a process of its own.

On a GPU it is what PyTorch's allocator counts. On a CPU it is the peak of the resident memory (Linux: VmHWM, set back
before the step), which also sees what operators take behind PyTorch's back. The C library is told to hand freed blocks
back at once, so that only memory in use counts.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM

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
    arguments = [config, batch_size, length, contestants, device, torch.get_num_threads()]
    paths = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(
        [sys.executable, __file__, json.dumps(arguments)],
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise ValueError(f"peak memory could not be measured: {ended.stderr.strip().splitlines()[-1]}")
    return json.loads(ended.stdout)


def _measure(config, batch_size, length, contestants, device, num_threads) -> dict[str, int]:
    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    model = ONLSTMForCausalLM(ONLSTMConfig(**config)).to(device).train()
    gradients = sum(parameter.nbytes for parameter in model.parameters())

    def step(implementation: str, autocast: bool, steps: int) -> None:
        for layer in model.model.layers:
            layer.implementation = implementation
        input_ids = torch.randint(model.config.vocab_size, (batch_size, steps), device=device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            loss = model(input_ids, labels=input_ids, skip_logits=True).loss
        loss.backward()
        model.zero_grad()

    peaks = {}
    for name, (implementation, autocast) in contestants.items():
        try:
            step(implementation, autocast, 2)  # thread pools and libraries
        except ValueError:
            continue
        before = _start_counting(device)
        step(implementation, autocast, length)
        peaks[name] = _peak(device) - before - gradients
    return peaks


def _start_counting(device: str) -> int:
    """Bytes in use now; from here on the peak is counted."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    CLEAR_REFERENCES.write_text("5")
    return _resident_bytes("VmRSS")


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else _resident_bytes("VmHWM")


def _resident_bytes(name: str) -> int:
    return 1024 * int(re.search(rf"{name}:\s*(\d+) kB", STATUS.read_text()).group(1))


if __name__ == "__main__":
    print(json.dumps(_measure(*json.loads(sys.argv[1]))))
