"""Large requests are handled in slices: the event loop is free again after a few milliseconds, whatever a client asks for.

What is compared is the processor time of the longest single call of the loop with that of all: a slow or busy machine changes
both alike.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from typing import Any

import pytest
from support.broker import wait_until
from support.raw import RawClient, batch, produce_request, request_frame

from klamm.testing import EmbeddedBroker
from klamm_broker.api import api_03_metadata, api_35_describe_log_dirs
from klamm_broker.api.commits import committing
from klamm_broker.coordinator.model import OffsetToCommit, TopicPartition
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_broker.server import heavy
from klamm_broker.server.broker import Broker
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.listener import Server
from klamm_kafka.wire.errors import ErrorCode, MalformedMessage
from klamm_kafka.wire.headers import frame_pieces, frame_response
from klamm_kafka.wire.hot import (
    FetchResult,
    ManyElements,
    encode_fetch_response,
    fetch_response_steps,
    parse_produce,
)
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from klamm_kafka.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from klamm_kafka.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from klamm_kafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from klamm_kafka.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm_kafka.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm_kafka.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm_kafka.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from klamm_kafka.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from klamm_kafka.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm_kafka.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm_kafka.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm_kafka.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from klamm_kafka.wire.messages.share_fetch import FetchPartition as SharePartition
from klamm_kafka.wire.messages.share_fetch import FetchTopic as ShareTopic
from klamm_kafka.wire.messages.share_fetch import ShareFetchRequest

TOPIC, PARTITIONS, ASKED = "t", 500, 20_000
AT_ONCE, SHARE, ROUNDS = 3, 0.25, 5
"""Requests that are under way together, and the largest share that a call may have. A request that is not cut has a third."""


def fetch(*, session_epoch=-1, max_wait_ms=0, asked=ASKED, min_bytes=1):
    named = [
        FetchPartition(partition=n % PARTITIONS, fetch_offset=0, partition_max_bytes=100)
        for n in range(asked)
    ]
    topics = [FetchTopic(topic=TOPIC, partitions=named)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=topics,
    )


def share_fetch():
    """A share fetch of topics that do not exist: whatever a session remembers costs as much as one that does."""
    topics = [
        ShareTopic(topic_id=n.to_bytes(16), partitions=[SharePartition(partition_index=0)])
        for n in range(1, 12_001)
    ]
    return ShareFetchRequest(
        group_id="g", member_id="m", max_bytes=1 << 20, max_records=500, batch_size=500, topics=topics
    )


def produce_many():
    records = batch(b"x")
    named = [PartitionProduceData(index=n, records=records) for n in range(3_000)]
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=named)]
    )


def txn_commit(count):
    offset = OffsetToCommit(1, -1, None, bytes(16))
    return TxnCommitRequest(
        group_id="g",
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        reports_missing_group=False,
        offsets={TopicPartition(TOPIC, n): offset for n in range(count)},
        producer_id=1,
        producer_epoch=0,
    )


def quotas():
    """Changes of 4,000 users' quotas, which are only checked."""
    return AlterClientQuotasRequest(
        validate_only=True,
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name=f"u{n}")],
                ops=[OpData(key="producer_byte_rate", value=1000.0)],
            )
            for n in range(4_000)
        ],
    )


def users():
    """New credentials of 4,000 users."""
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=f"u{n}", mechanism=1, iterations=4096, salt=b"s", salted_password=bytes(32)
            )
            for n in range(4_000)
        ],
    )


def configs():
    """The configuration of 3,000 groups, which need not exist: 13 MB with documentation."""
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{n}", configuration_keys=None)
        for n in range(3_000)
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def numbers():
    return [n % PARTITIONS for n in range(ASKED)]


CASES = {
    "fetch": (fetch(), 11),
    "fetch that begins a session": (fetch(session_epoch=0), 11),
    "fetch that waits": (fetch(max_wait_ms=20), 11),
    "share fetch": (share_fetch(), 2),
    "list offsets": (
        ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[
            ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(ASKED)
        ])]), 7,
    ),
    "leader epochs": (
        OffsetForLeaderEpochRequest(replica_id=-2, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[
            OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in numbers()
        ])]), 4,
    ),
    "offset fetch": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[
            OffsetFetchRequestTopics(name=TOPIC, partition_indexes=numbers())
        ])]), 8,
    ),
    "offset commit": (
        OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[
            OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in range(6_000)
        ])]), 8,
    ),
    "share acknowledge": (
        ShareAcknowledgeRequest(
            group_id="g", member_id="m", share_session_epoch=-1, topics=[
                AcknowledgeTopic(topic_id=n.to_bytes(16), partitions=[
                    AcknowledgePartition(partition_index=0, acknowledgement_batches=[
                        AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
                    ])
                ]) for n in range(1, 3_001)
            ]
        ), 1,
    ),
    "produce": (produce_many(), 9),
    "client quotas": (quotas(), 1),
    "users": (users(), 0),
    "delete records": (
        DeleteRecordsRequest(timeout_ms=1000, topics=[DeleteRecordsTopic(name=TOPIC, partitions=[
            DeleteRecordsPartition(partition_index=n, offset=0) for n in range(ASKED)
        ])]), 1,
    ),
    "describe configs": (configs(), 4),
    "join group": (
        JoinGroupRequest(group_id="j", session_timeout_ms=10_000, protocol_type="consumer", protocols=[
            JoinGroupRequestProtocol(name=f"p{n}", metadata=b"") for n in range(12_000)
        ]), 5,
    ),
    "metadata": (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=f"no{n}") for n in range(12_000)], allow_auto_topic_creation=False
        ), 12,
    ),
}  # fmt: skip


