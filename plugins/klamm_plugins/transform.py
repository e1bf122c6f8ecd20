"""Transforms and predicates: the base classes of what changes records between a connector and its topics.

A chain of transforms runs in each task: in a source between the task and the converters, in a sink between the
converters and the task. One instance serves one task, from one thread. The runtime calls the `_many` methods with the
records that came together, thousands at a time, so a transform that overrides them pays for a call once per list. What
`klamm_plugins.errors` says of DataError and RetriableError holds: when a `_many` method raises, the runtime goes through
the records one by one to find the bad ones, so what is done for one record must not depend on the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from klamm_plugins.connector import Plugin
from klamm_plugins.records import SinkRecord, SourceRecord

Record = SourceRecord | SinkRecord


class Transformation(Plugin, ABC):
    """Changes, or drops, single records (Kafka: Transformation).

    Life: constructor (no arguments), `configure` once, `apply_many` and `apply` again and again, `close`. A record
    that comes in is never changed: it may be needed as it was. Change `record.copy()`, and copies of what is in it.
    """

    def configure(self, props: Mapping[str, Any]) -> None:
        """Take its settings: those below `transforms.NAME.`, prefix removed, typed by `config()`.

        ConfigError for settings that cannot be used together.
        """

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """The record that takes this one's place, or this one; None drops it. DataError for one that does not fit."""

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        """`apply` for a list: as many, in the same order."""
        return list(map(self.apply, records))

    def close(self) -> None:
        """Release what `configure` took. Called once, also after a `configure` that raised."""


class Predicate(Plugin, ABC):
    """Says which records a transform is for (Kafka: Predicate, KIP-585). Its life is that of a Transformation."""

    def configure(self, props: Mapping[str, Any]) -> None:
        """Take its settings: those below `predicates.NAME.`, prefix removed, typed by `config()`."""

    @abstractmethod
    def test(self, record: Record) -> bool:
        """Whether the record is one of them."""

    def test_many(self, records: Sequence[Record]) -> list[bool]:
        """`test` for a list: as many, in the same order."""
        return list(map(self.test, records))

    def close(self) -> None:
        """Release what `configure` took."""
