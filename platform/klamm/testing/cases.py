"""The description of a connector that joins the conformance suites: the value of its one fixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_plugins.connector import SinkConnector, SourceConnector
from klamm_plugins.schema import STRING, Schema


def _same(value: Any) -> Any:
    return value


def _text(number: int) -> tuple[Schema | None, Any]:
    return STRING, f"value {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCase:
    """A source connector under test: one source partition, one task, a topic with one partition.

    `produce(count)` makes the source hold `count` more records and returns what identifies each, in order. `shown` makes the same
    of a record's value as it comes out of its topic (a `Struct`, a string, …). `exact` False: after a crash the source may begin
    anew instead of going on right after any committed record. `endless`: the source makes its records up, and `produce` only says
    which come next. `change_schema()` gives the following records another schema; None where the source cannot do that. `bad` are
    configurations (key → value) that must be refused.
    """

    connector: type[SourceConnector]
    topic: str
    props: Mapping[str, str]
    produce: Callable[[int], Sequence[Any]]
    shown: Callable[[Any], Any] = _same
    exact: bool = True
    endless: bool = False
    change_schema: Callable[[], None] | None = None
    bad: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCase:
    """A sink connector under test. `props` leave out the topics.

    `make(n)` returns record number n as schema and value; `shown(n)` is what `written()` then has for it. `make_changed` is like
    `make` with another schema; None where the sink cannot do that. `keys`: records have their number as key (a string).
    `ordered`: `written` keeps the order. `once`: a record that is delivered twice is written once. `outage()`: the target cannot be
    reached within the block. `bad` are configurations (key → value) that must be refused.
    """

    connector: type[SinkConnector]
    props: Mapping[str, str]
    written: Callable[[], Sequence[Any]]
    make: Callable[[int], tuple[Schema | None, Any]] = _text
    shown: Callable[[int], Any] = field(default=lambda number: f"value {number}")
    make_changed: Callable[[int], tuple[Schema | None, Any]] | None = None
    ordered: bool = True
    once: bool = False
    outage: Callable[[], AbstractContextManager[object]] | None = None
    bad: Sequence[Mapping[str, str]] = ()


CONVERTERS: Final[Mapping[str, str]] = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}
"""The converters with which the suites write and read values. Schemas travel with the values."""