@pytest.fixture
async def broker(tmp_path):
    text = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    loop = asyncio.get_running_loop()
    broker = Broker(BrokerConfig.load(text), loop)
    server = Server(broker, loop)
    broker.listeners = {listener.name: listener for listener in server.bind()}
    broker.open()
    server.serve()
    yield broker
    server.quiesce()
    await server.drain(1)
    await broker.close()


async def ask(port: int, frame: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(frame)
    await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    writer.close()


async def least_hold(holds: list[float], port: int, frame: bytes) -> tuple[float, float]:
    """Returns the longest call, in seconds and as a share of all, of the round in which that share is least.

    Other processes make a call longer (the cache is theirs), never shorter: a share that is right once is right.
    """
    rounds = []
    for _ in range(ROUNDS):
        holds.clear()
        await asyncio.gather(*(ask(port, frame) for _ in range(AT_ONCE)))
        rounds.append((max(holds), max(holds) / sum(holds)))
        if rounds[-1][1] < SHARE:
            break
    return min(rounds, key=lambda each: each[1])


async def test_no_large_request_holds_the_loop(broker, monkeypatch):
    port = broker.listeners["PLAINTEXT"].port
    new = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await ask(port, request_frame(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6))
    broker.topics.by_name[TOPIC].partitions *= ASKED // PARTITIONS  # real ones would take as many files
    holds: list[float] = []
    run = asyncio.events.Handle._run

    def measured(handle):
        began = time.thread_time()
        run(handle)
        holds.append(time.thread_time() - began)

    longest = {}
    gc.disable()  # a collection would look at all that the tests before have made
    try:
        for name, (request, version) in CASES.items():
            frame = request_frame(request, version)
            assert len(frame) >= heavy.LARGE_BYTES
            await ask(port, frame)  # compiles
            with monkeypatch.context() as patch:
                patch.setattr(asyncio.events.Handle, "_run", measured)
                longest[name] = await least_hold(holds, port, frame)
    finally:
        gc.enable()
    print({name: f"{held * 1000:.1f} ms, {share:.2f}" for name, (held, share) in longest.items()})
    assert max(share for _, share in longest.values()) < SHARE, longest


# ---- what is done in steps is what is done at once


def all_of(steps):
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("name", CASES)
def test_decoding_in_steps_is_decoding(name):
    request, version = CASES[name]
    body = request.encode(version)
    found, steps = all_of(type(request).decode_steps(body, version, 0, 1 << 20))
    assert found == type(request).decode(body, version)
    assert steps > 10 or name == "offset fetch", "numbers are unpacked at once"
    with pytest.raises(MalformedMessage) as whole:
        type(request).decode(body[:-3], version)
    with pytest.raises(MalformedMessage) as stepwise:
        all_of(type(request).decode_steps(body[:-3], version))
    assert str(stepwise.value) == str(whole.value), "errors name the same field and offset"
    with pytest.raises(MalformedMessage, match="more than 5 elements"):
        all_of(type(request).decode_steps(body, version, 0, 5))


@pytest.mark.parametrize("version", [1, 4])
def test_an_answer_is_encoded_in_steps_while_it_is_made(version):
    """Its results are made when it is their turn, and no piece of them is lost."""
    made = []

    class Results(list):
        def __iter__(self):
            for result in super().__iter__():
                made.append(result)
                yield result

    config = DescribeConfigsResourceResult(name="a", value="b", synonyms=[DescribeConfigsSynonym(name="c")])
    one = DescribeConfigsResult(resource_type=2, resource_name="t", configs=[config] * 10)
    steps = DescribeConfigsResponse(results=Results([one] * 1000)).encode_steps(version)
    next(steps)
    assert 10 < len(made) < 20
    pieces, count = all_of(steps)
    assert count == 1000 * 21 // 256 - 1
    whole = DescribeConfigsResponse(results=[one] * 1000)
    assert b"".join(pieces) == whole.encode(version)
    framed = b"".join(frame_pieces(7, 32, version, pieces))
    assert framed == frame_response(7, 32, version, whole)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_encoding_in_steps_is_encoding(version):
    results = [FetchResult(n, 0, n, n, 0, None, bytes(n % 3) or None) for n in range(2000)]
    topics = [("a", results), ("b", results[:3])]
    made, steps = all_of(fetch_response_steps(7, version, topics, session_id=5 if version > 6 else 0))
    assert made == encode_fetch_response(7, version, topics, session_id=5 if version > 6 else 0)
    assert steps == len(results) // 256


@pytest.mark.parametrize("version", [1, 4])
async def test_an_answer_that_is_encoded_in_steps_tells_the_delay(broker, version):
    """Its cost is known when it is encoded, and the delay with it."""
    port = broker.listeners["PLAINTEXT"].port
    quota = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="request_percentage", value=1e-6)],
    )
    await ask(port, request_frame(AlterClientQuotasRequest(entries=[quota]), 1))
    request = configs()
    request.resources = request.resources[:800]
    request.include_documentation = version > 1
    frame = request_frame(request, version)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(frame)
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    writer.close()
    told, end = DescribeConfigsResponse.decode(answer, version, 4 + (version > 3))
    assert end == len(answer)
    assert told.throttle_time_ms > 0
    assert [result.resource_name for result in told.results] == [f"g{n}" for n in range(800)]


