"""Every message in every version: there and back, cut at every byte, and fed with garbage."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.wire_strategies import all_messages, expressible, filled, structs, versions_of

from klamm_broker.log.steps import finish
from klamm_kafka.wire.errors import MalformedMessage, TruncatedMessage, UnencodableValue, UnsupportedVersion
from klamm_kafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from klamm_kafka.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm_kafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm_kafka.wire.messages.transaction_records import TransactionLogValue
from klamm_kafka.wire.struct import Message, Struct, field

MESSAGES = list(all_messages())
SETTINGS = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],
)


def by_name(cls):
    return cls.__name__


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
@SETTINGS
@given(data=st.data())
def test_every_version_round_trips(cls, data):
    there_and_back(cls, data.draw(structs(cls)))


def test_every_version_of_messages_with_every_field_round_trips():
    for cls in MESSAGES:
        for seed in (0, 1):
            there_and_back(cls, filled(cls, seed))


def there_and_back(cls, value):
    for version in versions_of(cls):
        message = expressible(value, version)
        encoded = message.encode(version)
        for buf in (encoded, bytearray(encoded), memoryview(b"??" + encoded)[2:]):
            decoded, end = cls.decode(buf, version)
            assert end == len(encoded)
            assert decoded == message
        decoded, end = cls.decode(b"front" + encoded + b"behind", version, 5)
        assert (decoded, end) == (message, len(encoded) + 5)
        assert decoded.encode(version) == encoded
        assert b"".join(finish(decoded.encode_steps(version))) == encoded


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
@settings(SETTINGS, max_examples=1)
@given(data=st.data())
def test_cut_anywhere_it_is_truncated_and_nothing_else(cls, data):
    drawn = (data.draw(structs(cls)), filled(cls, 1))
    for version, value in ((v, d) for v in {cls.MIN_VERSION, cls.MAX_VERSION} for d in drawn):
        encoded = expressible(value, version).encode(version)
        for size in range(min(len(encoded), 400)):
            error = parse_or_error(cls, encoded[:size], version)
            assert type(error) is TruncatedMessage
            assert error.message == f"{cls.__name__} v{version}"
            assert 0 <= error.offset <= size
            assert error.field != "?"


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
@settings(SETTINGS, max_examples=8)
@given(data=st.data())
def test_garbage_either_parses_or_is_malformed(cls, data):
    version = data.draw(st.sampled_from(versions_of(cls)))
    value = data.draw(structs(cls) | st.builds(filled, st.just(cls), st.integers(0, 99)))
    garbage = bytearray(expressible(value, version).encode(version))
    for position in data.draw(st.lists(st.integers(0, max(len(garbage) - 1, 0)), max_size=4)):
        if garbage:
            garbage[position] = data.draw(st.sampled_from((0, 1, 127, 128, 255)) | st.integers(0, 255))
    garbage += data.draw(st.binary(max_size=8))
    outcome = parse_or_error(cls, bytes(garbage), version)
    if isinstance(outcome, MalformedMessage):
        assert outcome.field != "?"
        assert 0 <= outcome.offset <= len(garbage)
    else:
        message, end = outcome
        assert end <= len(garbage)
        message.encode(version)  # what was read can be said again


def parse_or_error(cls, buf, version):
    try:
        return cls.decode(buf, version)
    except MalformedMessage as error:
        return error


METADATA = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
    cluster_id="c",
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            name="t",
            topic_id=bytes(range(16)),
            partitions=[
                MetadataResponsePartition(leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1])
            ],
        )
    ],
)
# Written out by hand from the protocol's field tables; spaces and line breaks part the fields.
GOLDEN = [
    (MetadataRequest(topics=[MetadataRequestTopic(name="ab")]), 0, "00000001 0002 6162"),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=None, allow_auto_topic_creation=False), 4, "ffffffff 00"),
    (MetadataRequest(topics=[MetadataRequestTopic(name="ab")]), 9, "02 03 6162 00 01 00 00 00"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)]),
        12,
        "02 000102030405060708090a0b0c0d0e0f 00 00 01 00 00",
    ),
    (
        METADATA,
        1,
        (
            "00000001 00000001 0001 68 00002384 ffff 00000001"
            "00000001 0000 0001 74 00 00000001 0000 00000000 00000001 00000001 00000001 00000001 00000001"
        ),
    ),
    (
        METADATA,
        12,
        (
            "00000000 02 00000001 02 68 00002384 00 00 02 63 00000001"
            "02 0000 02 74 000102030405060708090a0b0c0d0e0f 00"
            "02 0000 00000000 00000001 00000005 02 00000001 02 00000001 01 00"
            "80000000 00 00"
        ),
    ),
    (
        ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=5),
        0,
        "00000000 0000 00 02 6d 00000003 00000005 ff 00",
    ),
    (DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2), 1, "01 02 00"),
    (
        DescribeClusterRequest(unknown_tags={300: b"zz", 5: b""}),
        0,
        "00 02 05 00 ac02 02 7a7a",
    ),
    (
        TransactionLogValue(producer_id=7, next_producer_id=9, transaction_partitions=None),
        1,
        "0000000000000007 0000 00000000 00 00 0000000000000000 0000000000000000 01 01 08 0000000000000009",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "text"),
    GOLDEN,
    ids=[f"{type(m).__name__}-v{v}-{i}" for i, (m, v, _) in enumerate(GOLDEN)],
)
def test_golden_bytes(message, version, text):
    expected = bytes.fromhex(text)
    assert message.encode(version).hex(" ") == expected.hex(" ")
    assert type(message).decode(expected, version) == (expressible(message, version), len(expected))


@pytest.mark.parametrize(
    ("cls", "version", "text", "field_name", "offset", "reason"),
    [
        (MetadataRequest, 0, "00000001 0005 6162", "topics.name", 6, "needs more"),
        (MetadataRequest, 0, "7fffffff 0001 61", "topics", 4, "needs more"),
        (MetadataRequest, 0, "ffffffff", "topics", 4, "null"),
        (MetadataRequest, 0, "00000001 0001 ff", "topics.name", 6, "UTF-8"),
        (MetadataRequest, 9, "ffffffff07", "topics", 5, "needs more"),
        (MetadataRequest, 9, "ffffffffff01", "topics", 0, "varint"),
        (MetadataRequest, 9, "01 01 00 00 01 05 09 61", "unknown_tags", 7, "needs more"),
        (MetadataResponse, 0, "00000001 00000001 0009 68686868686868", "brokers.host", 10, "needs more"),
        (TransactionLogValue, 1, "00" * 8 + "0000 00000000 00 00" + "00" * 16 + "01 01 07" + "00" * 8,
         "next_producer_id", 43, "tag"),
    ],
)  # fmt: skip
def test_errors_name_field_offset_and_reason(cls, version, text, field_name, offset, reason):
    with pytest.raises(MalformedMessage, match=reason) as caught:
        cls.decode(bytes.fromhex(text), version)
    assert (caught.value.field, caught.value.offset) == (field_name, offset)


def test_array_length_beyond_the_bytes_allocates_nothing():
    with pytest.raises(TruncatedMessage):
        MetadataResponse.decode((2**31 - 1).to_bytes(4, "big") + bytes(100), 0)


def test_field_that_the_version_lacks():
    message = MetadataRequest(include_topic_authorized_operations=True)
    with pytest.raises(UnsupportedVersion, match=r"MetadataRequest v7: include_topic_authorized_operations"):
        message.encode(7)
    tagged = MetadataRequest(topics=[MetadataRequestTopic(name="t", unknown_tags={9: b""})])
    with pytest.raises(UnsupportedVersion, match=r"MetadataRequest v8: topics\.unknown_tags"):
        tagged.encode(8)
    ignorable = MetadataResponse(throttle_time_ms=9, cluster_id="c")
    assert ignorable.encode(0) == MetadataResponse().encode(0)


def test_version_that_does_not_exist():
    for attempt in (lambda: MetadataRequest().encode(14), lambda: MetadataRequest.decode(b"", -1)):
        with pytest.raises(UnsupportedVersion, match="it has 0 to 13"):
            attempt()


@pytest.mark.parametrize(
    ("message", "field_name", "reason"),
    [
        (MetadataResponse(brokers=[MetadataResponseBroker(port="x")]), "brokers.port", "integer"),
        (MetadataResponse(controller_id=1 << 40), "controller_id", "format|range"),
        (MetadataResponse(brokers=None), "brokers", "null"),
        (MetadataResponse(brokers=[MetadataResponseBroker(host=None)]), "brokers.host", "null"),
        (MetadataResponse(cluster_id="x" * 40_000), "cluster_id", "40000 bytes"),
        (MetadataResponse(cluster_id=b"x"), "cluster_id", "encode"),
        (MetadataResponse(cluster_id="\ud800"), "cluster_id", "surrogates"),
        (MetadataResponse(topics=[MetadataResponseTopic(topic_id=b"short")]), "topics.topic_id", "16 bytes"),
        (MetadataResponse(topics=[None]), "topics", "NoneType"),
        (
            MetadataResponse(
                topics=[MetadataResponseTopic(partitions=[MetadataResponsePartition(isr_nodes=["a"])])]
            ),
            "topics.partitions.isr_nodes",
            "integer",
        ),
    ],
)
def test_values_that_cannot_be_encoded(message, field_name, reason):
    with pytest.raises(UnencodableValue, match=reason) as caught:
        message.encode(12)
    assert field_name in caught.value.field


class Inner(Struct):
    number: int = field("int8", "0+", default=7)


class Example(Message, kind="data", versions="0-2", flexible="1+"):
    """Shapes that Kafka's messages do not have (yet)."""

    numbers: list[float] = field(["float64"], "0+")
    ids: list[bytes] = field(["uuid"], "0+")
    flags: list[bool] = field(["bool"], "0+")
    blobs: list[bytes] = field(["bytes"], "0+")
    inner: Inner = field(Inner, "0+")
    tagged: Inner | None = field(Inner, "1+", nullable="1+", default=None, tag=3)
    tagged_names: list[str] = field(["string"], "1+", tag=1)


