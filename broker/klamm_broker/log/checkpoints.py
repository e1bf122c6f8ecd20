"""Kafka's checkpoint files of a log directory: one offset per partition, version 0, as text.

A file is written whole through a temporary file, so a reader sees the old or the new content. A damaged file is
reported, not half used: every line must parse and the count must match.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from klamm_base.files import write_atomically
from klamm_broker.log.errors import CorruptFile

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"
CLEANER_OFFSET: Final = "cleaner-offset-checkpoint"

VERSION: Final = 0

TopicPartition = tuple[str, int]


def format_lines(lines: list[str]) -> bytes:
    """Returns a checkpoint file's content: version, number of entries, one entry per line."""
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def parse_lines(text: str, path: Path) -> list[str]:
    """Returns the entries of a checkpoint file. Raises CorruptFile naming the file and what is wrong with it."""
    lines = text.splitlines()
    if not lines or lines[0] != str(VERSION):
        raise CorruptFile(
            f"{path}: version {lines[0] if lines else '(empty file)'} where {VERSION} is expected"
        )
    if not text.endswith("\n"):
        raise CorruptFile(f"{path}: its last line is cut off: {lines[-1]!r}")
    entries = lines[2:]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise CorruptFile(f"{path}: says {lines[1:2]} entries and holds {len(entries)}")
    return entries


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool = True) -> None:
    """Replace a checkpoint with these offsets."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    write_atomically(path, format_lines(lines), sync=sync)


class CheckpointFiles:
    """Checkpoints of one directory, which may be written in a thread.

    Invariant: older content never replaces newer content, in whatever order they are written: a deleted topic's offsets must
    not come back for its namesake.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._taken = self._written = 0

    def take(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> Callable[[], None]:
        """Returns a job that writes these files (offsets by file name), in any thread. It raises OSError."""
        self._taken += 1
        return partial(self._write, self._taken, contents)

    def _write(self, turn: int, contents: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        with self._lock:
            if turn < self._written:
                return
            self._written = turn
            for name, offsets in contents.items():
                write_offsets(self._directory / name, offsets)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Returns the offsets of a checkpoint; empty when the file does not exist. Raises CorruptFile."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as e:
        raise CorruptFile(f"{path}: not text ({e})") from e
    offsets: dict[TopicPartition, int] = {}
    for line in parse_lines(text, path):
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFile(f"{path}: {line!r} is not 'topic partition offset'") from None
    return offsets
