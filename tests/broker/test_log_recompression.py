"""compression.type other than producer: every codec at every level that it has, and off the loop for large batches."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time

import pytest
from support.inprocess import connect, hold_in_thread, in_time, produce, serving

from klamm_broker.coordinator.transactions.coordinator import TransactionCoordinator
from klamm_broker.log import validation
from klamm_broker.log.config import LogConfig
from klamm_broker.log.errors import CorruptMessage, RecordTooLarge
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.record_rules import SMALL_BYTES
from klamm_kafka.wire.batch import Record, decode_records, encode_batch, patch, read_header
from klamm_kafka.wire.compression import Compression
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.end_txn import EndTxnRequest
from klamm_kafka.wire.messages.init_producer_id import InitProducerIdRequest
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOW = 1_800_000_000_000
CHANCE = random.Random(7)
WORDS = [CHANCE.randbytes(CHANCE.randint(3, 9)).hex().encode() for _ in range(500)]


def text(size):
    out = bytearray()
    while len(out) < size:
        out += CHANCE.choice(WORDS) + b" "
    return bytes(out[:size])


RECORDS = [
    Record(timestamp=NOW + n, key=b"k%d" % n, value=text(3000), headers=[("h", b"%d" % n)]) for n in range(20)
]


def stored(log):
    piece = log.read(0, 1 << 24, up_to=log.log_end_offset)
    return os.pread(piece.fd, piece.size, piece.position)


@pytest.fixture
def open_log(tmp_path):
    opened = []

    def make(**config):
        path = tmp_path / str(len(opened))
        opened.append(
            PartitionLog.open(
                path, "t", 0, LogConfig.from_topic(config), clean=True, leader_epoch=3, now_ms=NOW
            )
        )
        return opened[-1]

    yield make
    for log in opened:
        log.release()


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_every_codec_into_every_other(open_log, source, target):
    log = open_log(**{"compression.type": target})
    batch = encode_batch(
        RECORDS, compression=source, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=False
    )
    sent = read_header(batch)
    log.append(batch, now_ms=NOW)
    found = stored(log)
    header = read_header(found)
    wanted = {"producer": source, "uncompressed": Compression.NONE}.get(
        target
    ) or Compression.__members__.get(target.upper(), Compression.NONE)
    assert header.compression is wanted
    same = (
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "max_timestamp",
        "base_timestamp",
    )
    assert [getattr(header, name) for name in same] == [getattr(sent, name) for name in same]
    assert [(r.key, r.value, r.headers, r.timestamp) for r in decode_records(found)] == [
        (r.key, r.value, r.headers, r.timestamp) for r in RECORDS
    ]


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-131072", "22"), ("gzip", "1", "-1")],
)
def test_the_level_of_a_codec_counts(open_log, codec, low, high):
    sizes = []
    for level in (low, high):
        log = open_log(**{"compression.type": codec, f"compression.{codec}.level": level})
        log.append(encode_batch(RECORDS), now_ms=NOW)
        assert len(decode_records(stored(log))) == len(RECORDS)
        sizes.append(log.size)
    assert sizes[1] < sizes[0]


def test_what_is_too_large_in_the_topics_codec_is_refused(open_log):
    batch = encode_batch([Record(timestamp=NOW, value=b"x" * 10_000)], compression=Compression.ZSTD)
    log = open_log(**{"compression.type": "uncompressed", "max.message.bytes": "5000"})
    with pytest.raises(
        RecordTooLarge, match=r"in none: a batch of more than 5000 bytes exceeds max\.message\.bytes=5000"
    ):
        log.append(batch, now_ms=NOW)
    assert log.log_end_offset == 0


def test_what_cannot_be_decompressed_is_refused(open_log):
    batch = encode_batch(RECORDS, compression=Compression.ZSTD)
    batch[61:90] = bytes(29)
    from klamm_kafka.wire.batch import _set_crc

    _set_crc(batch, 0, len(batch))
    with pytest.raises(CorruptMessage):
        open_log(**{"compression.type": "gzip"}).append(batch, now_ms=NOW)


async def test_large_batches_keep_their_order_and_hold_nobody_up(tmp_path, monkeypatch):
    """A connection sends five large batches at once; another one's requests are answered meanwhile."""
    async with serving(tmp_path / "data") as server:
        overrides = {
            "compression.type": "zstd",
            "compression.zstd.level": "19",
            "max.message.bytes": "10000000",
        }
        server.broker.topic_changes.create_topic("t", partitions=1, overrides=overrides)
        writer, other = await connect(server), await connect(server)
        big = [b"%d " % n + text(100_000) for n in range(5)]
        assert len(big[0]) > SMALL_BYTES
        begun, go_on = hold_in_thread(monkeypatch, validation, "recompress")
        sending = [asyncio.create_task(produce(writer, "t", value)) for value in big]
        await in_time(begun)
        for _ in range(20):
            await other.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert not any(task.done() for task in sending)
        go_on.set()
        answers = [await task for task in sending]
        assert [answer.base_offset for answer in answers] == list(range(5))
        log = server.broker.partition("t", 0).log
        values = [record.value for record in _all(log)]
        assert values == big
        await writer.close()
        await other.close()


