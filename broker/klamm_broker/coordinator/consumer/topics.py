"""The coordinator's view of topics, and the hash that tells it of their changes.

The hash is Kafka's (KIP-1101), so that either broker can take over the other's log without a needless rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import xxhash

_MAGIC: Final = b"\0"
_INT: Final = Struct("<i")
_LONG: Final = Struct("<Q")
_SIGNED: Final = Struct("<q")
_UUID: Final = Struct(">QQ")


class TopicInfo(NamedTuple):
    """A topic as assignments see it."""

    name: str
    id: bytes
    partitions: int
    racks: tuple[str, ...] = ()
    """The racks of the brokers that hold a partition, sorted: the same for all partitions, since there is one broker."""


class Topics(Protocol):
    """The present topics of the cluster."""

    version: int
    """A number that grows with every change."""

    def by_name(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def by_name(self, _: str) -> TopicInfo | None:
        return None

    def by_id(self, _: bytes) -> TopicInfo | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


class MetadataHashes:
    """Hashes of topics, each computed once until it changes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """Forget the hash of a topic that has changed."""
        self._known.pop(name, None)

    def of(self, names: Iterable[str]) -> int:
        """Returns the hash of all these topics together, without those that do not exist; 0 when none does."""
        hasher: xxhash.xxh3_64 | None = None
        for name in sorted(names, key=lambda n: n.encode("utf-16-be", "surrogatepass")):
            topic = self._topics.by_name(name)
            if topic is not None:
                hasher = hasher or _hasher()
                if name not in self._known:
                    self._known[name] = topic_hash(topic)
                hasher.update(_LONG.pack(self._known[name]))
        return 0 if hasher is None else _signed(hasher.intdigest())


def topic_hash(topic: TopicInfo) -> int:
    """Returns XXH3 over id, name, and the racks of every partition. Unsigned."""
    racks = b"".join(_INT.pack(len(rack)) + _text(rack) for rack in topic.racks)
    hasher = _hasher(_MAGIC)
    for half in _UUID.unpack(topic.id):
        hasher.update(_LONG.pack(half))
    hasher.update(_text(topic.name) + _INT.pack(topic.partitions))
    for partition in range(topic.partitions):
        hasher.update(_INT.pack(partition) + racks)
    return hasher.intdigest()


def _hasher(data: bytes = b"") -> xxhash.xxh3_64:
    import xxhash  # most brokers never see a group of the consumer protocol

    return xxhash.xxh3_64(data)


def _text(text: str) -> bytes:
    """Returns a string in the form of Kafka's hasher: UTF-16 units, then their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


def _signed(value: int) -> int:
    signed: int = _SIGNED.unpack(_LONG.pack(value))[0]
    return signed
