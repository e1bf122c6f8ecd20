"""Fixtures of the broker's tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.broker import broker

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
