"""A source's batches go through transforms and converters in columns, and come out as their records would."""

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from plugins.test_debezium_transforms import OUTBOX_CHANGE, SETTINGS, changes, made
from plugins.test_plugin_sink_batch import STRUCT, VALUES, maps, predicates, structs
from plugins.test_plugin_transforms import configured

from klamm.connect.child.plugins import Converters
from klamm.connect.child.source_records import SourceRecords
from klamm.connect.child.transform_chain import Stage, TransformChain
from klamm_plugins import batch as batches
from klamm_plugins.batch import SourceBatch, batches_like, raw_texts
from klamm_plugins.columns import StructColumn
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.records import Headers
from klamm_plugins.schema import STRING, Struct
from klamm_plugins.transforms.all import TRANSFORMS
from klamm_plugins.transforms.cast import CastValue
from klamm_plugins.transforms.debezium.by_logical_table_router import ByLogicalTableRouter
from klamm_plugins.transforms.debezium.event_router import EventRouter
from klamm_plugins.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from klamm_plugins.transforms.extract_field import ExtractFieldValue
from klamm_plugins.transforms.filter import Filter
from klamm_plugins.transforms.hoist_field import HoistFieldValue
from klamm_plugins.transforms.insert_field import InsertFieldValue
from klamm_plugins.transforms.mask_field import MaskFieldValue
from klamm_plugins.transforms.regex_router import RegexRouter
from klamm_plugins.transforms.replace_field import ReplaceFieldValue
from klamm_plugins.transforms.timestamp_router import TimestampRouter
from klamm_plugins.transforms.value_to_key import ValueToKey

CONVERTERS = Converters(key=JsonConverter(), value=JsonConverter(), header=SimpleHeaderConverter())


class Door:
    """Tolerates bad records, and keeps what is said of them."""

    def __init__(self):
        self.failures = []
        self.retry = self

    def call(self, stage, operation):
        return operation()

    def failed(self, record, error, *, stage, executing):
        self.failures.append((record.source_offset["n"], stage, executing, str(error)))


@st.composite
def source_batches(draw):
    count = draw(st.integers(1, 6))
    key_schema, keys = draw(st.sampled_from([(None, maps), (STRUCT, structs), (None, None)]))
    value_schema, values = draw(st.sampled_from([(None, maps), (STRUCT, structs), (None, VALUES)]))
    times = st.integers(1, 2**41)

    def column(of):
        return draw(st.lists(of, min_size=count, max_size=count))

    if values is VALUES and draw(st.booleans()):
        made = raw_texts([text.encode() for text in column(st.text(max_size=3))])
    else:
        made = column(values)
    if value_schema is STRUCT and None not in made and draw(st.booleans()):
        made = StructColumn(STRUCT, list(zip(*(each.values for each in made), strict=True)), count)
    return SourceBatch(
        {"file": "a"},
        "t",
        made,
        list(range(10, 10 + count)),
        offset_of=lambda row: {"file": "b", "n": row},
        value_schema=value_schema,
        keys=None if keys is None else column(keys),
        key_schema=key_schema,
        partition=draw(st.sampled_from([None, 1])),
        timestamp=draw(st.none() | times | st.just([None] * count)) or column(st.none() | times),
        headers=draw(st.none() | st.just([Headers.of(("h", 1))] * count)),
    )


def sent(records, chain):
    """Returns what a producer gets, the offsets behind it, and what is said of bad records."""
    door = Door()
    found, offsets = [], []
    for chunk in SourceRecords(converters=CONVERTERS, chain=chain, tolerance=door, records=False).chunks(
        records
    ):
        offsets.append((len(chunk.originals), chunk.source_offset))
        for i, value in enumerate(chunk.values):
            found.append((
                chunk.topic,
                chunk.partition,
                chunk.keys and chunk.keys[i],
                value,
                (chunk.headers and chunk.headers[i]) or None,
                (chunk.timestamps and chunk.timestamps[i]) or 0,
                chunk.sent[i],
            ))  # fmt: skip
    assert sum(count for count, _ in offsets) == len(records)
    assert [o["n"] for _, o in offsets] == sorted(o["n"] for _, o in offsets)
    assert offsets[-1][1] == records[-1].source_offset
    return found, sorted(door.failures)


