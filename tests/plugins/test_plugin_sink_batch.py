"""A sink's batches: columns are the records that they stand for, whatever is done with them."""

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from plugins.test_plugin_transforms import VALUES, configured

from klamm.connect.child.transform_chain import Stage, TransformChain
from klamm_plugins.batch import JSON, TEXT, RawValues, SinkBatch, batches_of
from klamm_plugins.connector import SinkTask
from klamm_plugins.converters.avro import AvroConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import DataError
from klamm_plugins.overriding import is_newest
from klamm_plugins.predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from klamm_plugins.records import Headers, SinkRecord, TopicPartition
from klamm_plugins.schema import INT32, OPTIONAL_STRING, SchemaBuilder, Struct
from klamm_plugins.transforms.all import TRANSFORMS
from klamm_plugins.transforms.filter import Filter
from klamm_plugins.transforms.regex_router import RegexRouter

STRUCT = SchemaBuilder.struct().optional().field("a", OPTIONAL_STRING).field("b", INT32).build()
structs = st.none() | st.builds(
    lambda a, b: Struct(STRUCT, a=a, b=b), st.none() | st.sampled_from(["1", "x"]), st.integers(0, 9)
)
maps = st.none() | st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=3)


places = st.sampled_from([("t", 0), ("t", 1), ("u", 0)])
without_schema, with_schema = st.tuples(st.none(), maps), st.tuples(st.just(STRUCT), structs)
keys = without_schema | with_schema | st.just((None, None))
values = without_schema | with_schema | st.tuples(st.none(), VALUES)
times = st.just((None, "NoTimestampType")) | st.tuples(st.integers(0, 2**41), st.just("CreateTime"))
headers = st.sampled_from(["", "", "h", "i", "hi", "hh"]).map(
    lambda names: Headers.of(*((n, 1) for n in names))
)
sink_records = st.lists(st.tuples(places, keys, values, times, headers), max_size=8).map(
    lambda rows: [
        SinkRecord(*place, *key, *value, n, *time, h) for n, (place, key, value, time, h) in enumerate(rows)
    ]
)
"""The records of a poll: runs of one partition, schemas that change, some with headers or without timestamps."""


def placed(records):
    """Returns records with the place of their reading, which `==` leaves out."""
    return [(r, r.original_topic, r.original_kafka_partition, r.original_kafka_offset) for r in records]


def made_of(batches):
    """Returns the records of batches anew, from the columns."""
    return [record for batch in batches for record in batch.replace().records()]


@given(sink_records)
def test_records_come_out_of_batches_as_they_went_in(records):
    batches = batches_of(records)
    assert [r for batch in batches for r in batch] == records
    assert all(a is b for a, b in zip([r for batch in batches for r in batch], records, strict=True))
    assert placed(made_of(batches)) == placed(records)


@given(sink_records, st.data())
def test_parts_of_a_batch_are_parts_of_its_records(records, data):
    for batch in batches_of(records):
        fresh = batch.replace()
        rows = sorted(data.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1)))
        assert fresh.select(rows).records() == [batch[row] for row in rows]
        assert fresh[rows[0] :].records() == batch.records()[rows[0] :]
        assert fresh[rows[-1]] == batch[rows[-1]]
        assert fresh[-1] == batch.records()[-1]
        assert fresh[:0].records() == batch[:0].records() == []


def test_raw_values_are_converted_at_the_first_look_and_only_what_is_looked_at():
    calls = []

    def decode(data):
        calls.append(len(data))
        return [v and v.decode() for v in data]

    batch = SinkBatch(TopicPartition("t", 0), [5, 6, 7], RawValues(TEXT, [b"a", None, b"c"], decode))
    assert batch.raw(JSON) is None
    assert batch.raw(JSON, TEXT) == [b"a", None, b"c"]
    assert batch[2].value == "c"
    assert calls == [1]
    assert [r.value for r in batch] == ["a", None, "c"]
    assert batch.values == ["a", None, "c"]
    assert calls == [1, 3]
    assert batch.raw(TEXT) == [b"a", None, b"c"]
    assert batch.replace(topic="u").raw(TEXT) == [b"a", None, b"c"]
    assert batch.replace(values=[1, 2, 3]).raw(TEXT) is None


texts = st.sampled_from(
    [b"", b"null", b" null ", b"1", b'{"a":[1,null]}', b'{"a":1,"a":2}', b'"\xc3', b'\xa9"', b"\xff"]
)


@pytest.mark.parametrize(
    ("cls", "props"),
    [
        (StringConverter, {}),
        (StringConverter, {"converter.encoding": "ISO-8859-1"}),
        (JsonConverter, {"schemas.enable": "false"}),
        (JsonConverter, {"schemas.enable": "true"}),
    ],
)
@given(values=st.lists(st.none() | texts | st.binary(max_size=4), max_size=6))
def test_raw_values_are_what_the_converter_makes_of_them(cls, props, values):
    converter = cls()
    converter.configure(props, is_key=False)
    raw = converter.raw_values("t", values, (JSON, TEXT))
    if raw is not None:
        schemas, converted = converter.to_connect_columns("t", values)
        assert list(raw[1].decode(raw[1].data)) == list(converted)
        assert set(schemas) <= {raw[0]}
        batch = SinkBatch(TopicPartition("t", 0), range(len(values)), raw[1])
        assert batch.nulls() == [value is None for value in converted]
        assert batch.raw(JSON, TEXT) is raw[1].data


