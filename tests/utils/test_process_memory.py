"""Memory that is kept: pages are taken from the system once, and not at every allocation."""

import platform
import subprocess
import sys

import pytest

from onlstm_hf.utils import process_memory

ALLOCATIONS = """
import resource, runpy, sys, torch

def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def taken_again():
    for _ in range(20):  # until the heap has its size and order
        torch.ones(10_000_000)
    before = page_faults()
    for _ in range(10):
        torch.ones(10_000_000)
    return page_faults() - before

by_default = taken_again()
# By its file: the package would import Transformers.
assert runpy.run_path(sys.argv[1])["keep_freed_memory"]()
print(by_default, taken_again())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_the_pages_of_a_large_tensor_are_taken_once():
    command = [sys.executable, "-c", ALLOCATIONS, process_memory.__file__]
    by_default, kept = map(int, subprocess.check_output(command, text=True).split())
    assert kept < by_default / 5
