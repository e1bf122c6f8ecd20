"""Orders to a flow's process, at a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from klamm.mirror import orders
from klamm_base.errors import KlammError


async def echo(argument: Any) -> Any:
    if argument == "no":
        raise KlammError("not now")
    return argument


async def test_an_order_is_carried_out_or_refused_by_a_sentence(tmp_path: Path):
    socket = tmp_path / "orders"
    async with await orders.serve(socket, {"echo": echo}):
        assert await orders.give(socket, "echo", [1]) == [1]
        with pytest.raises(KlammError, match="not now"):
            await orders.give(socket, "echo", "no")
        with pytest.raises(KlammError, match="knows no order sing"):
            await orders.give(socket, "sing", None)
    with pytest.raises(orders.NobodyThereError):
        await orders.give(socket, "echo", 1)


async def test_somebody_who_says_nothing_delays_no_order(tmp_path: Path, monkeypatch):
    socket = tmp_path / "orders"
    monkeypatch.setattr(orders, "READ_S", 0.5)
    async with await orders.serve(socket, {"echo": echo}):
        reader, writer = await asyncio.open_unix_connection(socket)
        async with asyncio.timeout(10):
            assert await orders.give(socket, "echo", 1) == 1
            assert await reader.read() == b"", "the connection ends by itself"
        writer.close()
