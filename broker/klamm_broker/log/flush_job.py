"""Forces files to disk apart from the log that they belong to.

`fsync` may take seconds. A job holds the open files and knows nothing else, so `run` may be called in a
thread while the log is written to. When it returns, the content that the files had when the job was made is durable.

An `fsync` that failed must not be tried again: Linux has marked the pages clean by then and may drop them, so the
next one succeeds without the data. The log is told with `flush_failed` and takes nothing more until the next start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from klamm_broker.log import producer_snapshot
from klamm_broker.log.files import OpenFile
from klamm_broker.log.segment import Segment


class FlushJob(NamedTuple):
    """Files to force to disk. `PartitionLog.begin_flush` makes it; after `run` it goes to `PartitionLog.end_flush`."""

    end_offset: int
    truncations: int  # the log's count when the job was made: after a later truncation the job proves nothing
    files: list[OpenFile]
    named_base: int = (
        -1
    )  # the active segment's base offset: its name in the directory is on the disk after the job

    def run(self) -> None:
        """Force the files to disk. If it raises OSError, nothing counts as durable, now or later: call `PartitionLog.flush_failed`."""
        for file in self.files:
            os.fsync(file.fd)


def files_to_flush(directory: Path, segments: Iterable[Segment], epochs: Path) -> list[OpenFile]:
    """Returns the files that must be on disk before the recovery point may pass these segments. Raises OSError."""
    found: list[OpenFile] = []
    for segment in segments:
        found += segment.files_to_sync()
        snapshot = producer_snapshot.snapshot_path(directory, segment.base_offset)
        if snapshot.exists():
            found.append(OpenFile(snapshot, os.O_RDONLY))
    if epochs.exists():
        found.append(OpenFile(epochs, os.O_RDONLY))
    found.append(OpenFile(directory, os.O_RDONLY))
    return found
