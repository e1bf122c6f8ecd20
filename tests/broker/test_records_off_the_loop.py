"""Small batches with very much inside: what must look at their records holds up nobody else."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest
from support.inprocess import connect, hold_in_thread, in_time, produce, serving
from support.raw import produce_request, request_frame

from klamm_broker.log import record_rules, validation
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import InvalidRecordBatch
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.steps import finish
from klamm_broker.server import slices
from klamm_kafka.wire.batch import HEADER, LENGTH_PREFIX_BYTES, Record, _set_crc, encode_batch, read_header
from klamm_kafka.wire.compression import Compression, compress
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.describe_producers import DescribeProducersRequest
from klamm_kafka.wire.messages.describe_producers import TopicRequest as DescribeProducersTopic
from klamm_kafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm_kafka.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HOUR_MS = 3_600_000
PACKED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
MUCH = 96 << 20
TURN_S = 0.06
"""The processor time that the loop may spend in one turn: two slices, and a busy machine. To decode `MUCH` takes 0.3 s."""
KEYED, KEYLESS = b"\x0c\0\0\0\0\1\0", b"\x0c\0\0\0\1\1\0"
"""The smallest records: length, attributes, timestamp, offset, an empty key or none, no value, no headers."""


def now_ms() -> int:
    return int(time.time() * 1000)


def packed(body: bytes, count: int, codec: Compression, timestamp: int) -> bytearray:
    """Returns a batch with this body, which would take long to encode."""
    content = compress(codec, body)
    batch = bytearray(HEADER.size)
    size = HEADER.size + len(content) - LENGTH_PREFIX_BYTES
    HEADER.pack_into(
        batch, 0, 0, size, -1, 2, 0, int(codec), count - 1, timestamp, timestamp, -1, -1, -1, count
    )
    batch += content
    _set_crc(batch, 0, len(batch))
    return batch


def one_record(codec: Compression, timestamp: int, size: int = MUCH) -> bytearray:
    return encode_batch([Record(timestamp=timestamp, key=b"k", value=bytes(size))], compression=codec)


def many_records(record: bytes, timestamp: int, count: int = 1_000_000) -> bytearray:
    return packed(record * count, count, Compression.ZSTD, timestamp)


def many_headers(timestamp: int, count: int = 1_000_000) -> bytearray:
    encoded = bytearray(encode_batch([Record(timestamp=timestamp, key=b"k", headers=[("", None)] * count)]))
    return packed(bytes(encoded[HEADER.size :]), 1, Compression.ZSTD, timestamp)


async def append(connection, topic: str, *batches: bytes, acks: int = -1):
    """Sends one request with a batch for each partition; returns the answers."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return (await connection.request(request, 9)).responses[0].partition_responses


async def longest_turn(work) -> tuple[float, object]:
    """Returns the longest turn of the loop in processor time while `work` is done, and its result."""
    task = asyncio.ensure_future(work)
    longest, last = 0.0, time.thread_time()
    while not task.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest, await task


@pytest.fixture
async def world(tmp_path):
    async with serving(tmp_path / "data") as server, await connect(server) as connection:
        yield server, connection


def create(server, name: str, partitions: int = 1, **overrides: str) -> None:
    properties = {key.replace("_", "."): value for key, value in overrides.items()}
    server.broker.topic_changes.create_topic(
        name, partitions=partitions, overrides={"max.message.bytes": "20000000", **properties}
    )


