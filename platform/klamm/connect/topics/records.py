"""The records of Connect's internal topics: compact JSON under a text key. No I/O."""

from __future__ import annotations

import logging
from typing import Any

import orjson

from klamm.connect.model import TaskId

log = logging.getLogger(__name__)

Record = tuple[str, bytes | None]
"""Key and value of a record of one of the topics; None is a tombstone."""


def encode(value: Any) -> bytes:
    return orjson.dumps(value)


def decode(key: str, value: bytes) -> dict[str, Any] | None:
    """Returns the object in a record; None, with a line in the log, when there is no object."""
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError as e:
        log.error("ignoring record %s: its value is not JSON (%s)", key, e)  # noqa: TRY400 - no bug of ours
        return None
    if not isinstance(data, dict):
        log.error("ignoring record %s: its value is %s, not an object", key, type(data).__name__)
        return None
    return data


def task_of(text: str) -> TaskId | None:
    """Returns `name-0` as a TaskId; a connector's name may hold dashes itself."""
    name, dash, number = text.rpartition("-")
    return TaskId(name, int(number)) if dash and number.isascii() and number.isdigit() else None
