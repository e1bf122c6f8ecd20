"""The proof: source file, topic and sink file hold the same lines. Each is read by itself from start to end."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.demo.platform import TOPIC
from klamm_base.errors import KlammError

READ_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of lines, and the SHA-256 over them with their line ends, in order."""

    lines: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Proof:
    source: Digest
    topic: Digest
    sink: Digest

    @property
    def complete(self) -> bool:
        """True when nothing was lost, repeated or changed."""
        return self.source == self.topic == self.sink


def prove(source: Path, bootstrap: str, sink: Path) -> Proof:
    """Reads all three. Raises KlammError when the topic cannot be read."""
    return Proof(_file(source), _topic(bootstrap), _file(sink))


def _file(path: Path) -> Digest:
    lines, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            lines += chunk.count(b"\n")
            digest.update(chunk)
    return Digest(lines, digest.hexdigest())


def _topic(bootstrap: str) -> Digest:
    """Reads every record of the one partition by offset, from the first to the end. Values are JSON with a schema."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "klamm-demo-proof",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        partition = TopicPartition(TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, READ_S)
        consumer.assign([partition])
        lines, digest = 0, hashlib.sha256()
        while lines < end:
            messages = consumer.consume(min(10_000, end - lines), READ_S)
            if not messages:
                raise KlammError(f"the topic's end is {end}, but only {lines} records could be read")
            for message in messages:
                if message.error():
                    raise KlammError(f"cannot read the topic: {message.error()}")
                if message.offset() != lines:
                    raise KlammError(f"offset {message.offset()} came after {lines - 1}")
                digest.update(json.loads(message.value() or b"{}")["payload"].encode() + b"\n")
                lines += 1
        return Digest(lines, digest.hexdigest())
    finally:
        consumer.close()
