"""Orders to the process of a flow on this machine, at a socket of its own: a line of JSON each way.

Only the user who runs the mirror reaches the socket, by its folder's mode.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

LINE_BYTES_MAX: Final = 64 << 20
READ_S: Final = 10.0
"""The time in which an order must arrive, once somebody has connected."""
ANSWER_S: Final = 180.0

Handler = Callable[[Any], Awaitable[Any]]
"""Carries out an order with its argument. Raises KlammError."""


class NobodyThereError(KlammError):
    """No process takes orders at the socket."""


async def serve(socket: Path, handlers: Mapping[str, Handler]) -> asyncio.Server:
    """Takes orders by name, one at a time. Raises KlammError."""
    one_at_a_time = asyncio.Lock()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                line = await reader.readline()
            async with one_at_a_time:
                answer = await _carry_out(line, handlers)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError) as e:
            log.debug("an order was given up: %r", e)
        finally:
            writer.close()

    try:
        return await asyncio.start_unix_server(take, socket, limit=LINE_BYTES_MAX)
    except OSError as e:
        raise KlammError(f"cannot listen on {socket}: {e.strerror or e}") from e


async def _carry_out(line: bytes, handlers: Mapping[str, Handler]) -> dict[str, Any]:
    order = json.loads(line)
    handler = handlers.get(order["order"])
    if handler is None:
        return {"error": f"this process knows no order {order['order']}: it runs another version"}
    try:
        return {"answer": await handler(order["with"])}
    except KlammError as e:
        return {"error": str(e)}


async def give(socket: Path, order: str, argument: Any) -> Any:
    """Has an order carried out; returns the answer. Raises NobodyThereError, KlammError (it could not be)."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_BYTES_MAX)
    except OSError as e:
        raise NobodyThereError(f"no process takes orders at {socket}: {e.strerror or e}") from None
    try:
        async with asyncio.timeout(ANSWER_S):
            writer.write(json.dumps({"order": order, "with": argument}).encode() + b"\n")
            line = await reader.readline()
    except (TimeoutError, OSError) as e:
        raise KlammError(f"the flow's process did not answer the order {order}: {e or 'too slow'}") from None
    finally:
        writer.close()
    if not line:
        raise KlammError(f"the flow's process ended before it answered the order {order}; try again")
    answer = json.loads(line)
    if "error" in answer:
        raise KlammError(answer["error"])
    return answer["answer"]