RULES = {
    "compacted": ({"cleanup_policy": "compact"}, 0, E.NONE),
    "too early": ({"message_timestamp_before_max_ms": "1000"}, -HOUR_MS, E.INVALID_TIMESTAMP),
    "too late": ({}, 2 * HOUR_MS, E.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("rule", RULES)
async def test_a_large_record_in_a_small_batch(world, rule, codec):
    server, connection = world
    overrides, shift_ms, error = RULES[rule]
    create(server, "t", **overrides)
    batch = one_record(codec, now_ms() + shift_ms)
    took, (answer,) = await longest_turn(append(connection, "t", batch))
    assert answer.error_code == error
    assert [e.batch_index for e in answer.record_errors] == ([0] if error else [])
    assert took < TURN_S


@pytest.mark.parametrize("codec", PACKED)
async def test_only_small_batches_are_unpacked_on_the_loop(world, monkeypatch, codec):
    server, connection = world
    create(server, "t", cleanup_policy="compact")
    on_the_loop, loop = [], threading.get_ident()
    real = record_rules.unpacked

    def unpacked(*args, **more):
        found = real(*args, **more)
        on_the_loop.append((threading.get_ident() == loop, len(found)))
        return found

    monkeypatch.setattr(record_rules, "unpacked", unpacked)
    for size in (1000, 100_000, 500_000, 5_000_000):
        (answer,) = await append(connection, "t", one_record(codec, now_ms(), size))
        assert answer.error_code == E.NONE
    assert [where for where, _ in on_the_loop] == [True, True, False, False]
    assert all(size <= record_rules.UNPACKED_AT_ONCE_BYTES for where, size in on_the_loop if where)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: many_records(KEYED, now_ms()), 0),
        (lambda: many_records(KEYLESS, now_ms()), record_rules.NAMED_MAX),
        (lambda: many_headers(now_ms()), 0),
    ],
    ids=["records", "records without a key", "headers"],
)
async def test_very_many_parts_in_a_small_batch(world, make, named):
    server, connection = world
    create(server, "t", cleanup_policy="compact")
    took, (answer,) = await longest_turn(append(connection, "t", make()))
    assert answer.error_code == (E.INVALID_RECORD if named else E.NONE)
    assert [e.batch_index for e in answer.record_errors] == list(range(named))
    assert took < TURN_S


async def test_many_small_batches_are_looked_at_in_slices(world):
    """In one record set, and in many partitions."""
    server, connection = world
    create(server, "t", partitions=100, cleanup_policy="compact")
    small = many_records(KEYED, now_ms(), 9_000)
    took, answers = await longest_turn(append(connection, "t", small * 100))
    assert [(a.error_code, a.base_offset) for a in answers] == [(E.NONE, 0)]
    assert took < TURN_S
    took, answers = await longest_turn(append(connection, "t", *([small] * 100)))
    assert [a.error_code for a in answers] == [E.NONE] * 100
    assert took < TURN_S


async def test_small_requests_that_come_together_are_handled_in_slices(world):
    """Hundreds of them fit into a receive buffer."""
    server, _ = world
    create(server, "t", cleanup_policy="compact")
    request = produce_request("t", many_records(KEYED, now_ms(), 8_000))
    frames = b"".join(request_frame(request, 9, number) for number in range(100))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.broker.listeners["PLAINTEXT"].port)

    async def ask() -> list[int]:
        writer.write(frames)
        answers = [await reader.readexactly(int.from_bytes(await reader.readexactly(4))) for _ in range(100)]
        return [int.from_bytes(answer[:4]) for answer in answers]

    took, numbers = await longest_turn(ask())
    writer.close()
    assert numbers == list(range(100))
    assert server.broker.partition("t", 0).log.log_end_offset == 800_000
    assert took < TURN_S


@pytest.mark.parametrize("acks", [-1, 0])
async def test_requests_of_a_connection_keep_their_order(world, acks):
    """Also what comes behind a large batch in the same request, whose bytes may not be those of a later one."""
    server, connection = world
    create(server, "t", partitions=3, cleanup_policy="compact")
    first = [encode_batch([Record(timestamp=now_ms(), key=b"k", value=b"first")]) for _ in range(2)]
    large = one_record(Compression.ZSTD, now_ms(), 20 << 20)
    later = [encode_batch([Record(timestamp=now_ms(), key=b"k", value=b"later" * n)]) for n in (1, 40, 900)]
    sent = [append(connection, "t", large, *first, acks=acks), append(connection, "t", *later, acks=acks)]
    if acks:
        answers = await asyncio.gather(*sent)
        assert [[a.base_offset for a in answer] for answer in answers] == [[0, 0, 0], [1, 1, 1]]
    else:
        for request in sent:
            task = asyncio.ensure_future(request)
            await asyncio.sleep(0.05)
            task.cancel()
    logs = [server.broker.partition("t", index).log for index in range(3)]
    async with asyncio.timeout(60):
        while [log.log_end_offset for log in logs] != [2, 2, 2]:
            await asyncio.sleep(0.01)
    for log, expected in zip(logs[1:], later[1:], strict=True):
        file = log._segments.active.path(".log").read_bytes()
        assert file.count(b"first") == 1
        assert file.endswith(bytes(expected[-100:]))


