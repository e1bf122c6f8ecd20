"""Blocking work for a page, in a thread that does not outlive the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

LOOK_S: Final = 0.25
T = TypeVar("T")


async def in_thread(work: Callable[[threading.Event], T], gone: Callable[[], bool]) -> T:
    """Returns what `work` returns. Its event is set when the page is given up, or nobody waits for it (`gone`); this waits until
    the work has seen it.
    """
    stop = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(work, stop))
    try:
        while not (await asyncio.wait([running], timeout=LOOK_S))[0]:
            if gone():
                stop.set()
        return running.result()
    finally:
        stop.set()
        await asyncio.wait([running])
