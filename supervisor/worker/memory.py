"""How this process gives memory back: not with every large body.

glibc returns the end of its heap to the kernel as soon as 128 KiB of it are free, and takes blocks of that size from
the kernel one by one. A worker that passes on bodies of hundreds of KiB is in that state all the time: each request
pays hundreds of page faults, more than the copying costs. With higher bounds up to KEPT_FREE bytes stay.
"""

from __future__ import annotations

import ctypes

KEPT_FREE = 4 << 20
OWN_MAPPING = 1 << 20
"""A block of this size still has a mapping of its own, and goes back at once."""

# malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Set both bounds, where the C library has them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(M_MMAP_THRESHOLD, OWN_MAPPING)
    mallopt(M_TRIM_THRESHOLD, KEPT_FREE)
