import platform
import subprocess
import sys

import pytest

from onlstm_hf.utils import process_memory

ALLOCATIONS = """
import resource, runpy, sys, torch

def page_faults(num_tensors=10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(num_tensors):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_default = page_faults()
# Run as a file, because an import of the package imports Transformers.
assert runpy.run_path(sys.argv[1])["keep_freed_memory"]()
page_faults(20)  # warm-up: the heap grows to its final size
print(by_default, page_faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_pages_of_freed_tensors_are_reused():
    command = [sys.executable, "-c", ALLOCATIONS, process_memory.__file__]
    by_default, kept = map(int, subprocess.check_output(command, text=True).split())
    assert kept < by_default / 5
