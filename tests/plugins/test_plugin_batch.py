"""A batch in columns is the sequence of records that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins.batch import TEXT, RawValues, SourceBatch, SourceBatches, raw_texts
from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.converter import Converter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.records import SourceRecord
from klamm_plugins.schema import INT32, OPTIONAL_STRING, STRING, Schema, SchemaBuilder, Struct, Type
from klamm_plugins.transforms._parts import PartTransformation
from klamm_plugins.transforms.extract_field import ExtractFieldValue
from klamm_plugins.transforms.insert_field import InsertFieldValue
from klamm_plugins.transforms.replace_field import ReplaceFieldValue


def batch(values: list[str], *, keys: bool = False, raw: bool = False) -> SourceBatch:
    return SourceBatch(
        {"file": "a"},
        "t",
        raw_of(values) if raw else values,
        [10 * n for n in range(len(values))],
        offset_name="position",
        value_schema=STRING,
        keys=[f"k{n}" for n in range(len(values))] if keys else None,
        key_schema=STRING if keys else None,
        partition=3,
        timestamp=99,
    )


def raw_of(texts: list[str]) -> RawValues:
    raw = raw_texts([text.encode() for text in texts])
    assert raw is not None
    return raw


@given(st.lists(st.text(max_size=3), max_size=8), st.booleans(), st.booleans(), st.data())
def test_it_is_the_sequence_of_its_records(
    values: list[str], keys: bool, raw: bool, data: st.DataObject
) -> None:
    found = batch(values, keys=keys, raw=raw)
    records = [
        SourceRecord(
            {"file": "a"}, {"position": 10 * n}, "t", 3,
            STRING if keys else None, f"k{n}" if keys else None, STRING, value, 99,
        )
        for n, value in enumerate(values)
    ]  # fmt: skip
    assert list(found) == records
    assert [found[i] for i in range(len(values))] == records
    assert len(found) == len(records)
    cut = data.draw(st.slices(len(values)))
    assert list(found[cut]) == records[cut]
    if values:
        assert found.offset(len(values) - 1) == records[-1].source_offset


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values need as many positions"):
        SourceBatch({}, "t", ["a", "b"], [1], offset_name="n")


def test_structs_and_offsets_are_made_when_asked() -> None:
    schema = SchemaBuilder.struct().field("name", STRING).field("n", INT32).build()
    asked: list[int] = []

    def offset_of(position: int) -> dict[str, int]:
        asked.append(position)
        return {"file": 7, "row": position}

    values = StructColumn(schema, [Repeated("a", 3), range(3)], 3)
    found = SourceBatch({}, "t", values, range(1, 4), offset_of=offset_of, value_schema=schema)[1:]
    assert asked == []
    assert found.offset(-1) == {"file": 7, "row": 3}
    assert [r.value for r in found] == [Struct(schema, name="a", n=n) for n in (1, 2)]
    assert [r.source_offset["row"] for r in found] == [2, 3]
    with pytest.raises(ValueError, match=r"needs 2 columns of 3 values, not \[3, 2\]"):
        StructColumn(schema, [range(3), range(2)], 3)


@given(st.lists(st.booleans() | st.lists(st.text(max_size=2), max_size=3), max_size=6), st.data())
def test_batches_are_the_sequence_of_all_their_records(
    given_parts: list[bool | list[str]], data: st.DataObject
) -> None:
    parts = [list(batch(["x"] * part)) if isinstance(part, bool) else batch(part) for part in given_parts]
    found = SourceBatches(parts[:3])
    found.add(SourceBatches(parts[3:]))
    records = [record for part in parts for record in part]
    assert list(found) == records
    assert len(found) == len(records)
    assert [found[i] for i in range(-len(records), len(records))] == records * 2
    cut = data.draw(st.slices(len(records)))
    assert list(found[cut]) == records[cut]
    assert all(found.parts)


class Loud(StringConverter):
    """Overrides the simple method of a pair."""

    def from_connect_data(self, topic: str, schema: Schema | None, value: object) -> bytes | None:
        return str(value).upper().encode()


@pytest.mark.parametrize(
    ("cls", "props"),
    [
        (StringConverter, {}),
        (StringConverter, {"converter.encoding": "ISO-8859-1"}),
        (JsonConverter, {"schemas.enable": "false"}),
        (Loud, {}),
    ],
)
@given(texts=st.lists(st.text(st.characters(max_codepoint=0xFF)), max_size=8))
def test_bytes_that_go_into_the_topic_are_those_of_the_values(
    cls: type[Converter], props: dict[str, str], texts: list[str]
) -> None:
    converter = cls()
    converter.configure(props, is_key=False)
    made = converter.from_raw_values("t", STRING, raw_of(texts))
    assert made is None or list(made) == [converter.from_connect_data("t", STRING, text) for text in texts]
    assert (made is not None) == (cls is StringConverter and not props)


def test_bytes_that_are_no_text_are_no_raw_texts() -> None:
    assert raw_texts([b"a", None, "\u00fc".encode()]) is not None
    assert raw_texts([b"\xc3", b"\xbc"]) is None, "the halves of a character"
    raw = raw_texts([b"a", None])
    assert raw is not None
    assert raw.decode(raw.data) == ["a", None]
    assert raw.format == TEXT


ROW = (
    SchemaBuilder.struct("row")
    .field("n", INT32)
    .field("a", OPTIONAL_STRING)
    .field("d", SchemaBuilder(Type.STRING).optional().default("none").build())
    .build()
)


@pytest.mark.parametrize(
    ("cls", "props"),
    [
        (InsertFieldValue, {"static.field": "s", "static.value": "x", "topic.field": "t!", "timestamp.field": "at"}),
        (InsertFieldValue, {"partition.field": "p", "replace.null.with.default": "false"}),
        (ReplaceFieldValue, {"exclude": "a", "renames": "n:m"}),
        (ReplaceFieldValue, {"include": "d", "replace.null.with.default": "false"}),
        (ExtractFieldValue, {"field": "d"}),
        (ExtractFieldValue, {"field": "a", "replace.null.with.default": "false"}),
    ],
)  # fmt: skip
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 9), st.none() | st.just("x"), st.none() | st.just("y")),
        min_size=1,
        max_size=4,
    )
)
def test_transforms_of_fields_make_no_structs_of_columns(
    cls: type[PartTransformation | InsertFieldValue],
    props: dict[str, str],
    rows: list[tuple[int, str | None, str | None]],
) -> None:
    transform = cls()
    transform.configure(props)
    columns = [list(column) for column in zip(*rows, strict=True)]
    more = {"value_schema": ROW, "timestamp": [1] * len(rows), "partition": 3}
    batch = SourceBatch({}, "t", StructColumn(ROW, columns, len(rows)), range(len(rows)), **more)
    plain = SourceBatch(
        {}, "t", [Struct.of_checked(ROW, list(row)) for row in rows], range(len(rows)), **more
    )
    [made], [wanted] = transform.apply_batch(batch), transform.apply_batch(plain)
    assert made.value_schema == wanted.value_schema
    assert list(made.values) == list(wanted.values)
    assert cls is ExtractFieldValue or isinstance(made.values, StructColumn)
