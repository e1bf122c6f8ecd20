"""The messages between broker and cleaner process: one JSON object a line, no records.

The broker sends a job (first its producers and transactions, in pieces that are quickly made). The cleaner answers with
one segment at a time, and goes on when it hears that the segment is in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

PIECE: Final = 4096
"""Producers or transactions in one line, which takes about a millisecond to make."""


class Job(NamedTuple):
    """One round over one log: offsets from `first_dirty` to below `end`, in segments with these base offsets.

    `segments` are all below `end`, clean ones too; sizes in bytes. `memory` and `buffer_bytes` bound the memory for keys and
    for reading.
    """

    directory: str
    segments: list[tuple[int, int]]
    first_dirty: int
    end: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    memory: int
    load_factor: float
    buffer_bytes: int
    bytes_per_s: float


class Cleaned(NamedTuple):
    """A finished `.cleaned` segment: the segments that it replaces, and the file by which it can be recognized."""

    base_offset: int
    replaces: list[int]
    size: int
    inode: int


class Done(NamedTuple):
    """A completed round: everything below `clean_offset` is clean. Bytes and records are those of the whole round."""

    clean_offset: int
    bytes_read: int
    bytes_written: int
    map_bytes_read: int
    records_read: int
    records_written: int
    records_without_key: int
    buffer_utilization: float
    cpu_s: float


class Failed(NamedTuple):
    """A round that failed. `kind`: `data` will not get better by itself, `io` may."""

    kind: str
    reason: str


Report = Cleaned | Done | Failed
_REPORTS: Final[Mapping[str, type[Report]]] = {"cleaned": Cleaned, "done": Done, "failed": Failed}


def line(kind: str, content: Any = None) -> bytes:
    return json.dumps({kind: content}, separators=(",", ":")).encode() + b"\n"


def job_line(job: Job) -> bytes:
    return line("job", job._asdict())


def pieces(kind: str, rows: Iterable[tuple[int | None, ...]]) -> Iterable[bytes]:
    """Yields lines with these rows, a piece each."""
    piece: list[tuple[int | None, ...]] = []
    for row in rows:
        piece.append(row)
        if len(piece) == PIECE:
            yield line(kind, piece)
            piece = []
    if piece:
        yield line(kind, piece)


def report_line(report: Report) -> bytes:
    return line(type(report).__name__.lower(), report._asdict())


def read_line(text: bytes) -> tuple[str, Any]:
    """Returns (kind, content) of a line. Raises ValueError."""
    kind, content = next(iter(json.loads(text).items()))
    return kind, content


def read_report(text: bytes) -> Report:
    """Returns the report in a line. Raises ValueError, KeyError, TypeError for a line that is none."""
    kind, content = read_line(text)
    return _REPORTS[kind](**content)


def read_job(content: Any) -> Job:
    content["segments"] = [(base, size) for base, size in content["segments"]]
    return Job(**content)
