"""Topics: names, ids, partition counts and configuration, in memory and in one file of the data directory.

`topics.json` is the truth about which topics exist and how they are configured; it is replaced atomically and is
on the disk before a creation, deletion or change is answered. The partition directories hold the records. A topic
that is being deleted stays in the file, marked, until its directories are gone, so that a crash in between
finishes the deletion instead of bringing half of the topic back. Partition directories without an entry (a data
directory that Apache Kafka wrote) are adopted by `Broker`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_base.errors import KlammError
from klamm_broker.log.files import write_atomically

if TYPE_CHECKING:
    from klamm_broker.log.config import LogConfig
    from klamm_broker.log.partition_log import PartitionLog
    from klamm_broker.server.waiting import Waiter

FILE_NAME: Final = "topics.json"
NAME_MAX: Final = 249
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class TopicsFileError(KlammError):
    """`topics.json` cannot be used."""


class Partition:
    """One partition that this broker leads: its log, and the fetches that wait for records."""

    __slots__ = ("index", "log", "topic", "waiters")

    def __init__(self, topic: Topic, index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.waiters: dict[Waiter, None] = {}

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


@dataclass(slots=True, kw_only=True, eq=False)
class Topic:
    """A topic. `overrides` are its own properties as texts, `config` what they and the defaults come to."""

    name: str
    id: bytes
    overrides: dict[str, str]
    config: LogConfig
    partitions: list[Partition] = field(default_factory=list)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL


@dataclass(slots=True, kw_only=True)
class TopicEntry:
    """A topic as `topics.json` has it."""

    id: bytes
    partitions: int
    configs: dict[str, str]
    deleting: bool = False


class TopicsFile:
    """The entries of `topics.json`. Changes count when `save` has returned."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self.entries: dict[str, TopicEntry] = {}

    def load(self) -> None:
        """Read the file; without one there are no entries. Raises TopicsFileError."""
        try:
            document = json.loads(self._path.read_bytes())
            if document["version"] != 1:
                raise TopicsFileError(
                    f"{self._path}: version {document['version']} is not 1: written by a newer Klamm"
                )
            self.entries = {item["name"]: _entry(item) for item in document["topics"]}
        except FileNotFoundError:
            self.entries = {}
        except (ValueError, KeyError, TypeError) as e:
            raise TopicsFileError(
                f"{self._path}: damaged ({e!r}). Restore it, or remove it: topics are then "
                "taken from the partition directories, with default configuration."
            ) from e

    def save(self) -> None:
        """Write all entries, durably."""
        topics = [
            {"name": name, "id": encode_uuid(e.id), "partitions": e.partitions, "configs": e.configs}
            | ({"deleting": True} if e.deleting else {})
            for name, e in self.entries.items()
        ]
        text = json.dumps({"version": 1, "topics": topics}, indent=1, ensure_ascii=False)
        write_atomically(self._path, text.encode() + b"\n")


def _entry(item: Mapping[str, Any]) -> TopicEntry:
    return TopicEntry(
        id=decode_uuid(item["id"]),
        partitions=int(item["partitions"]),
        configs=dict(item["configs"]),
        deleting=bool(item.get("deleting", False)),
    )


class TopicTable:
    """The topics that are served, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic

    def remove(self, topic: Topic) -> None:
        del self.by_name[topic.name]
        del self.by_id[topic.id]

    def colliding(self, name: str) -> str | None:
        """A topic whose metric names would be the same: `.` and `_` are one there. Kafka refuses such a name."""
        if "." not in name and "_" not in name:
            return None
        flat = name.replace(".", "_")
        return next((n for n in self.by_name if n != name and n.replace(".", "_") == flat), None)


def why_invalid(name: str) -> str | None:
    """What is wrong with a topic name, in a sentence; None for a good one."""
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return "the topic name cannot be '.' or '..'"
    if len(name) > NAME_MAX:
        return f"the topic name is {len(name)} characters long, at most {NAME_MAX} are possible"
    if not _LEGAL.fullmatch(name):
        return (
            f"the topic name {name!r} contains characters other than ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def encode_uuid(value: bytes) -> str:
    """16 bytes as Kafka prints a uuid: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """The 16 bytes of a printed uuid. Raises ValueError."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a uuid: 22 characters of URL-safe base64 are needed")
    return value
