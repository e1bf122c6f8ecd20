"""No request holds the event loop for long: elements of arrays and tagged fields are counted while it is decoded."""

from __future__ import annotations

import struct

import pytest
from support.broker import wait_until
from support.raw import RawClient, framed

from klamm_broker.api import registry
from klamm_kafka.wire import hot
from klamm_kafka.wire.errors import MalformedMessage, ProtocolError
from klamm_kafka.wire.headers import RequestHeader, decode_request_header, encode_request_header
from klamm_kafka.wire.messages.fetch import FetchRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.offset_commit import OffsetCommitRequest
from klamm_kafka.wire.struct import Struct
from klamm_kafka.wire.varint import TAGS_MAX, encode_uvarint


def array_paths(cls, version):
    """Yields the arrays of a message: fields to follow, the last one the array."""
    for spec in cls.FIELDS:
        if not spec.in_version(version):
            continue
        if spec.array:
            yield (spec,)
        if spec.struct:
            for rest in array_paths(spec.struct, version):
                yield (spec, *rest)


def filled(cls, path, count):
    """Returns a message with `count` elements in the array at `path`, and one in each array on the way."""
    message = cls()
    for spec in cls.FIELDS:
        if getattr(message, spec.name) is None and spec.array and spec is not path[0]:
            setattr(message, spec.name, None)
    spec, *rest = path
    if rest:
        inner = filled(spec.struct, rest, count)
        setattr(message, spec.name, [inner] if spec.array else inner)
    else:
        element = spec.struct() if spec.struct else spec.element().make_default()
        setattr(message, spec.name, [element] * count)
    return message


CASES = [
    pytest.param(api, version, path, id=f"{api.name}-v{version}-{'.'.join(spec.name for spec in path)}")
    for api in registry.load().values()
    for version in {api.max_version, max(api.min_version, min(api.flexible_from - 1, api.max_version))}
    for path in array_paths(api.request_type, version)
    if api.name != "PRODUCE"
]


@pytest.mark.parametrize(("api", "version", "path"), CASES)
def test_the_elements_of_every_array_are_counted(api, version, path):
    on_the_way = sum(1 for spec in path[:-1] if spec.array)

    def decode(count):
        data = filled(api.request_type, path, count).encode(version)
        return api.request_type.decode(data, version, 0, 50)[0]

    message = decode(50 - on_the_way)
    for spec in path[:-1]:
        value = getattr(message, spec.name)
        message = value[0] if spec.array else value
    assert len(getattr(message, path[-1].name)) == 50 - on_the_way
    with pytest.raises(MalformedMessage, match="more than 50 elements in all") as refused:
        decode(51 - on_the_way)
    assert path[-1].name in str(refused.value), "the field is named"


def test_elements_count_together():
    def commit(topics, partitions):
        data = struct.pack(">h1sih", 1, b"g", -1, 0) + struct.pack(">h", -1)
        data += struct.pack(">i", topics)
        for _ in range(topics):
            data += struct.pack(">h1si", 1, b"t", partitions)
            data += struct.pack(">iqih", 0, 0, -1, -1) * partitions
        return OffsetCommitRequest.decode(data, 7, 0, 100)

    commit(10, 9)
    with pytest.raises(MalformedMessage, match="more than 100 elements"):
        commit(10, 10)


def test_unknown_tagged_fields_count():
    def decode(topics, tags):
        unknown = {n + 10: b"" for n in range(tags)}
        topic = MetadataRequestTopic(name="t", unknown_tags=unknown)
        data = MetadataRequest(topics=[topic] * topics).encode(12)
        return MetadataRequest.decode(data, 12, 0, 100)[0]

    assert len(decode(5, 16).topics[0].unknown_tags) == 16
    with pytest.raises(MalformedMessage, match="more than 100 elements in all"):
        decode(6, 16)
    with pytest.raises(MalformedMessage, match="17 tagged fields, at most 16 are taken"):
        decode(1, 17)


