"""Freed memory: a process that works in large buffers keeps what it frees, and does not fault it in again for the next one.

glibc gives memory at the end of the heap back to the kernel once some hundred kilobytes of it are free. Each round through
batches of a megabyte may then begin with thousands of page faults, or with none: it depends on what happens to lie behind them.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

KEPT_BYTES: Final = 16 << 20
"""Free memory at the end of a heap that a process keeps: several of the largest batches."""
LARGEST_BYTES: Final = 32 << 20
"""A buffer of more bytes is the kernel's again as soon as it is freed. glibc takes no higher bound."""

_M_TRIM_THRESHOLD: Final = -1  # of <malloc.h>
_M_MMAP_THRESHOLD: Final = -3


def keep_freed() -> None:
    """Keeps up to `KEPT_BYTES` of freed memory for the next buffers, in this process and its forks. Without glibc it does nothing."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)
