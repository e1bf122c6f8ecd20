r"""Rows as the lines of a bulk request, an action and a document each. Works on whole columns; pure.

A block is an Arrow array with one element per document, `{"create":{…}}\n{…}\n`. A part of it is a part of
its buffer, so sending costs nothing per document. Only refused documents are looked at one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from klamm_base.errors import KlammError

_UNSAFE: Final = r'["\\\x00-\x1f]'
"""Characters that a JSON text must escape."""


class BadDocumentError(KlammError):
    """Elasticsearch refused documents and there is no dead letter topic, or a row has no id."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that make a document, and its `operation` (index or create)."""

    operation: str
    id_columns: tuple[str, ...]
    index: str | None
    document: str | None


def block(batch: pa.RecordBatch, layout: Layout) -> pa.LargeBinaryArray:
    """Returns the lines of all rows. Raises BadDocumentError for a row without id."""
    if absent := [c for c in layout.id_columns if batch.column(c).null_count]:
        raise BadDocumentError(
            f"column {absent[0]} is null in a row: it is the document's id, and such rows would overwrite each other; leave "
            "them out in the query, or name other columns by the option id"
        )
    empty = pa.scalar("", pa.large_string())
    ids = [pc.cast(batch.column(c), pa.large_string()) for c in layout.id_columns]
    identity = (
        ids[0] if len(ids) == 1 else pc.binary_join_element_wise(*ids, pa.scalar("-", pa.large_string()))
    )
    indexes = _indexes(batch, layout)
    parts = [
        f'{{"{layout.operation}":{{"_index":"', _quoted(indexes), '","_id":"', _quoted(identity), '"}}\n',
        _documents(batch, layout), "\n",
    ]  # fmt: skip
    joined = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p for p in parts]
    return pc.binary_join_element_wise(*joined, empty).cast(pa.large_binary())


def indexes(batch: pa.RecordBatch, layout: Layout) -> set[str]:
    """Returns the names of the indices that the rows go to."""
    found = _indexes(batch, layout)
    return {found.as_py()} if isinstance(found, pa.Scalar) else set(pc.unique(found).to_pylist())


def _indexes(batch: pa.RecordBatch, layout: Layout) -> Any:
    if "_index" not in batch.schema.names:
        return pa.scalar(layout.index, pa.large_string())
    column = pc.cast(batch.column("_index"), pa.large_string())
    if layout.index is not None:
        return pc.fill_null(column, layout.index)
    if column.null_count:
        raise BadDocumentError("column _index is null in a row, and there is no option index")
    return column


def _quoted(text: Any) -> Any:
    """Escapes texts for JSON. Ids hardly ever need it, so Python only handles a column that does."""
    if isinstance(text, pa.Scalar):
        return pa.scalar(orjson.dumps(text.as_py())[1:-1].decode(), pa.large_string())
    if not pc.any(pc.match_substring_regex(text, _UNSAFE)).as_py():
        return text
    return pa.array([orjson.dumps(t)[1:-1].decode() for t in text.to_pylist()], pa.large_string())


def _documents(batch: pa.RecordBatch, layout: Layout) -> Any:
    if layout.document is not None:
        column = batch.column(layout.document)
        text = pc.fill_null(pc.cast(column, pa.large_string()), "{}")
        # Within JSON a line end is white space; within a bulk request it ends the document.
        return (
            pc.replace_substring(text, "\n", " ") if pc.any(pc.match_substring(text, "\n")).as_py() else text
        )
    hidden = {"_index", *(c for c in layout.id_columns if c == "_id")}  # no fields: where the document goes
    body = batch.select([n for n in batch.schema.names if n not in hidden])
    rows = [orjson.dumps(row, _plain, orjson.OPT_NON_STR_KEYS).decode() for row in body.to_pylist()]
    return pa.array(rows, pa.large_string())


def _plain(value: Any) -> Any:
    """Converts types that JSON lacks: bytes to text (else base64), decimals to numbers if these are exact."""
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)


def cut(lines: pa.LargeBinaryArray, most_documents: int, most_bytes: int) -> Iterator[pa.LargeBinaryArray]:
    """Cuts a block into parts for one request each, with at least one document per part."""
    if not len(lines):
        return
    ends = pc.cumulative_sum(pc.cast(pc.binary_length(lines), pa.int64())).to_numpy()
    at = before = 0
    while at < len(lines):
        fits = int(ends.searchsorted(before + most_bytes, side="right"))
        end = max(at + 1, min(fits, at + most_documents))
        yield lines.slice(at, end - at)
        at, before = end, int(ends[end - 1])


def body(lines: pa.LargeBinaryArray) -> memoryview:
    """Returns the bytes of a part, without a copy."""
    _, offsets, data = lines.buffers()
    bounds = memoryview(offsets).cast("q")
    begin, end = bounds[lines.offset], bounds[lines.offset + len(lines)]
    return memoryview(data)[begin:end] if data is not None else memoryview(b"")


def document(lines: pa.LargeBinaryArray, number: int) -> bytes:
    """Returns the document alone."""
    found: bytes = lines[number].as_py()
    return found.partition(b"\n")[2][:-1]


def identity(lines: pa.LargeBinaryArray, number: int) -> tuple[str, str]:
    """Returns index and id of a document."""
    found: bytes = lines[number].as_py()
    meta = next(iter(orjson.loads(found.partition(b"\n")[0]).values()))
    return meta["_index"], meta["_id"]


def chosen(lines: pa.LargeBinaryArray, numbers: Sequence[int]) -> pa.LargeBinaryArray:
    return lines.take(pa.array(numbers, pa.int64()))
