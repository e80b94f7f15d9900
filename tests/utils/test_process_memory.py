"""Memory that is kept: pages are taken from the system once, and not at every allocation."""

import platform
import subprocess
import sys

import pytest

ALLOCATIONS = """
import resource, sys, torch
from onlstm_hf.utils.process_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):  # until the heap has its size and order
    torch.ones(20_000_000)
before = page_faults()
for _ in range(10):
    torch.ones(20_000_000)
print(page_faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_the_pages_of_a_large_tensor_are_taken_once():
    def page_faults(mode: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", ALLOCATIONS, mode], text=True))

    assert page_faults("keep") < page_faults("default") / 5
