"""Watches a mirror's file, and says when it has changed; SIGHUP makes it look at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0


async def follow(path: Path, apply: Callable[[], Awaitable[None]]) -> None:
    """Calls `apply` after each change of the file, until cancelled. A file that cannot be used is logged, and nothing changes."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    seen = content(path)
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await asked.wait()
        asked.clear()
        now = content(path)
        if now is None or now == seen:
            continue
        seen = now
        try:
            await apply()
        except KlammError as e:
            log.error("%s is not applied: %s", path, e)  # noqa: TRY400 - the sentence says it all


def content(path: Path) -> bytes | None:
    """Returns the file's content; None while it cannot be read, as between two steps of an editor."""
    try:
        return path.read_bytes()
    except OSError as e:
        log.debug("%s cannot be read now: %s", path, e)
        return None
