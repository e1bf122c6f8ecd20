"""Forcing files to disk apart from the log that they belong to.

`fsync` may take seconds. A job holds the open files and knows nothing else, so `run` may be called in a
thread while the log is written to; what was in the files when the job was made is durable when it returns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from klamm_broker.log.files import OpenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Made by `PartitionLog.begin_flush`, given back to `PartitionLog.end_flush` after `run`."""

    end_offset: int
    truncations: int  # of the log, when the job was made: a later one makes the job's word worthless
    files: list[OpenFile]

    def run(self) -> None:
        """Raises OSError: then nothing may be taken for durable."""
        for file in self.files:
            os.fsync(file.fd)