@pytest.mark.parametrize(
    ("request_", "answer_type", "version"),
    [
        (OffsetDeleteRequest(group_id="g" * heavy.LARGE_BYTES), OffsetDeleteResponse, 0),
        (DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, 1),
        (DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, 3),
        (ApiVersionsRequest(client_software_name="n" * heavy.LARGE_BYTES), ApiVersionsResponse, 3),
    ],
)
async def test_an_answer_in_steps_tells_the_delay_behind_other_fields(broker, request_, answer_type, version):
    """Some answers begin with an error code: the delay must not stand there."""
    port = broker.listeners["PLAINTEXT"].port
    frame = request_frame(request_, version)
    flexible = answer_type.is_flexible(version) and answer_type is not ApiVersionsResponse

    async def answer() -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame)
        found = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
        told, end = answer_type.decode(found, version, 4 + flexible)
        assert end == len(found)
        return told

    unthrottled = await answer()
    quota = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key="request_percentage", value=1e-6)],
    )
    await ask(port, request_frame(AlterClientQuotasRequest(entries=[quota]), 1))
    told = await answer()
    assert 0 < told.throttle_time_ms <= 1000
    told.throttle_time_ms = 0
    assert told == unthrottled


async def test_log_dirs_do_not_hold_the_loop(broker, monkeypatch):
    """They are told in steps; the answer is the one that is made at once."""
    port = broker.listeners["PLAINTEXT"].port
    new = [CreatableTopic(name=f"t{n}", num_partitions=3, replication_factor=1) for n in range(12)]
    await ask(port, request_frame(CreateTopicsRequest(topics=new, timeout_ms=60_000), 6))

    async def answer() -> list[tuple[str, int, int]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_frame(DescribeLogDirsRequest(topics=None), 4))
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
        (told,) = DescribeLogDirsResponse.decode(frame, 4, 5)[0].results
        return [(t.name, p.partition_index, p.partition_size) for t in told.topics for p in t.partitions]

    at_once = await answer()
    assert len(at_once) == 36
    slices = []
    work = heavy.one_slice
    monkeypatch.setattr(heavy, "one_slice", lambda steps: slices.append(1) or work(steps))
    monkeypatch.setattr(heavy, "LONG_SLICE_S", 0)
    monkeypatch.setattr(api_35_describe_log_dirs, "STEP", 4)
    assert await answer() == at_once
    assert len(slices) > 5


@pytest.mark.usefixtures("processes")
def test_a_large_fetch_waits_and_is_woken(tmp_path):
    """It finds what comes while it is under way, tells it once, and later requests of its connection go on meanwhile."""
    with (
        EmbeddedBroker(tmp_path / "data") as broker,
        RawClient(broker.port) as reader,
        RawClient(broker.port) as writer,
    ):
        new = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        writer.request(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6)
        large = fetch(max_wait_ms=30_000, asked=3000)
        began = time.monotonic()
        reader.send(large, 11)
        writer.request(produce_request(TOPIC, batch(b"x"), partition=7), 9)
        _, answer = reader.receive(FetchRequest, 11)
        assert time.monotonic() - began < 20
        full = [p.partition_index for t in answer.responses for p in t.partitions if p.records]
        assert full
        assert set(full) == {7}
        nothing = fetch(max_wait_ms=200, asked=3000, min_bytes=1 << 20)
        reader.send(nothing, 11)
        reader.send(MetadataRequest(topics=[]), 12)
        assert len(reader.receive(FetchRequest, 11)[1].responses[0].partitions) == 3000, "its time is up"
        assert reader.receive(MetadataRequest, 12)[1].brokers