@pytest.mark.parametrize(
    ("version", "shape"),
    [(v, s) for v in (8, 12, 13) for s in ("topics", "partitions", "tags") if (v, s) != (8, "tags")],
)
def test_a_produce_request_has_a_budget_of_its_own(version, shape):
    most = hot.PRODUCE_ELEMENTS_MAX

    def parse(over):
        if shape == "topics":
            topics, partitions, tags = most + over, 0, 0
        elif shape == "partitions":
            topics, partitions, tags = 1, most - 1 + over, 0
        else:
            topics, partitions, tags = 1, 1, TAGS_MAX + over
        if version < 9:
            one = struct.pack(">ii", 0, -1) * partitions
            body = struct.pack(">hhii", -1, 1, 1000, topics)
            body += (struct.pack(">h1si", 1, b"t", partitions) + one) * topics
        else:
            tagged = encode_uvarint(tags) + b"".join(encode_uvarint(n + 5) + b"\0" for n in range(tags))
            one = (struct.pack(">iB", 0, 0) + tagged) * partitions
            body = b"\0" + struct.pack(">hi", 1, 1000) + encode_uvarint(topics + 1)
            key = bytes(16) if version >= 13 else b"\2t"
            body += (key + encode_uvarint(partitions + 1) + one + b"\0") * topics + b"\0"
        return hot.parse_produce(body, 0, version)

    assert sum(len(partitions) for _, partitions in parse(0).topics) in {0, 1, most - 1}
    with pytest.raises(MalformedMessage, match=r"more than 20000 elements|at most 16"):
        parse(1)


def test_tagged_fields_of_a_header_have_a_bound():
    head = encode_request_header(RequestHeader(3, 12, 1, "x"))[:-1]

    def decode(count):
        data = head + encode_uvarint(count) + b"".join(encode_uvarint(n) + b"\0" for n in range(count))
        return decode_request_header(data, 0, len(data))[1]

    assert decode(TAGS_MAX) > len(head)
    with pytest.raises(ProtocolError, match="17 tagged fields, at most 16 are taken"):
        decode(TAGS_MAX + 1)


def test_budgets_leave_room_for_what_clients_ask():
    small, large = registry.ELEMENTS_MAX, registry.LARGE_ELEMENTS_MAX
    assert small >= 10_000, "all topics of a broker by name"
    assert large >= 2 * 10_000 + 1, "a new topic of 10,000 partitions that are all assigned"
    budgets = {api.name: api.elements_max for api in registry.table().values()}
    assert set(budgets.values()) == {small, large}
    assert budgets["METADATA"] == small
    assert budgets["FETCH"] == budgets["OFFSET_COMMIT"] == budgets["CREATE_TOPICS"] == large


def test_who_asks_for_more_is_told_and_closed(broker):
    names = [MetadataRequestTopic(name="abc")] * (registry.ELEMENTS_MAX + 1)
    header = encode_request_header(RequestHeader(3, 9, 7, "x"))
    with RawClient(broker.port) as client:
        client.sock.sendall(framed(header + MetadataRequest(topics=names).encode(9)))
        client.wait_closed()
    said = f"more than {registry.ELEMENTS_MAX} elements in all"
    wait_until(lambda: said in broker.log_text, "a line in the log")
    many = FetchRequest().encode(11)[:-6] + struct.pack(">i", registry.LARGE_ELEMENTS_MAX + 1)
    header = encode_request_header(RequestHeader(1, 11, 7, "x"))
    with RawClient(broker.port) as client:
        client.sock.sendall(framed(header + many + bytes(12 * registry.LARGE_ELEMENTS_MAX)))
        client.wait_closed()
    large = f"more than {registry.LARGE_ELEMENTS_MAX} elements in all"
    wait_until(lambda: large in broker.log_text, "another line in the log")


def test_structs_know_their_arrays():
    assert [path[0].name for path in array_paths(MetadataRequest, 9)] == ["topics"]
    assert issubclass(MetadataRequestTopic, Struct)
