"""Runs parts of a command at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def together(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all parts. Raises the first error itself, no group of errors, after the other parts have ended."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
