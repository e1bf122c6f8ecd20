"""GET /metrics of a real broker, read by Prometheus' own parser and compared with what clients did."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import time
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.broker import new_name, new_topic, wait_until
from support.share_client import Reader

from klamm.testing import EmbeddedBroker
from klamm.testing.broker import BrokerFailed
from klamm_base.metrics_text import Family, Sample, lines
from klamm_broker.server.metrics import LATENCY_BUCKETS_S, Histogram, TopicMetrics, api_name
from klamm_kafka.wire.api_keys import ApiKey
from klamm_kafka.wire.errors import ErrorCode


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with EmbeddedBroker(
        tmp_path_factory.mktemp("broker") / "data",
        config={
            "klamm.metrics.port": "0",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.assignment.interval.ms": "0",
        },
    ) as running:
        yield running


def get(broker, path="/metrics", method="GET"):
    url = urlsplit(broker.metrics_url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.headers, response.read().decode()


def scrape(broker):
    """Samples as {(name, frozenset of labels): value}."""
    status, headers, text = get(broker)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, f"{key} twice"
            samples[key] = sample.value
    return samples


def value(samples, name, **labels):
    return samples[name, frozenset((k, str(v)) for k, v in labels.items())]


def test_share_groups_are_counted(broker):
    group, topic = new_name("share"), new_topic(broker)
    before = scrape(broker)
    with Reader(broker, group, topic, lock_ms=15_000) as reader:
        reader.join().produce(b"a", b"b", b"c", b"d")
        assert reader.fetch()[0] == [(0, 3, 1)]
        assert reader.acknowledge((1, 1, [1]), (2, 3, [2, 1])) is ErrorCode.NONE
        now = scrape(broker)
        for kind, count in (("Accept", 2), ("Release", 1), ("Reject", 0), ("Renew", 0)):
            name = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
            assert value(now, name, acktype=kind) - value(before, name, acktype=kind) == count
        at = {"group": group, "topic": topic, "partition": 0}
        assert value(now, "kafka_server_sharepartitionmetrics_inflightmessagecount", **at) == 4
        assert value(now, "kafka_server_sharepartitionmetrics_inflightbatchcount", **at) == 1
        assert value(now, "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", **at) == 0
        assert value(now, "kafka_server_sharesessioncache_sharesessionscount") == 1
        assert value(now, "kafka_server_group_coordinator_metrics_share_group_count", state="Stable") == 1
        assert value(now, "klamm_group_epoch", group=group, protocol="share") >= 2


def test_ended_locks_are_counted(broker):
    name, group, topic = (
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        new_name("share"),
        new_topic(broker),
    )
    with Reader(broker, group, topic, lock_ms=1_000) as reader:
        reader.join().produce(b"a", b"b")
        assert reader.fetch()[0] == [(0, 1, 1)]
        wait_until(
            lambda: value(scrape(broker), name, group=group, topic=topic, partition=0) == 2, "ended locks"
        )


def produce(broker, topic, count, *, partition=0):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for i in range(count):
        producer.produce(topic, f"record {i}".encode(), partition=partition)
    assert producer.flush(60) == 0


def test_topics_are_counted_as_clients_used_them(broker):
    topic, group = new_topic(broker, 2), new_name("group")
    produce(broker, topic, 100, partition=1)
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 1, 0)])
    got = consumer.consume(60, timeout=60)
    consumer.commit(offsets=[TopicPartition(topic, 1, 40)], asynchronous=False)
    samples = scrape(broker)
    consumer.close()
    prefix = "kafka_server_brokertopicmetrics"
    assert len(got) == 60
    assert value(samples, f"{prefix}_messagesin_total", topic=topic) == 100
    assert value(samples, f"{prefix}_bytesin_total", topic=topic) >= 100 * len("record 0")
    assert value(samples, f"{prefix}_bytesout_total", topic=topic) == value(
        samples, f"{prefix}_bytesin_total", topic=topic
    )
    assert value(samples, f"{prefix}_totalproducerequests_total", topic=topic) >= 1
    assert value(samples, f"{prefix}_failedproducerequests_total", topic=topic) == 0
    assert value(samples, f"{prefix}_messagesin_total") >= 100
    assert value(samples, "kafka_log_log_size", topic=topic, partition=1) == value(
        samples, f"{prefix}_bytesin_total", topic=topic
    )
    assert value(samples, "kafka_topic_partitions", topic=topic) == 2
    assert value(samples, "kafka_topic_partition_current_offset", topic=topic, partition=1) == 100
    assert value(samples, "kafka_topic_partition_oldest_offset", topic=topic, partition=1) == 0
    assert value(samples, "kafka_topic_partition_leader", topic=topic, partition=1) == 1
    assert (
        value(samples, "kafka_consumergroup_current_offset", consumergroup=group, topic=topic, partition=1)
        == 40
    )
    assert value(samples, "kafka_consumergroup_lag", consumergroup=group, topic=topic, partition=1) == 60
    assert value(samples, "kafka_consumergroup_lag_sum", consumergroup=group, topic=topic) == 60


def test_failures_and_deleted_topics(broker):
    from confluent_kafka.admin import AdminClient

    topic = new_topic(broker, config={"max.message.bytes": "200"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    producer.produce(topic, b"x" * 1000)
    producer.produce(topic, b"fits", partition=0)
    producer.flush(60)
    before = scrape(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    after = scrape(broker)
    name = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    assert value(before, name, topic=topic) >= 1
    assert (name, frozenset({("topic", topic)})) not in after
    assert value(after, name) >= value(before, name, topic=topic)  # a counter never goes back


def test_requests_have_counts_and_latencies(broker):
    topic = new_topic(broker)
    produce(broker, topic, 5)
    before = scrape(broker)
    for _ in range(20):
        produce(broker, topic, 1)
    after = scrape(broker)

    def count(samples):
        return sum(
            v for (name, labels), v in samples.items()
            if name == "kafka_network_requestmetrics_requests_total" and ("request", "Produce") in labels
        )  # fmt: skip

    assert count(after) - count(before) == 20
    name = "klamm_request_duration_seconds"
    grown = value(after, f"{name}_count", request="Produce") - value(
        before, f"{name}_count", request="Produce"
    )
    assert grown == 20
    buckets = [
        value(after, f"{name}_bucket", request="Produce", le=le)
        for le in [f"{b:g}" for b in LATENCY_BUCKETS_S]
    ]
    assert buckets == sorted(buckets)
    times = "kafka_network_requestmetrics_totaltimems"
    total = value(after, f"{times}_sum", request="Produce")
    assert total == pytest.approx(1000 * value(after, f"{name}_sum", request="Produce"))
    assert 0 < value(after, times, request="Produce", quantile="0.5") <= total
    assert value(after, times, request="Produce", quantile="0.99") > 0
    assert value(after, "kafka_network_requestmetrics_requests_total", request="ApiVersions", version=3) > 0


def test_transactions_sessions_and_the_cleaner_are_there(broker):
    topic = new_topic(broker, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(60)
    during = scrape(broker)
    producer.commit_transaction(60)
    after = scrape(broker)
    assert value(during, "klamm_transactions", state="Ongoing") == 1
    assert value(after, "klamm_transactions", state="Ongoing") == 0
    name = "klamm_transaction_markers_written_total"
    assert value(after, name) == value(during, name) + 1
    assert value(after, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 0
    assert value(after, "kafka_server_fetchsessioncache_numincrementalfetchsessions") >= 0


def test_long_polls_count_with_their_wait(broker):
    topic = new_topic(broker)
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": new_name("group"), "fetch.wait.max.ms": 300,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    name = "kafka_network_requestmetrics_totaltimems"

    def waited() -> float:
        consumer.consume(1, timeout=0.1)
        return scrape(broker).get((f"{name}_sum", frozenset({("request", "FetchConsumer")})), 0)

    before = waited()
    wait_until(lambda: waited() - before > 290, "the wait of a long poll")
    consumer.close()
    assert value(scrape(broker), f"{name}_count", request="Fetch") >= 1


def test_the_process_and_its_connections(broker):
    name = "kafka_server_socket_server_metrics_connection_count"
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
        wait_until(lambda: value(scrape(broker), name, listener="PLAINTEXT") >= 20, "all to be counted")
        during = scrape(broker)
    assert value(during, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert abs(value(during, "process_start_time_seconds") - time.time()) < 600
    assert 0 <= value(during, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent") <= 1
    assert value(during, "kafka_brokers") == 1
    assert value(during, "process_cpu_seconds_total") > 0


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/metrics", "HEAD", 200), ("/metrics?x=1", "GET", 200), ("/", "GET", 404), ("/metrics", "POST", 405)],
)
def test_other_requests(broker, path, method, status):
    assert get(broker, path, method)[0] == status


def test_garbage_and_silence_on_the_port_harm_nobody(broker):
    url = urlsplit(broker.metrics_url)
    silent = socket.create_connection((url.hostname, url.port))
    with socket.create_connection((url.hostname, url.port)) as s:
        s.settimeout(60)
        with contextlib.suppress(ConnectionError):  # the peer may close in either way, and at any time
            s.sendall(b"\x00" * 100_000)
            while s.recv(4096):
                pass
    assert get(broker)[0] == 200
    silent.close()


def test_a_taken_port_stops_the_start(tmp_path, broker):
    port = urlsplit(broker.metrics_url).port
    with pytest.raises(BrokerFailed, match=f"klamm.metrics.port={port}: cannot listen on localhost"):
        EmbeddedBroker(tmp_path / "data", config={"klamm.metrics.port": str(port)}).start()


@pytest.mark.usefixtures("processes")
def test_without_the_property_there_is_no_port(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as running:
        assert running.metrics_url is None


@given(st.lists(st.floats(0, 20), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_the_true_one(seconds, q):
    histogram = Histogram()
    for s in seconds:
        histogram.observe(s)
    true = sorted(seconds)[math.ceil(q * len(seconds) - 1e-9) - 1]
    bounds = [*LATENCY_BUCKETS_S, max(histogram.maximum, LATENCY_BUCKETS_S[-1])]
    upper = next(b for b in bounds if true <= b)
    lower = max((b for b in bounds if b < true), default=0.0)
    assert lower <= histogram.quantile(q) <= upper
    assert histogram.count == len(seconds)


def test_an_empty_histogram():
    assert Histogram().quantile(0.99) == 0.0


@given(st.text(), st.integers() | st.floats(allow_nan=False))
def test_text_goes_through_prometheus_parser(label, number):
    text = "".join(lines([Family("x_total", "counter", f"help {label}", [Sample({"l": label}, number)])]))
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.labels == {"l": label}
    assert sample.value == number


def test_every_api_has_a_name():
    assert api_name(ApiKey.FIND_COORDINATOR) == "FindCoordinator"
    assert len({api_name(key) for key in ApiKey}) == len(ApiKey)


def test_totals_of_topics_add_up():
    one, two = TopicMetrics(), TopicMetrics()
    one.messages_in, one.bytes_in = 3, 100
    two.note_fetch(0, 50)
    two.note_fetch(3, 0)
    one.add(two)
    assert (one.messages_in, one.bytes_in, one.bytes_out, one.fetches, one.failed_fetches) == (
        3,
        100,
        50,
        2,
        1,
    )