@settings(max_examples=300, deadline=None)
@given(
    source_batches(), st.lists(st.tuples(st.sampled_from(TRANSFORMS), predicates, st.booleans()), max_size=3)
)
def test_a_batch_is_sent_as_its_records(batch, stages):
    chain = TransformChain([
        Stage(alias="x", transform=configured(cls), predicate=chosen, negate=negate and chosen is not None)
        for cls, chosen, negate in stages
    ])  # fmt: skip
    assert sent(batch, chain) == sent(list(batch), chain)


@settings(max_examples=80, deadline=None)
@given(events=changes(), keyed=st.booleans())
def test_change_events_are_sent_as_their_records(events, keyed):
    for n, event in enumerate(events):
        event.source_partition, event.source_offset = {}, {"n": n}
        if not keyed and n % 2:
            event.key = None
    first = SourceBatch({}, "t", [None] * len(events), range(len(events)), offset_name="n")
    for cls, config in SETTINGS:
        note(f"{cls.__name__} {config}")
        chain = TransformChain([Stage(alias="x", transform=made(cls, **config))])
        for batch in batches_like(first, events):
            assert sent(batch, chain) == sent(list(batch), chain)


@given(source_batches(), st.data())
def test_parts_of_a_batch_are_parts_of_its_records(batch, data):
    records = list(batch)
    rows = sorted(data.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1)))
    assert list(batch.select(rows)) == [records[row] for row in rows]
    assert [batch[row] for row in rows] == [records[row] for row in rows]
    assert list(batch[1:]) == records[1:]
    assert batch.records() == records
    assert [r for part in batches_like(batch, records) for r in part] == records


COLUMNS = [
    (InsertFieldValue, {"topic.field": "topic", "timestamp.field": "at"}),
    (ReplaceFieldValue, {"exclude": "b", "renames": "a:c"}),
    (MaskFieldValue, {"fields": "a"}),
    (ValueToKey, {"fields": "a"}),
    (TimestampRouter, {}),
    (RegexRouter, {"regex": "t", "replacement": "u"}),
    (ExtractFieldValue, {"field": "a"}),
    (Filter, {}),
    (HoistFieldValue, {"field": "a"}),
    (CastValue, {"spec": "b:string"}),
]
EVENTS = [(ExtractNewRecordState, {}), (ByLogicalTableRouter, {"topic.regex": "t", "topic.replacement": "u"})]


@pytest.mark.parametrize("kind", ["source", "sink"])
@pytest.mark.parametrize(
    ("cls", "config"), [*COLUMNS, *EVENTS, (EventRouter, {})], ids=lambda x: getattr(x, "__name__", "")
)
def test_no_row_is_made(cls, config, kind, monkeypatch):
    transform = cls()
    transform.configure(cls.config().parse(config))
    batch = rows_for(cls)
    if kind == "sink":
        batch = batches.SinkBatch(
            batches.TopicPartition("t", 0), range(len(batch)), batch.values,
            value_schema=batch.value_schema, times=[("CreateTime", 5)] * len(batch), new=no_record,
        )  # fmt: skip
    monkeypatch.setattr(batches, "SourceRecord", no_record)
    chain = TransformChain([Stage(alias="x", transform=transform)])
    found = chain.in_columns(batch)
    assert found is not None
    assert (sum(map(len, found)) == 0) == (cls is Filter)


def test_bytes_stay_bytes_where_no_transform_looks():
    router = configured(RegexRouter)
    chain = TransformChain([Stage(alias="x", transform=router, predicate=None, negate=False)])
    batch = SourceBatch({}, "t", raw_texts([b"a", b"b", b"c"]), range(3), value_schema=STRING)
    (found,) = chain.in_columns(batch[1:])
    assert found.raw_values.data == [b"b", b"c"]
    assert found.raw_values._values is None
    assert [record.value for record in found.select([1])] == ["c"]


def no_record(*_, **__):
    raise AssertionError("a record was made")


def rows_for(cls):
    if cls not in {ExtractNewRecordState, ByLogicalTableRouter, EventRouter}:
        values = [Struct(STRUCT, a="x", b=1), Struct(STRUCT, b=2)]
        return SourceBatch({}, "t", values, [1, 2], offset_name="n", value_schema=STRUCT, timestamp=5)
    from plugins.test_debezium_transforms import EVENT, PAYLOAD, change

    row = EVENT | {"payload": PAYLOAD}
    events = [change("c", None, row, OUTBOX_CHANGE, "t"), change("d", row, None, OUTBOX_CHANGE, "t")]
    values = [*(event.value for event in events), None]
    return SourceBatch({}, "t", values, [1, 2, 3], offset_name="n", value_schema=OUTBOX_CHANGE, timestamp=5)