async def test_others_append_to_the_partition_meanwhile(world, monkeypatch):
    server, connection = world
    create(server, "t", cleanup_policy="compact,delete")
    batch = one_record(Compression.GZIP, now_ms())
    begun, go_on = hold_in_thread(monkeypatch, record_rules, "unpacked")
    large = asyncio.ensure_future(append(connection, "t", batch))
    async with await connect(server) as other:
        await in_time(begun)
        small = encode_batch([Record(timestamp=now_ms(), key=b"k", value=b"v")])
        for expected in range(5):
            (answer,) = await append(other, "t", small)
            assert (answer.base_offset, large.done()) == (expected, False)
    go_on.set()
    (answer,) = await large
    assert answer.base_offset == 5


async def test_few_hold_much_at_a_time(world, monkeypatch):
    server, _ = world
    create(server, "t", cleanup_policy="compact")
    monkeypatch.setattr(slices, "TURNS", 1)
    under_way, most = [], []
    real = record_rules.sights

    def sights(body, header):
        under_way.append(body)
        most.append(len(under_way))
        yield from real(body, header)
        under_way.remove(body)

    monkeypatch.setattr(record_rules, "sights", sights)
    batch = many_records(KEYED, now_ms(), 50_000)
    connections = [await connect(server) for _ in range(4)]
    answers = await asyncio.gather(*(append(connection, "t", batch) for connection in connections))
    assert sorted(answer.base_offset for (answer,) in answers) == [0, 50_000, 100_000, 150_000]
    assert most == [1, 1, 1, 1]
    for connection in connections:
        await connection.close()


async def test_only_what_needs_a_thread_waits_for_a_turn(world):
    server, connection = world
    create(server, "t", cleanup_policy="compact")
    turns = slices.turns_of(asyncio.get_running_loop())
    for _ in range(slices.TURNS):
        turns.take(lambda: None)
    plain = packed(KEYED * 100_000, 100_000, Compression.NONE, now_ms())  # more than a slice
    (answer,) = await asyncio.wait_for(append(connection, "t", plain), 20)
    assert (answer.error_code, answer.base_offset) == (E.NONE, 0)
    large = asyncio.ensure_future(append(connection, "t", one_record(Compression.ZSTD, now_ms())))
    assert not (await asyncio.wait([large], timeout=0.2))[0]
    turns.give_back()
    (answer,) = await large
    assert answer.base_offset == 100_000


async def test_a_request_that_waits_is_read_where_it_was_received(world, monkeypatch):
    """Later bytes of the receive buffer do not move it."""
    server, _ = world
    create(server, "t", partitions=2, cleanup_policy="compact")
    read, real = [], record_rules.unpacked

    def unpacked(data, *args, **more):
        read.append(data)
        return real(data, *args, **more)

    monkeypatch.setattr(record_rules, "unpacked", unpacked)
    turns = slices.turns_of(asyncio.get_running_loop())
    for _ in range(slices.TURNS):
        turns.take(lambda: None)
    noise = os.urandom(120_000)
    large = encode_batch(
        [Record(timestamp=now_ms(), key=b"k", value=noise + bytes(200_000))], compression=Compression.ZSTD
    )
    frames = [request_frame(produce_request("t", bytes(large), partition=n), 9, n) for n in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.broker.listeners["PLAINTEXT"].port)
    writer.write(frames[0] + frames[1][:100])
    async with asyncio.timeout(60):
        while not any(each.busy for each in server.connections):
            await asyncio.sleep(0.01)
    (waiting,) = (each for each in server.connections if each.busy)
    buffer = waiting._buf
    writer.write(frames[1][100:])
    for _ in range(slices.TURNS):
        turns.give_back()
    for number in range(2):
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        assert int.from_bytes(answer[:4]) == number
        file = server.broker.partition("t", number).log._segments.active.path(".log").read_bytes()
        assert file.endswith(bytes(large[-100_000:]))
    writer.close()
    assert read[0].obj is buffer


async def test_a_topic_that_is_deleted_while_its_batch_is_unpacked(world, monkeypatch):
    server, connection = world
    create(server, "t", cleanup_policy="compact")
    begun, go_on = hold_in_thread(monkeypatch, record_rules, "unpacked")
    large = asyncio.ensure_future(append(connection, "t", one_record(Compression.GZIP, now_ms())))
    await in_time(begun)
    changes = server.broker.topic_changes
    finish(changes.deleting([server.broker.topics.by_name["t"]]))
    create(server, "t")
    go_on.set()
    (answer,) = await large
    assert answer.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await produce(connection, "t", b"x")).base_offset == 0


