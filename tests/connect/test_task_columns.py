"""The records of a sink: columns of converters are the pairs that they stand for, whatever is in a topic."""

import itertools

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from klamm.connect.child import sink_records
from klamm.connect.child.plugins import Converters
from klamm.connect.child.sink_records import Consumed, RecordConverter
from klamm.connect.child.transform_chain import Stage, TransformChain
from klamm_plugins.batch import JSON, TEXT
from klamm_plugins.converters.bytearray import ByteArrayConverter
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import DataError
from klamm_plugins.records import NO_HEADERS, Header, Headers, SinkRecord
from klamm_plugins.transforms.insert_field import InsertFieldValue

CONVERTERS = [
    (StringConverter, {}),
    (StringConverter, {"converter.encoding": "ISO-8859-1"}),
    (ByteArrayConverter, {}),
    (JsonConverter, {"schemas.enable": "false"}),
    (JsonConverter, {"schemas.enable": "true"}),
]
texts = st.sampled_from(
    [b"", b"null", b"1", b'"a"', b'{"a":[1,null]}', b'{"schema":{"type":"int32"},"payload":5}', b"\xff"]
)


@pytest.mark.parametrize(("cls", "props"), CONVERTERS)
@given(values=st.lists(st.none() | texts | st.binary(max_size=4), max_size=6))
def test_columns_are_what_the_values_are_one_by_one(cls, props, values):
    converter = cls()
    converter.configure(props, is_key=False)

    def attempt(f):
        try:
            return f()
        except DataError:
            return "bad"

    one_by_one = attempt(lambda: [tuple(converter.to_connect_data("t", v)) for v in values])
    columns = attempt(lambda: [list(c) for c in converter.to_connect_columns("t", values)])
    if one_by_one == "bad":
        assert columns == "bad"
    else:
        assert columns == [[s for s, _ in one_by_one], [v for _, v in one_by_one]]


class Shouting(StringConverter):
    """Overrides what it needs to, and no more."""

    def to_connect_data_many(self, topic, values):
        return [self.to_connect_data(topic, v and v.upper()) for v in values]


def test_a_subclass_is_asked():
    assert Shouting().to_connect_columns("t", [b"a", None])[1] == ("A", None)


class FakeMessage:
    """A consumed message. Batches go through `map(Message.topic, …)`, which takes one class only."""

    def __init__(self, place, offset, key, value, time, headers):
        self._parts = place[0], place[1], offset, key, value, time, headers

    def topic(self):
        return self._parts[0]

    def partition(self):
        return self._parts[1]

    def offset(self):
        return self._parts[2]

    def key(self):
        return self._parts[3]

    def value(self):
        return self._parts[4]

    def timestamp(self):
        return self._parts[5]

    def headers(self):
        return self._parts[6]


class Judge:
    """A tolerance that notes the bad records and goes on."""

    def __init__(self):
        self.bad = []
        self.retry = self

    def call(self, stage, operation):
        return operation()

    def judge(self, bad):
        self.bad.append((bad.stage, bad.where, str(bad.error), bad.raw().offset))


def one_by_one(converters, messages):
    """Returns the records of messages, and the places of the bad ones, as the converters say for each alone."""
    found, bad = [], []
    for m in messages:
        topic, stage = m.topic(), "KEY_CONVERTER"
        try:
            key = converters.key.to_connect_data(topic, m.key())
            stage = "VALUE_CONVERTER"
            value = converters.value.to_connect_data(topic, m.value())
        except DataError as e:
            place = f"topic {topic}, partition {m.partition()}, offset {m.offset()}"
            bad.append((stage, place, str(e), m.offset()))
            continue
        kind, time = m.timestamp()
        headers = Headers(
            Header(name, converters.header.to_connect_header(topic, name, data).value, h.schema)
            for name, data in m.headers() or ()
            for h in [converters.header.to_connect_header(topic, name, data)]
        )
        found.append(
            SinkRecord(
                topic,
                m.partition(),
                *key,
                *value,
                m.offset(),
                time if kind else None,
                ("NoTimestampType", "CreateTime", "LogAppendTime")[kind],
                headers or NO_HEADERS,
            )
        )
    return found, bad


