"""Quotas on a live broker: those who exceed theirs are told the delay and wait, and nobody else does."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.broker import new_name, new_topic, wait_until
from support.quotas import put
from support.raw import RawClient, batch, fetch_request, produce_request

from klamm.testing import EmbeddedBroker
from klamm.testing.broker import BrokerFailed
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm_kafka.wire.messages.fetch import FetchRequest
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

E = ErrorCode
PRODUCE, FETCH, TIME, MUTATION = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
CONNECTION = "connection_creation_rate"
ASK = MetadataRequest(topics=[])
pytestmark = pytest.mark.usefixtures("processes")


def kept(client: RawClient) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = client.request(DescribeClientQuotasRequest(), 1)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            v.key: v.value for v in entry.values
        }
        for entry in answer.entries
    }


@pytest.fixture
def quick(tmp_path):
    """Yields a broker that measures over two windows of a second, so that delays are short."""
    config = {"quota.window.num": "2", "controller.quota.window.num": "1", "klamm.metrics.port": "0"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        yield broker


def timed(client: RawClient, request, version):
    began = time.monotonic()
    answer = client.request(request, version)
    return answer, time.monotonic() - began


def test_a_producer_over_its_quota_is_answered_at_once_and_then_waits(quick):
    topic = new_topic(quick)
    with RawClient(quick.port, client_id="app") as client, RawClient(quick.port, client_id="other") as other:
        assert put(other, {"client-id": "app"}, {PRODUCE: 100_000}) == (0, None)
        answer = client.request(produce_request(topic, batch(bytes(150_000))), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is stored"
        assert 450 <= answer.throttle_time_ms <= 550, "150,000 bytes in a second that is counted"
        began = time.monotonic()
        _, meanwhile = timed(other, produce_request(topic, batch(bytes(150_000))), 9)
        timed(other, ASK, 12)
        client.send(ASK, 12)
        client.receive(MetadataRequest, 12)
        waited = time.monotonic() - began
        assert waited >= answer.throttle_time_ms / 1000 - 0.05
        assert meanwhile < waited, "nobody else waits"


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_every_version_of_produce_tells_the_delay(quick, version):
    topic = new_topic(quick)
    with RawClient(quick.port) as client:
        assert put(client, {"user": None}, {PRODUCE: 1000}) == (0, None)
        answer = client.request(produce_request(topic, batch(bytes(1500))), version)
        assert 500 <= answer.throttle_time_ms <= 800
        assert answer.responses[0].partition_responses[0].base_offset == 0


def test_without_an_answer_a_producer_waits_as_well(quick):
    topic = new_topic(quick)
    with RawClient(quick.port) as client:
        assert put(client, {"user": None}, {PRODUCE: 100_000}) == (0, None)
        began = time.monotonic()
        client.send(produce_request(topic, batch(bytes(150_000)), acks=0), 9)
        client.send(ASK, 12)
        client.receive(MetadataRequest, 12)
        assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_consumer_over_its_quota_gets_nothing_and_waits(quick, version):
    topic = new_topic(quick)
    with RawClient(quick.port) as client:
        for _ in range(4):
            client.request(produce_request(topic, batch(bytes(40_000))), 9)
        assert put(client, {"user": "ANONYMOUS"}, {FETCH: 100_000}) == (0, None)
        sizes, told, began = [], [], time.monotonic()
        while len(sizes) < 4:
            request = fetch_request(topic, len(sizes), max_bytes=50_000)
            answer = client.request(request, version)
            got = sum(len(p.records or b"") for t in answer.responses for p in t.partitions)
            told.append(answer.throttle_time_ms)
            assert bool(got) != bool(answer.throttle_time_ms), "records or a delay"
            sizes += [got] if got else []
        assert sum(told) / 1000 <= time.monotonic() - began + 0.05
        assert any(told)


def test_a_session_goes_on_after_a_delay(quick):
    """An answer without records is not noted in the session: the records come with the next one."""
    topic = new_topic(quick)
    with RawClient(quick.port) as client:
        client.request(produce_request(topic, batch(bytes(60_000))), 9)
        request = fetch_request(topic, 0)
        request.session_epoch = 0
        first = client.request(request, 11)
        assert first.session_id
        client.request(produce_request(topic, batch(bytes(60_000))), 9)
        assert put(client, {"user": None}, {FETCH: 30_000}) == (0, None)
        request = fetch_request(topic, 1)
        request.session_id, request.session_epoch = first.session_id, 1
        assert (
            sum(len(p.records) for t in client.request(request, 11).responses for p in t.partitions) > 60_000
        )
        client.request(produce_request(topic, batch(bytes(60_000))), 9)
        request = fetch_request(topic, 2)
        request.session_id, request.session_epoch = first.session_id, 2
        held_up = client.request(request, 11)
        assert (held_up.session_id, held_up.responses) == (first.session_id, [])
        assert held_up.throttle_time_ms > 0
        assert put(client, {"user": None}, {FETCH: None}) == (0, None)
        rest = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=first.session_id,
            session_epoch=3,
            topics=[],
        )
        answer = client.request(rest, 11)
        assert sum(len(p.records) for t in answer.responses for p in t.partitions) > 60_000


def test_a_client_that_takes_too_much_of_the_loops_time_waits(quick):
    with RawClient(quick.port, client_id="busy") as client:
        assert put(client, {"client-id": "busy"}, {TIME: 1}) == (0, None)
        began, requests, told = time.monotonic(), 0, 0
        while time.monotonic() - began < 3:
            told += client.request(MetadataRequest(topics=None), 12).throttle_time_ms
            requests += 1
        assert told > 0
        figures = quick_metrics(quick, "kafka_server_request_request_time")
        assert figures['{client_id="busy",user=""}'] < 5, "a hundredth of the time was asked for"


def quick_metrics(broker: EmbeddedBroker, name: str) -> dict[str, float]:
    from urllib.request import urlopen

    text = urlopen(broker.metrics_url).read().decode()
    found = {}
    for labels, value in re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE):
        found["{" + ",".join(sorted(labels.strip("{}").split(","))) + "}"] = float(value)
    return found


def create(name, partitions):
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def test_new_clients_are_refused_changes_beyond_their_quota_and_old_ones_wait(quick):
    with RawClient(quick.port) as strict, RawClient(quick.port) as old:
        first, second, third = new_name(), new_name(), new_name()
        assert put(strict, {"user": None}, {MUTATION: 5}) == (0, None)
        (made,) = strict.request(create(first, 12), 6).topics
        assert made.error_code == E.NONE, "who has no debt gets any number"
        answer = strict.request(create(second, 1), 6)
        (refused,) = answer.topics
        assert (refused.error_code, refused.error_message) == (
            E.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.",
        )  # fmt: skip
        assert 0 < answer.throttle_time_ms <= 1400
        growth = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=first, count=13, assignments=None)], timeout_ms=1000
        )
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=first)], timeout_ms=1000)
        answer, _ = timed(old, create(third, 10), 5)
        assert answer.topics[0].error_code == E.NONE, "an old client does not know the error"
        assert answer.throttle_time_ms > 0
        with RawClient(quick.port) as another:
            assert another.request(gone, 6).responses[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
        grown = strict.request(growth, 3)
        assert grown.results[0].error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert strict.request(gone, 6).responses[0].error_code == E.NONE, (
            "its connection has waited until the debt was paid"
        )


def test_topics_that_are_made_by_asking_for_them_count_too(quick):
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=new_name()) for _ in range(20)])
    with RawClient(quick.port) as client, RawClient(quick.port) as other:
        assert put(client, {"user": None}, {MUTATION: 2}) == (0, None)
        answer, _ = timed(client, asked, 12)
        codes = [topic.error_code for topic in answer.topics]
        made = codes.count(E.NONE)
        assert 1 <= made <= 4, "with the rate of a second, and who has no debt gets one more"
        assert set(codes[made:]) == {E.LEADER_NOT_AVAILABLE}, "clients ask again"
        assert answer.throttle_time_ms == 0, "as at Kafka's broker: it only makes no more topics"
        assert put(other, {"user": None}, {MUTATION: None}) == (0, None)
        assert {topic.error_code for topic in client.request(asked, 12).topics} == {E.NONE}


def test_an_address_that_connects_too_fast_is_slowed_down(quick):
    with RawClient(quick.port) as client:
        assert put(client, {"ip": "127.0.0.1"}, {CONNECTION: 3}) == (0, None)
        refused = 0
        for _ in range(10):
            with RawClient(quick.port) as new:
                try:
                    new.request(ASK, 12)
                except OSError:
                    refused += 1
        assert refused > 0
        assert put(client, {"ip": "127.0.0.1"}, {CONNECTION: None}) == (0, None)
        with RawClient(quick.port) as new:
            new.request(ASK, 12)


def test_a_host_is_looked_up(quick):
    with RawClient(quick.port) as client:
        assert put(client, {"ip": "localhost"}, {CONNECTION: 10_000}) == (0, None)
        assert put(client, {"ip": "no.such.host.invalid"}, {CONNECTION: 1})[0] == E.INVALID_REQUEST
        assert kept(client) == {(("ip", "localhost"),): {CONNECTION: 10_000}}


def test_connections_that_come_too_fast_for_the_broker_wait(tmp_path):
    config = {"quota.window.num": "2", "max.connection.creation.rate": "4"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        began = time.monotonic()
        for _ in range(14):
            with RawClient(broker.port) as client:
                client.request(ASK, 12)
        assert time.monotonic() - began >= 0.8, (
            "14 connections at 4 a second, of which a window may come at once"
        )


def test_quotas_survive_a_kill(tmp_path):
    entities = ({"user": "ann"}, {"user": None, "client-id": "app"}, {"client-id": None}, {"ip": "::1"})
    with EmbeddedBroker(tmp_path / "data") as broker:
        with RawClient(broker.port) as client:
            for n, entity in enumerate(entities):
                key = CONNECTION if "ip" in entity else PRODUCE
                assert put(client, entity, {key: 1e6 + n}) == (0, None)
            before = kept(client)
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            assert kept(client) == before
            assert len(before) == 4
    assert (tmp_path / "data/klamm-quotas.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["[", '{"version": 2}', '{"version": 1, "quotas": [{"entity": 5}]}'])
def test_a_damaged_file_is_named(tmp_path: Path, text):
    data = tmp_path / "data"
    with EmbeddedBroker(data):
        pass
    (data / "klamm-quotas.json").write_text(text)
    with pytest.raises(BrokerFailed, match=r"klamm-quotas\.json"), EmbeddedBroker(data):
        pass


def test_librdkafka_keeps_to_a_quota_and_the_metrics_tell_it(quick):
    topic, bound = new_topic(quick), 1_000_000
    with RawClient(quick.port) as client:
        assert put(client, {"client-id": "rd"}, {PRODUCE: bound}) == (0, None)
    producer = Producer(
        {"bootstrap.servers": quick.bootstrap, "client.id": "rd", "batch.size": 100_000, "linger.ms": 5}
    )
    began = time.monotonic()
    for n in range(6000):
        producer.produce(topic, bytes(1000))
        if n % 500 == 0:
            producer.poll(0.01)
    wait_until(lambda: quick_metrics(quick, "kafka_server_produce_throttle_time"), "somebody waits")
    producer.flush(60)
    took = time.monotonic() - began
    assert took >= 6 * 0.95 - 2, (
        "six million bytes, of which one window's may come at once and one is not over"
    )
    figures = quick_metrics(quick, "kafka_server_produce_byte_rate")
    assert set(figures) == {'{client_id="rd",user=""}'}
    assert quick_metrics(quick, "kafka_server_produce_queue_size").keys() == {"{}"}
