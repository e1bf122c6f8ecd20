"""The hand-written Produce and Fetch codecs give exactly what the generated ones give."""

import functools
import gc
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.wire_strategies import expressible, filled, structs

from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import MalformedMessage, TruncatedMessage, UnsupportedVersion
from klamm_kafka.wire.headers import frame_response
from klamm_kafka.wire.hot import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    FetchResult,
    ProduceResult,
    encode_fetch_response,
    encode_produce_response,
    encode_produced,
    parse_produce,
    parse_single,
)
from klamm_kafka.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from klamm_kafka.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm_kafka.wire.varint import encode_uvarint

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
produce_versions = st.integers(*PRODUCE_VERSIONS)
fetch_versions = st.integers(*FETCH_VERSIONS)
requests = structs(ProduceRequest) | st.builds(filled, st.just(ProduceRequest), st.integers(0, 99))
int64s = st.integers(-1, 2**63 - 1)
names = st.text(max_size=6) | st.just("t" * 200)
ids = st.binary(min_size=16, max_size=16)


def test_versions_are_those_of_the_tables():
    assert (ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION) == PRODUCE_VERSIONS
    assert (FetchResponse.MIN_VERSION, FetchResponse.MAX_VERSION) == FETCH_VERSIONS


def as_topics(request, version):
    return [
        (
            topic.topic_id if version >= 13 else topic.name,
            [(p.index, None if p.records is None else bytes(p.records)) for p in topic.partition_data],
        )
        for topic in request.topic_data
    ]


def plain(topics):
    return [
        (key, [(i, None if records is None else bytes(records)) for i, records in partitions])
        for key, partitions in topics
    ]


@SETTINGS
@given(drawn=requests, version=produce_versions)
def test_produce_request(drawn, version):
    request = expressible(drawn, version)
    buffer = bytearray(b"head" + request.encode(version))
    parsed = parse_produce(memoryview(buffer), 4, version)
    assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    assert plain(parsed.topics) == as_topics(request, version)
    for _, partitions in parsed.topics:
        for _, records in partitions:
            if records:
                records[0] = records[0] ^ 255  # a view, so that the broker can patch in place
    if any(records for _, partitions in parsed.topics for _, records in partitions):
        assert bytes(buffer[4:]) != request.encode(version)


@settings(SETTINGS, max_examples=15)
@given(drawn=requests, version=produce_versions)
def test_produce_request_cut_anywhere(drawn, version):
    encoded = expressible(drawn, version).encode(version)
    for size in range(min(len(encoded), 300)):
        with pytest.raises(TruncatedMessage) as caught:
            parse_produce(encoded[:size], 0, version)
        assert caught.value.field != "?"


@settings(SETTINGS, max_examples=400)
@given(drawn=requests, version=produce_versions, data=st.data())
def test_produce_request_of_garbage(drawn, version, data):
    """Both decoders read it, and read the same, or both refuse it."""
    garbage = bytearray(expressible(drawn, version).encode(version))
    for position in data.draw(st.lists(st.integers(0, len(garbage) - 1), max_size=4)):
        garbage[position] = data.draw(st.sampled_from((0, 1, 127, 128, 255)) | st.integers(0, 255))
    assert outcome(lambda: plain(parse_produce(garbage, 0, version).topics)) == outcome(
        lambda: as_topics(ProduceRequest.decode(bytes(garbage), version)[0], version)
    )


def test_null_in_more_bytes_than_it_needs():
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[]).encode(9)
    assert request[:1] == b"\0", "the transactional id is null"
    assert parse_produce(b"\x80\0" + request[1:], 0, 9) == (None, 1, 5, [])


def outcome(read):
    try:
        return read()
    except MalformedMessage as error:
        return type(error), str(error)


