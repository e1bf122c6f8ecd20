"""Freed memory: a process that works in large buffers keeps what it frees, and does not fault it in again for the next one.

glibc gives memory at the end of a heap back to the kernel once more is free there than twice the largest buffer that it has unmapped. Each
round through batches of a megabyte may then begin with thousands of page faults, or with none: it depends on what happens to lie
behind them.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

LARGEST_BYTES: Final = 32 << 20
"""A buffer of more bytes is the kernel's again as soon as it is freed. glibc takes no higher bound, and a lower one on 32 bits."""

_M_TRIM_THRESHOLD: Final = -1  # of <malloc.h>
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_freed(most: int) -> None:
    """Keeps up to `most` bytes of freed memory for the next buffers, in this process. Without glibc it does nothing.

    New threads share the one heap: each of several would keep as much. So it is for processes whose threads seldom wait for each other.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # The other bounds count only if glibc takes this one: it would not rise by itself any more
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES):
        mallopt(_M_TRIM_THRESHOLD, most)
        mallopt(_M_ARENA_MAX, 1)
