"""Reads the numbers out of OpenTelemetry's MetricsData, version 1, as clients push them (KIP-714). Pure.

A small reader of protocol buffers for the fields that matter: gauges and sums. Other kinds of metrics (histograms,
summaries) are counted and left out; no client of Kafka sends them. Bytes come from strangers: every length is
checked, points after `limit` are left out, and a push has at most `FIELDS_MAX` fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from klamm_kafka.wire.varint import VARLONG_BYTES_MAX, VarintTooLong, decode_uvarint

Value = int | memoryview
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")
_DELTA: Final = 1
"""AggregationTemporality of a sum: the point is the change since the last push."""
_ATTRIBUTES_MAX: Final = 16
"""Attributes of a point or resource; Java's clients have two at most."""
FIELDS_MAX: Final = 50_000
"""Fields of one push, of all messages in it: some 50 ms of work. A thousand points of Java's clients have 15,000."""


class MalformedMetrics(ValueError):
    """Bytes that are no MetricsData."""


class Point(NamedTuple):
    """One number of a metric."""

    name: str
    labels: Mapping[str, str]
    value: int | float
    is_delta: bool
    """True for a change since the last push, False for the whole value."""
    is_monotonic: bool
    """True for a sum that never falls: a counter."""


@dataclass(slots=True)
class Pushed:
    """The content of one push. `left_out` counts what was neither gauge nor sum, or came after the limit."""

    points: list[Point]
    left_out: int = 0


def read(data: bytes | bytearray | memoryview, limit: int) -> Pushed:
    """Returns at most `limit` points of a MetricsData. Raises MalformedMetrics."""
    reader = _Reader(limit)
    try:
        reader.read(memoryview(data))
    except (VarintTooLong, IndexError, UnicodeDecodeError) as e:
        raise MalformedMetrics(f"metrics are malformed: {e}") from None
    return reader.result


class _Reader:
    """Reads one MetricsData. `result` is what was found so far."""

    def __init__(self, limit: int) -> None:
        self.result = Pushed([])
        self._limit = limit
        self._fields_left = FIELDS_MAX

    def read(self, data: memoryview) -> None:
        for resource_metrics in self._messages(data, 1):
            resource: dict[str, str] = {}
            for described in self._messages(resource_metrics, 1):
                resource = self._attributes(described, 1)
            for scope_metrics in self._messages(resource_metrics, 2):
                for metric in self._messages(scope_metrics, 2):
                    self._metric(metric, resource)

    def _metric(self, metric: memoryview, resource: Mapping[str, str]) -> None:
        name = ""
        for field, value in self._fields(metric):
            if field == 1:
                name = _text(value)
            elif field in (5, 7):
                body = _message(value)
                is_delta, is_monotonic = self._kind(body) if field == 7 else (False, False)
                for point in self._messages(body, 1):
                    if len(self.result.points) >= self._limit:
                        self.result.left_out += 1
                        continue
                    number = self._number(point)
                    if number is not None:
                        labels = {**resource, **self._attributes(point, 7)}
                        self.result.points.append(Point(name, labels, number, is_delta, is_monotonic))
            elif field in (9, 10, 11):
                self.result.left_out += 1

    def _kind(self, sum_: memoryview) -> tuple[bool, bool]:
        """Returns whether a Sum has deltas, and whether it only grows."""
        temporality = monotonic = 0
        for field, value in self._fields(sum_):
            if field == 2 and isinstance(value, int):
                temporality = value
            elif field == 3 and isinstance(value, int):
                monotonic = value
        return temporality == _DELTA, bool(monotonic)

    def _number(self, point: memoryview) -> int | float | None:
        """Returns the value of a NumberDataPoint; None if it says that none was recorded."""
        found: int | float = 0
        for field, value in self._fields(point):
            if field == 4 and isinstance(value, memoryview) and len(value) == 8:
                found = _DOUBLE.unpack(value)[0]
            elif field == 6 and isinstance(value, memoryview) and len(value) == 8:
                found = _SFIXED64.unpack(value)[0]
            elif field == 8 and value == 1:
                return None
        return found

    def _attributes(self, body: memoryview, wanted: int) -> dict[str, str]:
        """Returns the KeyValues in a field, values as text."""
        found: dict[str, str] = {}
        for pair in self._messages(body, wanted):
            key = text = ""
            for field, value in self._fields(pair):
                if field == 1:
                    key = _text(value)
                elif field == 2:
                    text = self._any_value(_message(value))
            if len(found) < _ATTRIBUTES_MAX:
                found[key] = text
        return found

    def _any_value(self, body: memoryview) -> str:
        """Returns an AnyValue's text; empty for lists, maps and bytes."""
        for field, value in self._fields(body):
            if field == 1:
                return _text(value)
            if field == 2:
                return "true" if value else "false"
            if field == 3 and isinstance(value, int):
                return str(value - (1 << 64) if value >> 63 else value)
            if field == 4 and isinstance(value, memoryview) and len(value) == 8:
                return repr(_DOUBLE.unpack(value)[0])
        return ""

    def _messages(self, body: memoryview, wanted: int) -> Iterator[memoryview]:
        """Yields the messages in the field `wanted`."""
        for field, value in self._fields(body):
            if field == wanted:
                yield _message(value)

    def _fields(self, body: memoryview) -> Iterator[tuple[int, Value]]:
        """Yields number and value of each field. Raises MalformedMetrics, IndexError or VarintTooLong."""
        pos, end = 0, len(body)
        while pos < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MalformedMetrics(f"metrics have more than {FIELDS_MAX} fields")
            tag, pos = decode_uvarint(body, pos)
            kind = tag & 7
            if kind == _VARINT:
                number, pos = decode_uvarint(body, pos, VARLONG_BYTES_MAX)
                yield tag >> 3, number
                continue
            size = 8 if kind == _FIXED64 else 4
            if kind == _BYTES:
                size, pos = decode_uvarint(body, pos)
            elif kind not in (_FIXED64, _FIXED32):
                raise MalformedMetrics(f"metrics are malformed: wire type {kind}")
            if size > end - pos:
                raise MalformedMetrics(f"metrics are malformed: {size} bytes announced, {end - pos} left")
            yield tag >> 3, body[pos : pos + size]
            pos += size


def _text(value: Value) -> str:
    return str(_message(value), "utf-8")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise MalformedMetrics("metrics are malformed: a number where a message is expected")
    return value