singles = st.builds(
    lambda name, topic_id, acks, index, records, transactional: ProduceRequest(
        transactional_id=transactional,
        acks=acks,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    ),
    names,
    ids,
    st.integers(-2, 1),
    st.integers(-1, 100_000),
    st.none() | st.binary(max_size=300) | st.just(b"r" * 70_000),
    st.none() | st.none() | st.just("tx"),
)


def read_single(encoded, version):
    """Returns what `parse_single` reads, in the form of `parse_produce`, whose answer it must be."""
    single = parse_single(memoryview(encoded), version)
    if single is None:
        return None
    acks, key, name, index, records = single
    assert name == (key if version >= 13 else encode_uvarint(len(key.encode()) + 1) + key.encode())
    assert parse_produce(encoded, 0, version)[:2] == (None, acks)
    assert plain(parse_produce(encoded, 0, version).topics) == [(key, [(index, bytes(records))])]
    return records


@SETTINGS
@given(request=singles, version=produce_versions)
def test_single_produce_request(request, version):
    records = request.topic_data[0].partition_data[0].records
    common = version >= 9 and request.transactional_id is None and records is not None
    if version < 13 and len(request.topic_data[0].name.encode()) > 126:
        common = False
    assert (read_single(request.encode(version), version) is not None) == common


@settings(SETTINGS, max_examples=400)
@given(drawn=singles | requests, version=produce_versions, data=st.data())
def test_single_produce_request_of_garbage(drawn, version, data):
    """It reads nothing else than the full parser does, and refuses nothing by itself."""
    garbage = bytearray(expressible(drawn, version).encode(version))
    for position in data.draw(st.lists(st.integers(0, min(len(garbage), 60) - 1), max_size=4)):
        garbage[position] = data.draw(st.sampled_from((0, 1, 2, 127, 128, 255)) | st.integers(0, 255))
    read_single(bytes(garbage), version)
    read_single(bytes(garbage[: data.draw(st.integers(0, len(garbage)))]), version)


@SETTINGS
@given(
    name=names, topic_id=ids, index=st.integers(0, 100), base=int64s, start=int64s, version=st.integers(9, 13)
)
def test_answer_to_a_single_produce_request(name, topic_id, index, base, start, version):
    key = topic_id if version >= 13 else name
    named = topic_id if version >= 13 else encode_uvarint(len(name.encode()) + 1) + name.encode()
    answer = [(key, [ProduceResult(index, 0, base, -1, start)])]
    assert encode_produced(
        9, named, index, base_offset=base, log_start_offset=start
    ) == encode_produce_response(9, version, answer)


produce_results = st.builds(
    ProduceResult,
    st.integers(0, 100),
    st.integers(-1, 90),
    int64s,
    int64s,
    int64s,
    st.none() | st.text(max_size=5),
    st.lists(st.tuples(st.integers(0, 100), st.text(max_size=5)), max_size=2),
)


@SETTINGS
@given(
    rows=st.lists(st.tuples(names, ids, st.lists(produce_results, max_size=3)), max_size=3),
    version=produce_versions,
    throttle=st.integers(0, 1000),
)
def test_produce_response(rows, version, throttle):
    expected = ProduceResponse(
        throttle_time_ms=throttle,
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=r.partition,
                        error_code=r.error_code,
                        base_offset=r.base_offset,
                        log_append_time_ms=r.log_append_time_ms,
                        log_start_offset=r.log_start_offset,
                        error_message=r.error_message,
                        record_errors=[
                            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=why)
                            for i, why in (r.record_errors if version >= 8 else ())
                        ],
                    )
                    for r in results
                ],
            )
            for name, topic_id, results in rows
        ],
    )
    topics = [(topic_id if version >= 13 else name, results) for name, topic_id, results in rows]
    ours = encode_produce_response(77, version, topics, throttle_time_ms=throttle)
    assert ours.hex() == frame_response(77, ApiKey.PRODUCE, version, expected).hex()


@dataclass(frozen=True)
class Slice:
    """A file range as a server has it."""

    content: bytes

    @property
    def size(self):
        return len(self.content)