async def test_a_small_request_for_very_much_is_cut_too(broker, monkeypatch):
    """Its connection's later requests wait for it; what it is told is what would have been told at once."""
    port = broker.listeners["PLAINTEXT"].port
    new = [CreatableTopic(name=f"t{n}", num_partitions=3, replication_factor=1) for n in range(12)]
    await ask(port, request_frame(CreateTopicsRequest(topics=new, timeout_ms=60_000), 6))
    everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)

    async def answers() -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        writer.write(request_frame(everything, 12, 5) + request_frame(MetadataRequest(topics=[]), 12, 6))
        found = [await reader.readexactly(int.from_bytes(await reader.readexactly(4))) for _ in range(2)]
        writer.close()
        return found[0], found[1]

    at_once = await answers()
    slices = []
    work = heavy.one_slice
    monkeypatch.setattr(heavy, "one_slice", lambda steps: slices.append(1) or work(steps))
    monkeypatch.setattr(heavy, "LONG_SLICE_S", 0)
    monkeypatch.setattr(api_03_metadata, "STEP", 4)
    assert await answers() == at_once
    assert len(slices) > 10


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("acks", [0, 1])
def test_a_large_produce_is_done_to_the_end_even_if_its_client_has_left(tmp_path, acks):
    """Its parts are appended in order, before the next request of the connection."""
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as reader:
        new = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        reader.request(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6)
        records = batch(b"x")
        named = [PartitionProduceData(index=n, records=records) for n in range(PARTITIONS)]
        data = [TopicProduceData(name=TOPIC, partition_data=named)]
        large = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)
        with RawClient(broker.port) as writer:
            writer.send(large, 9)
            writer.send(produce_request(TOPIC, records, partition=PARTITIONS - 1, acks=acks), 9)
            writer.sock.shutdown(socket.SHUT_WR)
        asked = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(PARTITIONS)]
        ends = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])

        def all_are_there() -> bool:
            told = reader.request(ends, 7).topics[0].partitions
            return [p.offset for p in told] == [1] * (PARTITIONS - 1) + [2 if acks == 0 else told[-1].offset]

        wait_until(all_are_there, "every partition to have its record")


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_produce_of_very_many_partitions_is_not_read_at_once(version):
    named = [PartitionProduceData(index=n, records=None) for n in range(200)]
    topic = {"topic_id": bytes(16)} if version >= 13 else {"name": TOPIC}
    body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(**topic, partition_data=named)])
    encoded = body.encode(version)
    with pytest.raises(ManyElements):
        parse_produce(encoded, 0, version, most=200)
    assert parse_produce(encoded, 0, version, most=201) == parse_produce(encoded, 0, version)


async def test_very_many_offsets_are_committed_in_parts_and_answered_together(broker):
    port = broker.listeners["PLAINTEXT"].port
    new = CreatableTopic(name=TOPIC, num_partitions=10, replication_factor=1)
    await ask(port, request_frame(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 6))
    broker.topics.by_name[TOPIC].partitions *= 130

    async def commit(generation: int) -> list[int]:
        named = [OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(1_302)]
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=named)],
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        writer.write(request_frame(request, 8, 5))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()
        told, _ = OffsetCommitResponse.decode(answer, 8, 5)
        assert [p.partition_index for p in told.topics[0].partitions] == list(range(1_302))
        return [p.error_code for p in told.topics[0].partitions]

    assert await commit(-1) == [0] * 1_300 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    stored = broker.groups.coordinator.groups["g"].offsets
    assert sorted((at.partition, found.offset) for at, found in stored.items()) == [
        (n, n) for n in range(1_300)
    ]
    refused = await commit(7)
    assert set(refused[:1_300]) == {refused[0]}
    assert refused[0] not in {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_offsets_within_a_transaction_are_committed_at_once(broker):
    """Between two batches an EndTxn of another connection could write its marker."""
    broker.groups.ensure_topic()
    await asyncio.sleep(0.1)
    steps = committing(broker, txn_commit(1_300))
    with pytest.raises(StopIteration) as end:
        next(steps)
    answer = end.value.value
    result = await answer if isinstance(answer, asyncio.Future) else answer
    assert result.error is ErrorCode.NONE
    assert len(result.partitions) == 1_300
    assert set(result.partitions.values()) == {ErrorCode.NONE}
