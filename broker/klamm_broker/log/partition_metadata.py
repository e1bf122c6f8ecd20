"""Kafka's `partition.metadata`: the id of the topic that a partition directory belongs to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from klamm_base.files import write_atomically
from klamm_broker.log.files import read_small

_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
FILE_NAME: Final = "partition.metadata"


def write_topic_id(directory: Path, topic_id: str) -> None:
    """Note the topic id (22 characters of URL-safe base64)."""
    write_atomically(directory / FILE_NAME, f"version: 0\ntopic_id: {topic_id}".encode(), sync=False)


def read_topic_id(directory: Path) -> str | None:
    """Returns the topic id; None when the file is missing or names none."""
    try:
        text = read_small(f"{directory}/{FILE_NAME}").decode(errors="replace")
    except FileNotFoundError:
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    topic_id = values.get("topic_id", "")
    return topic_id if _ID.fullmatch(topic_id) else None  # a power cut has left a part of an id
