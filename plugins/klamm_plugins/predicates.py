"""The predicates that come with Klamm: Kafka's, with Kafka's names and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, non_empty
from klamm_base.version import __version__
from klamm_plugins.batch import Batch
from klamm_plugins.java_regex import compile_java
from klamm_plugins.transform import Predicate, Record
from klamm_plugins.transforms._validators import regex

_TOPICS_MAX: Final = 10_000  # remembered; a topic costs a match


class _KlammPredicate(Predicate):
    @classmethod
    def version(cls) -> str:
        return __version__

    def test(self, record: Record) -> bool:
        return self.test_many([record])[0]


class HasHeaderKey(_KlammPredicate):
    """Records with at least one header of a name."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "name",
            Type.STRING,
            validator=non_empty,
            importance=Importance.MEDIUM,
            documentation="Name of the header.",
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._name = self.config().parse(props)["name"]

    def test_many(self, records: Sequence[Record]) -> list[bool]:
        name = self._name
        return [bool(r.headers) and any(h.name == name for h in r.headers) for r in records]

    def leaves_values(self) -> bool:
        return True

    def test_batch(self, batch: Batch) -> bool | list[bool]:
        if batch.headers is None:
            return False
        return [any(h.name == self._name for h in headers) for headers in batch.headers]


class RecordIsTombstone(_KlammPredicate):
    """Records without a value."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"

    def test_many(self, records: Sequence[Record]) -> list[bool]:
        return [r.value is None for r in records]

    def leaves_values(self) -> bool:
        return True

    def test_batch(self, batch: Batch) -> bool | list[bool]:
        return batch.nulls()


class TopicNameMatches(_KlammPredicate):
    """Records whose whole topic a regular expression matches."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "pattern",
            Type.STRING,
            validator=_pattern,
            importance=Importance.MEDIUM,
            documentation="Regular expression (Java's syntax) that the whole topic must match.",
        )

    def configure(self, props: Mapping[str, Any]) -> None:
        self._pattern = compile_java(self.config().parse(props)["pattern"])
        self._known: dict[str, bool] = {}

    def test_many(self, records: Sequence[Record]) -> list[bool]:
        return list(map(self._matches, [r.topic for r in records]))

    def leaves_values(self) -> bool:
        return True

    def test_batch(self, batch: Batch) -> bool | list[bool]:
        return self._matches(batch.topic)

    def _matches(self, topic: str) -> bool:
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            found = self._known[topic] = self._pattern.fullmatch(topic) is not None
        return found


def _pattern(name: str, value: Any) -> None:
    non_empty(name, value)
    regex(name, value)