def test_a_rule_that_comes_while_a_batch_is_recompressed_holds_for_it(tmp_path):
    log = PartitionLog.open(
        tmp_path, "t", 0, LogConfig(compression_type="gzip"), clean=True, leader_epoch=0, now_ms=0
    )
    batch = encode_batch([Record(timestamp=5, value=bytes(100_000))], compression=Compression.ZSTD)
    steps = log.preparing(batch, now_ms=5)
    job = next(steps)
    assert job is not None
    log.config = LogConfig(compression_type="gzip", cleanup_policy=("compact",))
    job()
    with pytest.raises(InvalidRecordBatch, match="without key"):
        finish(steps)
    log.release()


async def find(connection, timestamp: int) -> tuple[int, int]:
    topic = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    )
    answer = await connection.request(ListOffsetsRequest(topics=[topic]), 7)
    (found,) = answer.topics[0].partitions
    assert found.error_code == E.NONE
    return found.timestamp, found.offset


@pytest.mark.parametrize("codec", PACKED)
async def test_a_timestamp_is_looked_up_in_a_small_batch_with_a_large_record(world, codec):
    server, connection = world
    create(server, "t")
    at = now_ms()
    (answer,) = await append(connection, "t", one_record(codec, at))
    assert answer.error_code == E.NONE
    for asked in (at - 5, -3):
        took, found = await longest_turn(find(connection, asked))
        assert found == (at, 0)
        assert took < TURN_S


async def test_a_timestamp_is_looked_up_among_very_many_records_and_batches(world):
    server, connection = world
    create(server, "t")
    at = now_ms()
    log = server.broker.partition("t", 0).log
    many = many_records(KEYED, at, 1_000_000)
    assert read_header(many).record_count == 1_000_000
    log.append(many, now_ms=at)
    small = encode_batch([Record(timestamp=at, value=b"x")])
    for _ in range(60):
        log.append(small * 2_500, now_ms=at)
    last = encode_batch([Record(timestamp=at + 10, value=b"x"), Record(timestamp=at + 20, value=b"y")])
    log.append(last, now_ms=at)
    took, found = await longest_turn(find(connection, at + 5))
    assert found == (at + 10, 1_150_000)
    assert took < TURN_S
    took, found = await longest_turn(find(connection, -3))
    assert found == (at + 20, 1_150_001)
    assert took < TURN_S


def test_a_refusal_for_one_of_several_batches_comes_from_a_step(tmp_path, monkeypatch):
    """The first batch is looked at at once, those behind it in steps."""
    log = PartitionLog.open(
        tmp_path, "t", 0, LogConfig(cleanup_policy=("compact",)), clean=True, leader_epoch=0, now_ms=0
    )
    good, bad = (encode_batch([Record(timestamp=5, key=key, value=b"x")]) for key in (b"k", None))
    sent = good + good
    monkeypatch.setattr(validation.record_rules, "SMALL_BYTES", 1 << 20)
    steps = log.preparing(sent, now_ms=5)
    assert next(steps) is None
    prepared = finish(steps)
    assert (prepared.stopped, prepared.data is sent) == (True, True)
    with pytest.raises(InvalidRecordBatch, match="without key"):
        finish(log.preparing(good + bad, now_ms=5))
    log.release()


async def test_what_is_named_very_often_is_told_once(world):
    """A request of 16 KB must not make an answer of gigabytes."""
    server, connection = world
    create(server, "t")
    log = server.broker.partition("t", 0).log
    for producer in range(500):
        batch = encode_batch(
            [Record(timestamp=5, value=b"x")], producer_id=producer, producer_epoch=0, base_sequence=0
        )
        log.append(batch, now_ms=now_ms())
    asked = [DescribeProducersTopic(name="t", partition_indexes=[0, 0, 1] * 1_000)] * 2
    took, answer = await longest_turn(connection.request(DescribeProducersRequest(topics=asked), 0))
    told = [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in answer.topics]
    assert told == [[(0, E.NONE), (1, E.UNKNOWN_TOPIC_OR_PARTITION)], []]
    assert [p.producer_id for p in answer.topics[0].partitions[0].active_producers] == list(range(500))
    assert took < TURN_S
    unknown = DescribeTransactionsRequest(transactional_ids=["a", "b", "a"])
    answer = await connection.request(unknown, 0)
    assert [state.transactional_id for state in answer.transaction_states] == ["a", "b"]