class Whole(JsonConverter):
    """Overrides the simple method of a pair."""

    def to_connect_data(self, topic, value):
        raise DataError("no")


@pytest.mark.parametrize("base", [JsonConverter, StringConverter, AvroConverter])
def test_values_are_written_by_the_simple_method_that_a_subclass_overrides(base):
    class Marked(base):
        def from_connect_data(self, topic, schema, value):
            return b"mine"

    class Mixed(Marking, base): ...

    for converter in (Marked(), Mixed()):
        assert converter.from_connect_data_many("t", None, ["x", "y"]) == [b"mine", b"mine"]
        assert converter.from_raw_values("t", None, RawValues(TEXT, [b"x"], bytes.decode)) is None


class Marking:
    """A mixin, which knows no converter."""

    def from_connect_data(self, topic, schema, value):
        return b"mine"


class SlowTask(SinkTask):
    def start(self, props): ...

    def put(self, records): ...

    def stop(self): ...


class FastTask(SlowTask):
    def put_batches(self, batches): ...


class Careful(FastTask):
    def put(self, records): ...


def test_a_subclass_that_overrides_the_simple_method_is_asked():
    converter = Whole()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    assert converter.raw_values("t", [b"1"], (JSON, TEXT)) is None
    for ask in (converter.to_connect_data_many, converter.to_connect_columns):
        with pytest.raises(DataError, match="no"):
            ask("t", [b"1"])
    assert is_newest(FastTask, "put_batches", "put")
    assert not is_newest(SlowTask, "put_batches", "put")
    assert not is_newest(Careful, "put_batches", "put")


class Door:
    """The part of Tolerance that the chain sees; it tolerates everything."""

    def __init__(self):
        self.failures = []
        self.retry = self

    def call(self, stage, operation):
        return operation()

    def failed(self, record, error, *, stage, executing):
        self.failures.append((record.offset, str(error)))


@settings(max_examples=60, deadline=None)
@given(records=sink_records)
def test_a_transform_of_columns_is_that_of_the_records(records):
    for cls in TRANSFORMS:
        note(cls.__name__)
        compare(configured(cls), records)


def compare(transform, records):
    for batch in batches_of(records):
        try:
            one_by_one = [r for r in transform.apply_many(batch.records()) if r is not None]
        except DataError:
            with pytest.raises((DataError, OverflowError)):
                transform.apply_batch(batch.replace())
            continue
        in_columns = transform.apply_batch(batch.replace())
        assert placed(r for part in in_columns for r in part) == placed(one_by_one)


def predicate(cls, **props):
    made = cls()
    made.configure(cls.config().parse(props))
    return made


predicates = st.sampled_from(
    [
        None,
        predicate(HasHeaderKey, name="h"),
        predicate(RecordIsTombstone),
        predicate(TopicNameMatches, pattern="t"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(sink_records, st.lists(st.tuples(st.sampled_from(TRANSFORMS), predicates, st.booleans()), max_size=3))
def test_a_chain_over_columns_is_that_over_records(records, stages):
    chain = TransformChain(
        [
            Stage(
                alias="x", transform=configured(cls), predicate=chosen, negate=negate and chosen is not None
            )
            for cls, chosen, negate in stages
        ]
    )
    beside, ours = Door(), Door()
    wanted = [made for _, made in chain.apply(records, beside) if made is not None] if records else []
    batches = [batch.replace() for batch in batches_of(records)]
    assert placed(r for b in chain.apply_batches(batches, ours) for r in b) == placed(wanted)
    assert sorted(ours.failures) == sorted(beside.failures)


class Loud(RegexRouter):
    """Overrides the method for records only."""

    def apply_many(self, records):
        made = [record.copy() for record in records]
        for record in made:
            record.topic = record.topic.upper()
        return made


class Odd(RegexRouter):
    """Returns an empty batch beside the one that it was given."""

    def apply_batch(self, batch):
        return [batch[:0], batch]


class Short(TopicNameMatches):
    """Answers for too few records."""

    def test_batch(self, batch):
        return [True]


def test_what_a_stage_may_do_wrong_harms_no_record():
    batch = SinkBatch(TopicPartition("t", 0), [1, 2], [{"a": 1}, {"a": 2}])
    odd, short = Odd(), Short()
    short.configure({"pattern": "t"})
    chain = TransformChain([Stage(alias="a", transform=odd)])
    assert chain.apply_batches([batch], Door()) == [batch]
    chain = TransformChain([Stage(alias="a", transform=Filter(), predicate=short)])
    assert chain.apply_batches([batch], Door()) == []  # record by record


def test_a_chain_asks_a_subclass_of_a_transform():
    loud = Loud()
    loud.configure({"regex": "(.*)", "replacement": "x-$1"})
    batch = SinkBatch(TopicPartition("t", 0), [1], [{"a": 1}])
    chain = TransformChain([Stage(alias="a", transform=loud)])
    assert [r.topic for b in chain.apply_batches([batch], Door()) for r in b] == ["T"]
    assert not chain.leaves_values
    assert TransformChain([Stage(alias="a", transform=Filter())]).leaves_values
