"""Positions in a file from which reading can continue: its beginning, and the end of any line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from klamm_plugins.connector import SourceOffset
from klamm_plugins.errors import ConnectError

FILENAME: Final = "filename"
POSITION: Final = "position"

_NEAR: Final = 64 * 1024  # bytes in which the line around a position is looked for, to name its ends


def ends_line(before: bytes, after: bytes) -> bool:
    r"""Returns True when a line ends between these two bytes (`after` is empty at the file's end). No line ends
    inside a CRLF.
    """
    return before in {b"\n", b"\r"} and before + after != b"\r\n"


def unusable(path: str, position: int) -> str | None:
    """Returns a sentence that says why a task could not continue at `position`.

    Returns None when it could, or when the file cannot be read here.
    """
    if position == 0:
        return None
    try:
        with Path(path).open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if position > size:
                return f"it is beyond the end of {path}, which has {size} bytes"
            start = max(0, position - _NEAR)
            file.seek(start)
            around = file.read(position - start + _NEAR)
    except OSError:
        return None
    here = position - start
    if ends_line(around[here - 1 : here], around[here : here + 1]):
        return None
    begin = max(around.rfind(b"\n", 0, here), around.rfind(b"\r", 0, here)) + 1
    said = f"it is in the middle of a line of {path}"
    return said + (f", which begins at byte {start + begin}" if begin or not start else "")


def check_offset(offset: SourceOffset) -> None:
    """Raises Kafka's error for an offset that cannot be a position in a file."""
    if POSITION not in offset:
        raise ConnectError(f"Offset objects should either be null or contain the key '{POSITION}'")
    position = offset[POSITION]
    if not isinstance(position, int) or isinstance(position, bool):
        raise ConnectError(f"The value for the '{POSITION}' key in the offset is expected to be a Long value")
    if position < 0:
        raise ConnectError(f"The value for the '{POSITION}' key in the offset should be a non-negative value")