@SETTINGS
@given(drawn=structs(Example))
def test_shapes_beyond_kafkas(drawn):
    for version in (0, 1, 2):
        message = expressible(drawn, version)
        encoded = message.encode(version)
        assert Example.decode(encoded, version) == (message, len(encoded))


@pytest.mark.parametrize(
    ("message", "field_name", "reason"),
    [
        (Example(blobs=["text"]), "blobs", "str instead of bytes"),
        (Example(ids=["x" * 16]), "ids", "str instead of bytes"),
        (Example(ids=[b"x"]), "ids", "16 bytes"),
        (Example(inner=5), "inner.number", "attribute"),
        (Example(inner=None), "inner.number", "attribute"),
        (Example(numbers=5), "numbers", "int"),
        (Example(unknown_tags={7: "x"}), "unknown_tags", "str"),
    ],
)
def test_values_of_the_wrong_kind(message, field_name, reason):
    with pytest.raises(UnencodableValue, match=reason) as caught:
        message.encode(1)
    assert caught.value.field == field_name


def test_a_known_tag_may_not_be_among_the_unknown_ones():
    with pytest.raises(UnencodableValue, match="tag 1"):
        Example(tagged_names=["x"], unknown_tags={1: b""}).encode(1)


def test_instances():
    one, other = Example(), Example()
    assert one == other
    assert one.numbers is not other.numbers
    assert one.inner is not other.inner
    assert one.inner.number == 7
    assert one != Inner()
    assert not hasattr(one, "__dict__")
    with pytest.raises(TypeError, match="nonsense"):
        Example(nonsense=1)
    with pytest.raises(AttributeError):
        one.nonsense = 1
    assert repr(Inner(number=3)) == "Inner(number=3)"
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"hunter2"))


def test_null_of_a_tagged_struct_is_said_as_kafka_says_it():
    """Kafka takes one that is missing for a struct with default values: a member would count as a classic one."""
    value = ConsumerGroupMemberMetadataValue()
    data = value.encode(0)
    assert data.endswith(b"\x01\x00\x01\x00")
    assert ConsumerGroupMemberMetadataValue.decode(data, 0)[0] == value
    value.classic_member_metadata = ClassicMemberMetadata(session_timeout_ms=1)
    assert ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0)[0] == value
