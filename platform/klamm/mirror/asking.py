"""Asks the process of a flow on this machine, at its socket."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

log = logging.getLogger(__name__)


class Silent(Exception):
    """A process is there, but does not answer in time."""


async def ask(path: Path, page: str, timeout_s: float) -> str | None:
    """Returns a page; None when nobody answers, in time or at all."""
    try:
        return await asked(path, page, timeout_s)
    except (OSError, Silent) as e:
        log.debug("no %s from %s: %r", page, path, e)
        return None


async def asked(path: Path, page: str, timeout_s: float) -> str | None:
    """Returns a page, None when there is no such page. Raises OSError where no process listens, Silent."""
    request = f"GET {page} HTTP/1.1\r\nHost: flow\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(request.encode())
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (TimeoutError, ConnectionResetError) as e:
        raise Silent(str(e)) from None
    head, _, body = answer.decode().partition("\r\n\r\n")
    return body if head.startswith("HTTP/1.1 200 ") else None
