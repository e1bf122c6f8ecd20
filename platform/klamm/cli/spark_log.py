"""The log of a Spark job's process: whole in a file beside the checkpoint, without stack traces on the terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from klamm_base.files import make_private_folder

NAME: Final = "klamm-driver.log"
_BYTES: Final = 10 << 20


@contextlib.contextmanager
def log_lines(
    checkpoint: str, *, verbose: bool
) -> Iterator[tuple[Callable[[str], None] | None, Path | None]]:
    """Return a function that takes the lines, and the log file; None for both where everything is shown: when the
    user asks for it, or when there is no place for a file.
    """
    file = None if verbose else _file(checkpoint)
    if file is None:
        yield None, None
        return
    show = without_traces()

    def take(line: str) -> None:
        text = line.rstrip("\n")
        file.emit(logging.LogRecord("spark", logging.INFO, "", 0, "%s", (text,), None))
        show(text)

    try:
        yield take, Path(file.baseFilename)
    finally:
        file.close()


def without_traces() -> Callable[[str], None]:
    """Return a function that shows lines on standard error, without those of stack traces."""
    from klamm_spark.trace_filter import TraceFilter

    traces = TraceFilter()

    def show(line: str) -> None:
        if (shown := traces.shown(line)) is not None:
            sys.stderr.write(f"{shown}\n")
            sys.stderr.flush()

    return show


def _file(checkpoint: str) -> RotatingFileHandler | None:
    """Return the log file, which grows to 10 MiB and keeps the part before; None where the checkpoint's folder cannot
    hold it: the job itself reports a checkpoint that is unusable.
    """
    from klamm_spark.beside import local_place

    place = local_place(checkpoint)
    if place is None:
        return None
    try:
        make_private_folder(place)
        return RotatingFileHandler(place / NAME, maxBytes=_BYTES, backupCount=1, encoding="utf-8")
    except OSError:
        return None