def _all(log):
    from klamm_kafka.wire.batch import iter_headers

    data = stored(log)
    return [record for position, _ in iter_headers(data) for record in decode_records(data, position)]


async def test_a_large_batch_that_is_refused_and_acks_0(tmp_path):
    async with serving(tmp_path / "data") as server:
        server.broker.topic_changes.create_topic("t", partitions=1, overrides={"compression.type": "gzip"})
        connection = await connect(server)
        value = b"x" * (2 << 20)
        assert (await produce(connection, "t", value)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        log = server.broker.partition("t", 0).log
        assert log.log_end_offset == 0
        await produce(connection, "t", text(100_000))
        assert log.log_end_offset == 1
        await connection.close()


def note_threads(monkeypatch) -> list[int]:
    """Returns the list to which each recompression will add its thread."""
    threads = []
    real = validation.recompress

    def noted(*args):
        threads.append(threading.get_ident())
        return real(*args)

    monkeypatch.setattr(validation, "recompress", noted)
    return threads


@pytest.mark.parametrize(
    ("value", "error"),
    [(text(10_000) * 400, ErrorCode.NONE), (text(200_000) * 40, ErrorCode.MESSAGE_TOO_LARGE)],
    ids=["much in little", "too large in the topic's codec"],
)
@pytest.mark.parametrize("behind", [0, 1], ids=["alone", "behind another"])
async def test_compressed_batches_are_unpacked_off_the_loop(tmp_path, monkeypatch, value, error, behind):
    """Also when it fails: nobody tries it again on the loop."""
    threads = note_threads(monkeypatch)
    async with serving(tmp_path / "data") as server:
        overrides = {"compression.type": "gzip", "max.message.bytes": "600000"}
        server.broker.topic_changes.create_topic("t", partitions=1, overrides=overrides)
        connection = await connect(server)
        batch = encode_batch(
            [Record(timestamp=int(time.time() * 1000), value=value)], compression=Compression.ZSTD
        )
        small = encode_batch(
            [Record(timestamp=int(time.time() * 1000), value=b"x" * 200)], compression=Compression.GZIP
        )
        records = small * behind + batch
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[data])
        answer = (await connection.request(request, 11)).responses[0].partition_responses[0]
        assert answer.error_code == error
        assert server.broker.partition("t", 0).log.log_end_offset == (0 if error else 1 + behind)
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        await connection.close()