messages = st.builds(
    FakeMessage,
    st.sampled_from([("t", 0), ("t", 0), ("t", 1), ("u", 0)]),
    st.integers(0, 99),
    st.none() | texts,
    st.none() | texts,
    st.sampled_from([(0, -1), (1, 5), (1, 6), (2, 7)]),
    st.none() | st.just([("h", b"5"), ("h", None)]),
)


@settings(deadline=None, max_examples=80)
@given(found=st.lists(messages, min_size=1, max_size=8))
def test_batches_are_what_the_messages_are_one_by_one(found):
    for (cls, props), raw, keep in itertools.product(CONVERTERS, [(), (JSON, TEXT)], [False, True]):
        note(f"{cls.__name__} {props} raw={raw} keep={keep}")
        compare(cls, props, raw, keep, found)


def compare(cls, props, raw, keep, found):
    value, key = cls(), StringConverter() if cls is JsonConverter else cls()
    value.configure(props, is_key=False)
    key.configure({} if cls is JsonConverter else props, is_key=True)
    converters, judge = Converters(key, value, SimpleHeaderConverter()), Judge()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink_records, "Message", FakeMessage)
        batches = RecordConverter(converters, judge, keep=keep, raw_formats=raw).convert(Consumed.of(found))
        records = [record for batch in batches for record in batch]
    topics, places = [m.topic() for m in found], [(m.topic(), m.partition()) for m in found]
    in_order = sorted(
        found, key=lambda m: (topics.index(m.topic()), places.index((m.topic(), m.partition())))
    )
    wanted, bad = one_by_one(converters, in_order)
    assert [r.copy() for r in records] == [r.copy() for r in wanted] or keep
    assert [(r.topic, r.partition, r.key, r.value, r.offset, r.timestamp, r.headers) for r in records] == [
        (r.topic, r.partition, r.key, r.value, r.offset, r.timestamp, r.headers) for r in wanted
    ]
    assert judge.bad == bad
    if keep:
        assert [r.message.offset() for r in records] == [r.offset for r in wanted]


def plain_json():
    value = JsonConverter()
    value.configure({"schemas.enable": "false"}, is_key=False)
    return Converters(StringConverter(), value, SimpleHeaderConverter())


def message(place, offset, value):
    return FakeMessage(place, offset, b"k", value, (1, 5), None)


def test_partitions_whose_messages_alternate_are_a_batch_each(monkeypatch):
    monkeypatch.setattr(sink_records, "Message", FakeMessage)
    found = [message(("tu"[n % 2], n % 6 + 1000), n, b"{}") for n in range(60)]
    batches = RecordConverter(plain_json(), Judge(), raw_formats=(JSON,)).convert(Consumed.of(found))
    assert [b.origin for b in batches] == [
        (t, p + 1000) for t, p in zip("tttuuu", (0, 2, 4, 1, 3, 5), strict=True)
    ]
    assert all(list(b.offsets) == list(range(b.origin.partition - 1000, 60, 6)) for b in batches)


def test_records_beside_a_bad_one_keep_their_messages_through_transforms(monkeypatch):
    """The task may report each of them, and its dead letter is the message."""
    monkeypatch.setattr(sink_records, "Message", FakeMessage)
    insert = InsertFieldValue()
    insert.configure({"static.field": "a", "static.value": "b"})
    chain = TransformChain([Stage(alias="i", transform=insert)])
    found = [message(("t", 0), 0, b"{}"), message(("t", 0), 1, b"bad"), message(("t", 0), 2, b"{}")]
    judge = Judge()
    batches = RecordConverter(plain_json(), judge, chain=chain, keep=True).convert(Consumed.of(found))
    assert [(r.offset, r.value, r.message.offset()) for batch in batches for r in batch] == [
        (0, {"a": "b"}, 0),
        (2, {"a": "b"}, 2),
    ]
    assert [offset for *_, offset in judge.bad] == [1]
