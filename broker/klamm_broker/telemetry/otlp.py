"""Reads the numbers out of OpenTelemetry's MetricsData, version 1, as clients push them (KIP-714). Pure.

A small reader of protocol buffers for the fields that matter: gauges and sums. Other kinds of metrics (histograms,
summaries) are counted and left out; no client of Kafka sends them. Bytes come from strangers: every length is
checked, points after `limit` are left out, and a push has at most `FIELDS_MAX` fields. `steps` reads it in pieces of bounded
size, and only the metrics that were asked for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
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

STRETCH_MAX: Final = 5_000
"""Fields of one piece, after which others are served: some 5 ms. A thousand metrics with one point each are a thousand pieces."""
EVERYTHING: Final = ("",)
"""The prefix of all names."""


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
    """The content of one push. `left_out` counts what was neither gauge nor sum, was not asked for, or came after the limit."""

    points: list[Point]
    left_out: int = 0


def read(data: bytes | bytearray | memoryview, limit: int, prefixes: Sequence[str] = EVERYTHING) -> Pushed:
    """Returns at most `limit` points of a MetricsData, of metrics with these prefixes. Raises MalformedMetrics."""
    reading = steps(data, limit, prefixes)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            pushed: Pushed = end.value
            return pushed


def steps(
    data: bytes | bytearray | memoryview, limit: int, prefixes: Sequence[str] = EVERYTHING
) -> Generator[None, None, Pushed]:
    """Read as `read` does, in steps."""
    reader = _Reader(limit, tuple(prefixes))
    try:
        yield from reader.read(memoryview(data))
    except (VarintTooLong, IndexError, UnicodeDecodeError) as e:
        raise MalformedMetrics(f"metrics are malformed: {e}") from None
    return reader.result


class _Reader:
    """Reads one MetricsData. `result` is what was found so far."""

    def __init__(self, limit: int, prefixes: tuple[str, ...]) -> None:
        self.result = Pushed([])
        self._limit = limit
        self._prefixes = prefixes
        self._fields_left = FIELDS_MAX
        self._stretch_left = STRETCH_MAX

    def read(self, data: memoryview) -> Generator[None, None, None]:
        for resource_metrics in self._messages(data, 1):
            resource: dict[str, str] = {}
            for described in self._messages(resource_metrics, 1):
                resource = self._attributes(described, 1)
            yield from self._pause()
            for scope_metrics in self._messages(resource_metrics, 2):
                for metric in self._messages(scope_metrics, 2):
                    yield from self._metric(metric, resource)
                    yield from self._pause()

    def _pause(self) -> Generator[None, None, None]:
        self._stretch_left = STRETCH_MAX
        yield None

    def _metric(self, metric: memoryview, resource: Mapping[str, str]) -> Generator[None, None, None]:
        name = ""
        for field, value in self._fields(metric):
            if field == 1:
                name = _text(value)
            elif field in (5, 7) and name.startswith(self._prefixes):
                yield from self._points(name, _message(value), resource, is_sum=field == 7)
            elif field in (5, 7, 9, 10, 11):
                self.result.left_out += 1

    def _points(
        self, name: str, body: memoryview, resource: Mapping[str, str], *, is_sum: bool
    ) -> Generator[None, None, None]:
        is_delta, is_monotonic = self._kind(body) if is_sum else (False, False)
        for point in self._messages(body, 1):
            if len(self.result.points) >= self._limit:
                self.result.left_out += 1
                continue
            number = self._number(point)
            if number is not None:
                labels = {**resource, **self._attributes(point, 7)}
                self.result.points.append(Point(name, labels, number, is_delta, is_monotonic))
            yield from self._pause()

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
            self._stretch_left -= 1
            if self._fields_left < 0:
                raise MalformedMetrics(f"metrics have more than {FIELDS_MAX} fields")
            if self._stretch_left < 0:
                raise MalformedMetrics(f"metrics have more than {STRETCH_MAX} fields between two points")
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
