"""The records of a source in columns: the same bytes and offsets go to the producer as from records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.connect.child.plugins import Converters
from klamm.connect.child.source_records import SourceRecords
from klamm.connect.child.transform_chain import TransformChain
from klamm_plugins.batch import SourceBatch, SourceBatches
from klamm_plugins.columns import Repeated, StructColumn
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import INT32, OPTIONAL_STRING, STRING, SchemaBuilder

KEY = SchemaBuilder.struct("k").field("id", INT32).build()
VALUE = SchemaBuilder.struct("v").field("op", STRING).field("text", OPTIONAL_STRING).build()
ENVELOPE = SchemaBuilder.struct("e").field("source", VALUE).field("n", INT32).build()


class Judge:
    """A tolerance that notes the bad records and goes on."""

    def __init__(self):
        self.bad = []
        self.retry = self

    def call(self, stage, operation):
        return operation()

    def failed(self, record, error, *, stage, executing):
        self.bad.append((record.source_offset, stage, str(error)))


def converters(schemas):
    key, value = JsonConverter(), JsonConverter()
    key.configure({"schemas.enable": schemas}, is_key=True)
    value.configure({"schemas.enable": schemas}, is_key=False)
    return Converters(key, value, SimpleHeaderConverter())


def sent(records, schemas, *, as_records):
    """Returns what the producer gets, and the offset behind it, record by record; and the bad records."""
    judge, found = Judge(), []
    source = SourceRecords(
        converters=converters(schemas), chain=TransformChain(), tolerance=judge, records=as_records
    )
    for chunk in source.chunks(records):
        keys = chunk.keys or [None] * len(chunk.values)
        found += [
            (chunk.topic, key, value, record.source_offset)
            for key, value, record in zip(keys, chunk.values, chunk.sent, strict=True)
        ]
        assert chunk.source_offset == chunk.originals[len(chunk.originals) - 1].source_offset
    return found, judge.bad


@st.composite
def batches(draw):
    texts = draw(st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=5))
    count = len(texts)
    numbers = draw(st.lists(st.integers(0, 9) | st.just(2**31), min_size=count, max_size=count))
    source = StructColumn(VALUE, [Repeated("c", count), texts], count)
    keys = draw(st.none() | st.just(StructColumn(KEY, [list(range(count))], count)))
    return SourceBatch(
        {"server": "p"},
        draw(st.sampled_from("tu")),
        StructColumn(ENVELOPE, [source, numbers], count),
        range(count),
        offset_of=lambda row: {"file": "b", "row": row},
        value_schema=ENVELOPE,
        keys=keys,
        key_schema=None if keys is None else KEY,
    )


@pytest.mark.parametrize("schemas", ["true", "false"])
@settings(max_examples=40, deadline=None)
@given(st.lists(batches(), min_size=1, max_size=4), st.booleans())
def test_columns_are_sent_as_their_records(schemas, parts, mixed):
    if mixed:
        parts[0] = list(parts[0])
    found = SourceBatches(parts)
    one_by_one = sent(list(found), schemas, as_records=False)
    assert sent(found, schemas, as_records=False) == one_by_one
    assert sent(found, schemas, as_records=True) == one_by_one
    assert len(one_by_one[0]) + len(one_by_one[1]) == len(found)


@settings(max_examples=40, deadline=None)
@given(batches(), st.lists(st.booleans(), min_size=5, max_size=5))
def test_tombstones_share_the_chunk_of_values(batch, dead):
    records = list(batch)
    for record, is_dead in zip(records, dead, strict=False):
        if is_dead:
            record.value_schema = record.value = None
    found, bad = sent(records, "true", as_records=False)
    alone = [sent([record], "true", as_records=False) for record in records]
    assert found == [each for one, _ in alone for each in one]
    assert bad == [each for _, some in alone for each in some]
    judge = Judge()
    source = SourceRecords(
        converters=converters("true"), chain=TransformChain(), tolerance=judge, records=False
    )
    starts = records[0].value_schema is None and any(r.value is not None for r in records)
    assert len(list(source.chunks(records))) == 1 + starts


def test_a_converter_that_knows_no_columns_gets_structs():
    class Names(JsonConverter):
        def from_connect_data_many(self, topic, schema, values):
            if any(v is not None and v["n"] > 9 for v in values):
                raise DataError("too much")
            return [f"{v['source']['op']}{v['n']}".encode() for v in values]

    column = StructColumn(ENVELOPE, [StructColumn(VALUE, [Repeated("c", 2), [None, "x"]], 2), range(2)], 2)
    assert Names().from_connect_data_many("t", ENVELOPE, column) == [b"c0", b"c1"]
