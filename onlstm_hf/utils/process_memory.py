"""Settings of the C library's memory allocator."""

import ctypes
import platform

# Options of the C function `mallopt`, as defined in malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for reuse by this process; returns `False` with another C library.

    By default glibc returns large blocks to the system, and must request them again page by page for each new tensor.
    Training steps allocate the same large tensors again and again, so the process should keep its peak memory.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