fetch_results = st.builds(
    FetchResult,
    st.integers(0, 100),
    st.integers(-1, 90),
    int64s,
    int64s,
    int64s,
    st.none() | st.lists(st.tuples(int64s, int64s), max_size=2),
    st.none()
    | st.binary(max_size=200)
    | st.builds(Slice, st.binary(max_size=200))
    | st.builds(memoryview, st.binary(max_size=9)),
    st.integers(-1, 5),
)


def content_of(records):
    return records.content if isinstance(records, Slice) else bytes(records or b"")


def fetch_message(rows, version, throttle, error_code, session_id):
    return FetchResponse(
        throttle_time_ms=throttle,
        error_code=error_code,
        session_id=session_id if version >= 7 else 0,
        responses=[
            FetchableTopicResponse(
                topic=name,
                topic_id=topic_id,
                partitions=[
                    PartitionData(
                        partition_index=r.partition,
                        error_code=r.error_code,
                        high_watermark=r.high_watermark,
                        last_stable_offset=r.last_stable_offset,
                        log_start_offset=r.log_start_offset,
                        preferred_read_replica=r.preferred_read_replica if version >= 11 else -1,
                        aborted_transactions=None
                        if r.aborted_transactions is None
                        else [
                            AbortedTransaction(producer_id=p, first_offset=o)
                            for p, o in r.aborted_transactions
                        ],
                        records=content_of(r.records),
                    )
                    for r in results
                ],
            )
            for name, topic_id, results in rows
        ],
    )


@settings(SETTINGS, max_examples=150)
@given(
    rows=st.lists(st.tuples(names, ids, st.lists(fetch_results, max_size=4)), max_size=3),
    version=fetch_versions,
    numbers=st.tuples(st.integers(0, 1000), st.integers(0, 90), st.integers(0, 2**31 - 1)),
)
def test_fetch_response(rows, version, numbers):
    throttle, error_code, session_id = numbers
    topics = [(topic_id if version >= 13 else name, results) for name, topic_id, results in rows]
    pieces = encode_fetch_response(
        5, version, topics, throttle_time_ms=throttle, error_code=error_code, session_id=session_id
    )
    assert isinstance(pieces[0], bytes)
    placed = [piece for piece in pieces if isinstance(piece, Slice)]
    given_slices = [r.records for _, _, results in rows for r in results if isinstance(r.records, Slice)]
    assert placed == [s for s in given_slices if s.size]  # the objects themselves, in their order
    ours = b"".join(content_of(piece) for piece in pieces)
    expected = frame_response(5, ApiKey.FETCH, version, fetch_message(rows, version, *numbers))
    assert ours.hex() == expected.hex()


def test_versions_outside_the_range():
    with pytest.raises(UnsupportedVersion, match="3 to 13"):
        parse_produce(b"", 0, 2)
    with pytest.raises(UnsupportedVersion, match="3 to 13"):
        encode_produce_response(1, 14, [])
    with pytest.raises(UnsupportedVersion, match="4 to 18"):
        encode_fetch_response(1, 3, [])


def test_topic_ids_are_sixteen_bytes():
    with pytest.raises(ValueError, match="16 bytes"):
        encode_produce_response(1, 13, [(b"short", [])])


def test_errors_do_not_keep_the_receive_buffer():
    """A view that lives on inside an error would forbid the next resize of a buffer that all connections share."""
    buffer = bytearray(expressible(filled(ProduceRequest, 0), 3).encode(3))
    gc.disable()
    try:
        for size in range(1, len(buffer), 7):
            for read in (parse_produce, lambda view, pos, version: ProduceRequest.decode(view, version, pos)):
                kind, _ = outcome(functools.partial(read, memoryview(buffer)[:size], 0, 3))
                assert kind is TruncatedMessage
                buffer.append(0)  # BufferError while any view of it is alive
                buffer.pop()
    finally:
        gc.enable()
