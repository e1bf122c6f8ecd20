"""A log's answers to `append` and `read`: plain tuples, made once per request."""

from __future__ import annotations

from typing import NamedTuple

from klamm_broker.log.files import OpenFile


class AppendInfo(NamedTuple):
    """The outcome of an append. `log_append_time_ms` is -1 under CreateTime; `duplicate`: the batch was stored before."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class FileSlice(NamedTuple):
    """Whole batches inside one segment, for `sendfile`. Hold the slice (it holds the file) while sending."""

    fd: int
    position: int
    size: int
    file: OpenFile
