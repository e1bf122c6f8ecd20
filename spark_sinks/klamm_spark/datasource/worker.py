"""What a Python worker of Spark does once in its life."""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle() -> None:
    """Take all that is there now out of garbage collection. To be called when a task begins, with all modules loaded.

    PySpark's worker collects garbage after every task: 60 to 80 ms of CPU for the objects of all modules, a third of what
    a small batch costs in Python. What tasks make is collected as before.
    """
    gc.freeze()