def test_only_what_must_be_unpacked_or_is_large_needs_a_thread(open_log):
    none, gzip, zstd = Compression.NONE, Compression.GZIP, Compression.ZSTD

    def wanted(*codecs, value=b"", topic="gzip") -> bool:
        some = bytearray().join(encode_batch([Record(value=value)], compression=codec) for codec in codecs)
        for job in open_log(**{"compression.type": topic}).preparing(some, now_ms=NOW):
            return job is not None
        return False

    assert not wanted(none, gzip, none)
    assert wanted(none, none, zstd)
    assert wanted(none, value=bytes(SMALL_BYTES))
    assert not wanted(zstd, topic="zstd")
    assert not wanted(zstd, value=bytes(SMALL_BYTES), topic="producer")


@pytest.mark.parametrize("version", [11, 12])
async def test_large_batches_of_a_transaction_are_compressed_off_the_loop(tmp_path, monkeypatch, version):
    """This includes batches that have to wait for the coordinator, which is told of the partition first (from version 12 on)."""
    loop_thread, threads = threading.get_ident(), note_threads(monkeypatch)
    async with serving(tmp_path / "data", transaction_state_log_num_partitions="1") as server:
        server.broker.topic_changes.create_topic("t", partitions=1, overrides={"compression.type": "zstd"})
        connection = await connect(server)
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        async with asyncio.timeout(60):
            while (producer := await connection.request(init, 4)).error_code:
                await asyncio.sleep(0.02)
        if version < 12:
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            answer = await connection.request(added, 3)
            assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        values = [b"%d " % n + text(100_000) for n in range(3)]
        sending = []
        for number, value in enumerate(values):
            batch = encode_batch(
                [Record(timestamp=int(time.time() * 1000), value=value)], producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch, base_sequence=number, is_transactional=True,
            )  # fmt: skip
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=[data])
            sending.append(asyncio.create_task(connection.request(request, version)))
        answers = [(await task).responses[0].partition_responses[0] for task in sending]
        assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 1), (0, 2)]
        assert len(threads) == 3
        assert loop_thread not in threads
        log = server.broker.partition("t", 0).log
        assert [record.value for record in _all(log)] == values
        assert log.last_stable_offset == 0
        await connection.close()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_transaction_that_ends_meanwhile(tmp_path, monkeypatch, is_known):
    """Nothing is written behind its marker, also where nobody knew that it was open."""
    async with serving(tmp_path / "data", transaction_state_log_num_partitions="1") as server:
        create = server.broker.topic_changes.create_topic
        create("t", partitions=1, overrides={"compression.type": "zstd"})
        connection, other = await connect(server), await connect(server)
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        async with asyncio.timeout(60):
            while (producer := await connection.request(init, 4)).error_code:
                await asyncio.sleep(0.02)
        if not is_known:
            monkeypatch.setattr(TransactionCoordinator, "open_transaction", lambda *_: None)
        begun, ended = hold_in_thread(monkeypatch, validation, "recompress")  # the marker is done on the loop
        batch = encode_batch(
            [Record(timestamp=int(time.time() * 1000), value=text(100_000))], producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, base_sequence=0, is_transactional=True,
        )  # fmt: skip
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=[data])
        sending = asyncio.create_task(connection.request(request, 12))
        await in_time(begun)
        end = EndTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
        )  # fmt: skip
        assert (await other.request(end, 5)).error_code == 0
        ended.set()
        (answer,) = (await sending).responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        log = server.broker.partition("t", 0).log
        assert log.last_stable_offset == log.log_end_offset <= 1, "a marker at most"
        await connection.close()
        await other.close()


def test_offsets_and_epoch_are_the_brokers(open_log):
    log = open_log(**{"compression.type": "lz4"})
    for _ in range(2):
        batch = encode_batch(RECORDS)
        patch(batch, 0, base_offset=0, leader_epoch=99)
        log.append(batch, now_ms=NOW)
    data = stored(log)
    second = read_header(data, read_header(data).size)
    assert (second.base_offset, second.leader_epoch) == (len(RECORDS), 3)
