"""Transforms and predicates: the base classes of plugins that change records between a connector and its topics.

A chain of transforms runs in each task: in a source between the task and the converters, in a sink between the
converters and the task. One instance serves one task, from one thread. The runtime calls the `_many` methods with
the records that came together, thousands at a time, so a transform that overrides them pays for a call once per
list. In a sink, and from sources that make batches, records come in columns; a chain whose transforms all override
`apply_batch` makes no records at all.
DataError and RetriableError mean what `klamm_plugins.errors` says. When a `_many` method raises, the
runtime goes through the records one by one to find the bad ones, so the result for one record must not depend on
the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from klamm_plugins.batch import Batch
from klamm_plugins.connector import Plugin
from klamm_plugins.original_keys import OriginalKeys
from klamm_plugins.records import SinkRecord, SourceRecord

Record = SourceRecord | SinkRecord


class Transformation(Plugin, ABC):
    """A plugin that changes, or drops, single records (Kafka: Transformation).

    Life: constructor (no arguments), `configure` once, `apply_many` and `apply` again and again, `close`. It never
    changes the record that comes in, which may be needed as it was. Change `record.copy()`, and copies of its parts.
    """

    original_keys: ClassVar[OriginalKeys | None] = None
    """The verdict on each key of the transform whose name it takes, as for connectors (`Connector.original_keys`)."""

    def configure(self, props: Mapping[str, Any]) -> None:
        """Takes its settings: those below `transforms.NAME.`, prefix removed, typed by `config()`.

        Raises ConfigError for settings that cannot be used together.
        """

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """Returns the record that replaces this one, or this one; None drops it. Raises DataError for a record that does not
        fit.
        """

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        """Does `apply` for a list. The result has the same length and order."""
        return list(map(self.apply, records))

    def leaves_values(self) -> bool:
        """Returns True if `apply_batch` does not look at the values of records, which may then stay the bytes that they were."""
        return False

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """Does `apply` for a batch of a source or a sink, in columns: returns the batches that take its place, in the order of the records;
        none where all are dropped. Called only where it is overridden, and not by a subclass that overrides `apply` alone.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases what `configure` took. Called once, also after a `configure` that raised."""


class Predicate(Plugin, ABC):
    """A plugin that selects the records of a transform (Kafka: Predicate, KIP-585). Its life is that of a
    Transformation.
    """

    def configure(self, props: Mapping[str, Any]) -> None:
        """Takes its settings: those below `predicates.NAME.`, prefix removed, typed by `config()`."""

    @abstractmethod
    def test(self, record: Record) -> bool:
        """Returns whether the predicate selects the record."""

    def test_many(self, records: Sequence[Record]) -> list[bool]:
        """Does `test` for a list. The result has the same length and order."""
        return list(map(self.test, records))

    def leaves_values(self) -> bool:
        """Returns True if `test_batch` does not look at values."""
        return False

    def test_batch(self, batch: Batch) -> bool | list[bool]:
        """Does `test` for a batch: returns one answer for all its records, or one for each. As with `apply_batch`, it is
        called only where it is overridden.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases what `configure` took."""
