"""Batches as lines of a bulk request, in columns. No I/O.

Values that are still the bytes of their topic go into the lines as they are, if they are an object on one line. Maps,
structs and text are written column by column. All other records pass one by one (`documents`): nulls, text over several
lines, bad ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple

from klamm_connectors.elasticsearch.buffer import Build
from klamm_connectors.elasticsearch.config import Settings
from klamm_connectors.elasticsearch.documents import ID_MAX, UPDATE, DocumentBuilder
from klamm_plugins.batch import JSON, TEXT, SinkBatch
from klamm_plugins.errors import DataError
from klamm_plugins.records import SinkRecord

_is_object: Final = methodcaller("startswith", b"{")
Invalid = Callable[[SinkRecord, DataError], None]
"""Judges a record that cannot become a document; raises when the task must fail."""


class Lines(NamedTuple):
    """The actions for a batch. `rows` are the records that have one; `ids` is empty where none is ordered by its id.

    `indexed`: not all are deletions. `rebuild` makes an action anew, where the bytes of the topic are in it.
    """

    lines: Sequence[bytes]
    ids: Sequence[str | None]
    rows: Sequence[int]
    indexed: bool
    rebuild: Build | None = None


class LineBuilder:
    """Turns batches into lines."""

    def __init__(self, settings: Settings) -> None:
        self._one = DocumentBuilder(settings)
        self._generated_ids = settings.generated_ids
        # A data stream looks for a timestamp in the value, and an update must be one object.
        formats: dict[str, tuple[str, ...]] = {"index": (JSON, TEXT), "update": (JSON,), "create": ()}
        self.formats = formats[self._one.operation]

    def target(self, topic: str) -> str:
        """Returns the index, data stream or alias for a topic's records."""
        return self._one.action(topic).index

    def lines(self, batch: SinkBatch, invalid: Invalid) -> Lines:
        """Returns the batch's actions, without those of records for which there is nothing to do, or that are invalid."""
        everything = range(len(batch))
        raw = batch.raw(*self.formats)
        sources = self._one.sources(batch) if raw is None else raw
        odd = everything if sources is None else _odd(sources)
        if sources is None or len(odd) * 2 > len(batch):
            return self._one_by_one(batch, everything, invalid)
        rebuild = None if raw is None or batch.raw(JSON) is None else self._one.build
        if not odd:
            lines = self._in_columns(batch, sources, rebuild)
            return self._one_by_one(batch, everything, invalid) if lines is None else lines
        others = set(odd)
        rows = [row for row in everything if row not in others]
        lines = self._in_columns(batch.select(rows), [sources[row] for row in rows], rebuild)
        if lines is None:
            return self._one_by_one(batch, everything, invalid)
        return _merged(lines._replace(rows=rows), self._one_by_one(batch, odd, invalid))

    def _in_columns(self, batch: SinkBatch, raw: Sequence[Any], rebuild: Build | None) -> Lines | None:
        """Returns the actions for objects, each on one line; None if a key is unusual, or a version missing."""
        action = self._one.action(batch.topic)
        head, count = action.head.encode(), range(len(raw))
        update = self._one.operation == "update"
        if self._generated_ids:
            return Lines([b"%b}}\n%b\n" % (head, v) for v in raw], (), count, indexed=True, rebuild=rebuild)
        if action.ignores_key:
            head += b',"_id":"%b+%d+' % (batch.origin.topic.encode(), batch.origin.partition)
            end = b'"' + UPDATE if update else b'"}}\n%b\n'
            form = b"%b%d" + end
            lines = [form % (head, offset, v) for offset, v in zip(batch.offsets, raw, strict=True)]
            return Lines(lines, (), count, indexed=True, rebuild=rebuild)
        keys = batch.keys
        if keys is None or not _are_plain(keys):
            return None
        head += b',"_id":"'
        encoded = map(str.encode, keys)
        if self._one.operation == "index":
            if (versions := self._one.versions(batch)) is None:
                return None
            form = b'%b%b","version":%d,"version_type":"external"}}\n%b\n'
            lines = [form % (head, *each) for each in zip(encoded, versions, raw, strict=True)]
        else:
            form = b'%b%b"' + (UPDATE if update else b"}}\n%b\n")
            lines = [form % (head, key, v) for key, v in zip(encoded, raw, strict=True)]
        return Lines(lines, keys, count, indexed=True, rebuild=rebuild)

    def _one_by_one(self, batch: SinkBatch, rows: Sequence[int], invalid: Invalid) -> Lines:
        lines: list[bytes] = []
        ids: list[str | None] = []
        kept: list[int] = []
        indexed = False
        records = batch.records() if len(rows) == len(batch) else [batch[row] for row in rows]
        for row, record in zip(rows, records, strict=True):
            try:
                built = self._one.build(record)
            except DataError as e:
                invalid(record, e)
                continue
            if built is not None:
                lines.append(built[0])
                ids.append(built[1])
                kept.append(row)
                indexed = indexed or record.value is not None
        return Lines(lines, ids if any(ids) else (), kept, indexed=indexed)


def _odd(raw: Sequence[bytes | None]) -> list[int]:
    """Returns the rows that are no object on one line."""
    try:
        joined = b"".join(raw)  # type: ignore[arg-type]
    except TypeError:
        joined = b"\n"  # there is a null
    if b"\n" not in joined and b"\r" not in joined and all(map(_is_object, raw)):
        return []
    return [i for i, v in enumerate(raw) if v is None or not _is_object(v) or b"\n" in v or b"\r" in v]


def _are_plain(keys: Sequence[object]) -> bool:
    """Returns whether all keys are ids that JSON writes as they are."""
    try:
        joined = "".join(keys)  # type: ignore[arg-type]
    except TypeError:
        return False
    plain = joined.isascii() and joined.isprintable() and '"' not in joined and "\\" not in joined
    return plain and all(keys) and max(map(len, keys)) <= ID_MAX  # type: ignore[arg-type]


def _merged(plain: Lines, others: Lines) -> Lines:
    """Returns the actions of both in the order of their records."""
    both = [*zip(plain.rows, plain.lines, plain.ids or [None] * len(plain.rows), strict=True)]
    both += zip(others.rows, others.lines, others.ids or [None] * len(others.rows), strict=True)
    both.sort(key=lambda each: each[0])
    rows, lines, ids = zip(*both, strict=True)
    return Lines(lines, ids if plain.ids or others.ids else (), rows, indexed=True, rebuild=plain.rebuild)
