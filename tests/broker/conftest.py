"""Fixtures of the broker's tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.broker import broker
from support.inprocess import connecting

from klamm_broker.server import heavy, slices
from klamm_broker.server.listener import Server
from klamm_kafka.client import Connection

__all__ = ["broker"]

SHARED_MEMORY = Path("/dev/shm")  # Linux has it
ENOUGH = 1 << 28


@pytest.fixture(scope="module")
def memory_path() -> Iterator[Path]:
    """Yields a folder in memory, or an ordinary one where there is none or too little.

    Tests that make thousands of small files take it. It is ten times as fast as a disk. A process that is killed
    loses nothing of either.
    """
    usable = os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > ENOUGH
    with TemporaryDirectory(prefix="klamm-test-", dir=SHARED_MEMORY if usable else None) as folder:
        yield Path(folder)


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Callable[[], Awaitable[Connection]]]:
    """Opens connections to the module's `server`; they are closed at the end."""
    async with connecting(server) as open_one:
        yield open_one


@pytest.fixture
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a slice one step, so that few things show what many would."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(slices, "LONG_SLICE_S", 0.0)
    monkeypatch.setattr(heavy, "LONG_SLICE_S", 0.0)
