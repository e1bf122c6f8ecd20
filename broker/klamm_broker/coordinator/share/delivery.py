"""Requests of readers to a share partition and their answers; the records that were read for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from klamm_kafka.wire.errors import ErrorCode

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4


class Span(NamedTuple):
    """A record batch of the log, with what is needed of it."""

    first: int
    last: int
    size: int
    producer_id: int
    is_transactional: bool
    is_control: bool


class Ask(NamedTuple):
    """A reader's wish for records. With `record_limit` no more than `max_records` are given, else whole batches."""

    member_id: str
    max_records: int
    batch_size: int
    record_limit: bool


class Acquired(NamedTuple):
    """Records that a reader has got, and how often they were delivered by now."""

    first: int
    last: int
    deliveries: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


class Ack(NamedTuple):
    """An acknowledgement of some records: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def pieces(self, first: int, last: int) -> Iterable[tuple[int, int, int]]:
        """Yields (first, last, type) of neighbours with the same type, as far as they are among these records."""
        if len(self.types) == 1:
            yield first, last, self.types[0]
            return
        begin = first
        for offset in range(first, last + 1):
            type_ = self.types[offset - self.first]
            if offset == last or self.types[offset + 1 - self.first] != type_:
                yield begin, offset, type_
                begin = offset + 1


class AckRefused(Exception):
    """An acknowledgement cannot be; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def merged(acquired: Iterable[Acquired]) -> list[Acquired]:
    """Join neighbours with the same count."""
    result: list[Acquired] = []
    for item in acquired:
        last = result[-1] if result else None
        if last is not None and last.last + 1 == item.first and last.deliveries == item.deliveries:
            result[-1] = Acquired(last.first, item.last, item.deliveries)
        else:
            result.append(item)
    return result


def aborted_spans(spans: Iterable[Span], aborted: Sequence[tuple[int, int]]) -> list[Span]:
    """Returns the record batches that belong to aborted transactions, given as (producer id, first offset)."""
    waiting = sorted(aborted, key=lambda item: -item[1])
    producers: set[int] = set()
    result = []
    for span in spans:
        while waiting and waiting[-1][1] <= span.last:
            producers.add(waiting.pop()[0])
        if span.is_control:
            producers.discard(span.producer_id)
        elif span.is_transactional and span.producer_id in producers:
            result.append(span)
    return result


def without(acquired: Sequence[Acquired], spans: Sequence[Span]) -> list[Acquired]:
    """Returns what is left of these records without those of the given batches. Both are in order."""
    result = []
    for item in acquired:
        first = item.first
        for span in spans:
            if span.last < first:
                continue
            if span.first > item.last:
                break
            if span.first > first:
                result.append(Acquired(first, span.first - 1, item.deliveries))
            first = span.last + 1
        if first <= item.last:
            result.append(Acquired(first, item.last, item.deliveries))
    return result
