"""Figures of a batch, sent from the process that commits it to the driver, whose progress events show them.

A writer commits in a process of its own beside the driver, and Spark's progress has no place for its figures. It
leaves a small file, which the driver takes when the progress of that batch comes. In the same way a writer tells
that it waits for its target (`wait`), and the driver looks for this (`waits`) while the batch goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from klamm_base.files import write_atomically

OPTION: Final = "klamm.figures"
"""The writer's option: the path of the files, without `-BATCH.json`."""


_WAITS: Final = ".waits"
OLD_S: Final = 90.0
"""More than a request may take together with the pause behind it."""
LONG_S: Final = 5.0
AGAIN_S: Final = 10.0
"""A call that takes longer than `LONG_S` is reported as waiting, and again after each `AGAIN_S`."""
_PREFIX: Final = "klamm-spark-figures-"


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """Returns the directory of this process. Removes those that killed processes left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not _runs(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def option(output: str) -> str:
    """Returns the option that a job gives to the writer of an output of this name."""
    return str(Path(_directory().name, output))


def leave(place: str | None, batch: int, figures: Any) -> None:
    """Leaves a dataclass of figures. A missing directory belongs to another machine: then nothing is left."""
    if place is None or not Path(place).parent.is_dir():
        return
    write_atomically(Path(f"{place}-{batch}.json"), orjson.dumps(dataclasses.asdict(figures)), sync=False)


def base(place: str | None) -> str | None:
    """Returns the path without the batch's number, which is part of the path of foreachBatch's writers."""
    if place is None:
        return None
    head, _, number = place.rpartition("-")
    return head if number.isdecimal() and "/" in head else place


def wait(place: str | None, why: str | None) -> None:
    """Reports what a writer waits for; repeat it while the writer waits. None ends the report."""
    if place is None or not Path(place).parent.is_dir():
        return
    path = Path(f"{place}{_WAITS}")
    if why is None:
        path.unlink(missing_ok=True)
        return
    write_atomically(path, why.encode(), sync=False, shared=True)


@contextlib.contextmanager
def while_waiting(place: str | None, why: str) -> Iterator[None]:
    """Wraps a call that is silent until it is done, and reports what it waits for once it takes long."""
    if place is None:
        yield
        return
    over = threading.Event()

    def tell() -> None:
        told = False
        while not over.wait(AGAIN_S if told else LONG_S):
            told = True
            wait(place, why)
        if told:
            wait(place, None)

    teller = threading.Thread(target=tell, daemon=True, name="waits")
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def waits(output: str) -> str | None:
    """Returns the reason for which the writer of an output waits now. A file older than `OLD_S` is from a process that
    is gone.
    """
    path = Path(f"{option(output)}{_WAITS}")
    try:
        return path.read_text() if time.time() - path.stat().st_mtime < OLD_S else None
    except FileNotFoundError:
        return None


def take(output: str, batch: int) -> dict[str, Any] | None:
    """Returns the figures left for this batch, and removes them."""
    path = Path(f"{option(output)}-{batch}.json")
    found: dict[str, Any] | None = None
    with contextlib.suppress(FileNotFoundError):
        found = orjson.loads(path.read_bytes())
        path.unlink()
    return found
