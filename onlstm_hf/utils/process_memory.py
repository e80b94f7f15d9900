"""Memory management of the C library."""

import ctypes
import platform

# Options of the C function `mallopt`, with their numbers in malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Makes the C library keep the memory that this process frees, for whatever the process needs next.

    glibc gives large blocks back to the system, and has to take them anew, page by page, whenever tensors of that size
    are made again. A training step makes the same large tensors each time. The process stays as large as its largest
    moment, which is what a training script wants and a server may not.

    Returns:
        True if the C library was told so. Only glibc can be; with another library nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
