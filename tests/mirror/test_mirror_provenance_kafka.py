"""Both ways between Apache Kafka and our broker under one name: what brokers do to batches loses no origin."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.broker import new_name, wait_until
from support.circles import REST_S, Circle, end, topic_at, write
from support.kafka_broker import KafkaBroker
from support.mirroring import produce, read

from klamm.testing import EmbeddedBroker
from klamm_mirror.settings.policy import PROVENANCE_TOPIC

pytestmark = pytest.mark.usefixtures("apache_kafka")
BOTH = ["AB", "BA"]
CLEANER = {"log.cleaner.backoff.ms": "200"}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A is Apache's, where everybody may do what no ACL forbids; B is ours."""
    with (
        KafkaBroker(tmp_path_factory.mktemp("kafka"), CLEANER | AUTHORIZED) as kafka,
        EmbeddedBroker(tmp_path_factory.mktemp("klamm") / "data", config=CLEANER) as klamm,
    ):
        yield {"A": kafka.address, "B": klamm.bootstrap}


def test_recompressed_batches_keep_their_origin(clusters):
    topic = topic_at(clusters, **{"compression.type": "zstd"})
    sent = {
        alias: [
            value
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
            for value in write(servers, topic, f"{alias}-{codec}-", 200, **{"compression.type": codec})
        ]
        for alias, servers in clusters.items()
    }
    with Circle(clusters, BOTH, topic) as circle:
        circle.settle()
        for alias in clusters:
            assert sorted(circle.values(alias)) == sorted(sent["A"] + sent["B"])


def test_transactions_keep_their_origin(clusters):
    topic, committed = topic_at(clusters), []
    with Circle(clusters, BOTH, topic, source__consumer__isolation__level="read_committed") as circle:
        for alias, servers in clusters.items():
            producer = Producer(
                {"bootstrap.servers": servers, "transactional.id": new_name(), "linger.ms": 0}
            )
            producer.init_transactions(60)
            for i in range(8):
                producer.begin_transaction()
                values = [f"{alias}-{i}-{n}".encode() for n in range(20)]
                for value in values:
                    producer.produce(topic, value)
                producer.flush(60)
                if i % 4 == 1:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    committed += values
        # An aborted record is not copied; its own cluster still shows it to a reader of uncommitted records.
        aborted = 2 * 20
        markers = 8
        wait_until(
            lambda: all(len(circle.values(a)) == len(committed) + aborted for a in clusters), "all there"
        )
        circle.settle()
        for alias, servers in clusters.items():
            values = circle.values(alias)
            assert len(values) == len(set(values)) == len(committed) + aborted
            assert end(servers, topic) == len(committed) + aborted + markers


@pytest.mark.usefixtures("soak")
@pytest.mark.timeout(180 + 2 * REST_S)
def test_100_records_of_each_cluster_stay_200(clusters):
    """KLAMM_REST_SECONDS says for how long (60)."""
    topic = topic_at(clusters, **{"retention.ms": "-1"})  # the records are old
    sent = [value for alias, servers in clusters.items() for value in write(servers, topic, alias, 100)]
    with Circle(clusters, BOTH, topic) as circle:
        circle.settle()
        circle.rest(REST_S)
        for alias in clusters:
            assert sorted(circle.values(alias)) == sorted(sent)


@pytest.mark.parametrize("first", ["A", "B"])
def test_compacted_copies_keep_their_origin(clusters, first):
    """Records of `first` are copied, their copies are compacted, and then the flow back reads these."""
    other = "AB".replace(first, "")
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    topic, sent = topic_at(clusters, **config, **{"max.compaction.lag.ms": "1000"}), []
    for part in range(4):
        at = 1_700_000_000_000 + part * 10_000  # a segment ends by the time of its records
        rows = [(b"%d" % (i % 100), b"%d-%d" % (part, i), [], at + i) for i in range(500)]
        produce(clusters[first], topic, rows)
        sent += rows
    circle = Circle(clusters, [first + other], topic)
    with circle:
        circle.settle()
    deadline = time.monotonic() + 60
    while len(left := read(clusters[other], topic, None)) > 800:
        assert time.monotonic() < deadline, f"not compacted: {len(left)}"
    circle.flows = BOTH
    before = end(clusters[first], topic)
    with circle:
        circle.settle()
        assert circle.left_out(other + first, "of_target") > 0
    assert end(clusters[first], topic) == before
    latest = {row[0]: row[1] for row in sent}
    for servers in clusters.values():
        assert {row[0]: row[1] for row in read(servers, topic, None)} == latest


@pytest.mark.parametrize(
    ("flow", "operation", "said"),
    [
        ("BA", AclOperation.WRITE, "of the target cannot be written to.*mirror.provenance=false"),
        ("AB", AclOperation.READ, "of the source cannot be read.*Permit Describe and Read"),
    ],
)
def test_who_may_not_keep_marks_fails_and_says_so(clusters, flow, operation, said):
    topic = topic_at(clusters)
    with Circle(clusters, ["BA"], topic) as there:
        write(clusters["B"], topic, "before", 5)
        there.settle()
    admin = AdminClient({"bootstrap.servers": clusters["A"]})
    resource = (ResourceType.TOPIC, PROVENANCE_TOPIC, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    denied = AclBinding(*resource, operation, AclPermissionType.DENY)
    allowed = AclBinding(*resource, AclOperation.ALL, AclPermissionType.ALLOW)
    for made in admin.create_acls([denied, allowed]).values():
        made.result(60)
    try:
        with Circle(clusters, [flow], topic) as refused:
            write(clusters[flow[0]], topic, "after", 5)
            running = refused.running[flow]
            wait_until(lambda: bool(running.errors), "the task fails", timeout_s=60)
        with pytest.raises(Exception, match=said):
            raise running.errors[0]
    finally:
        found = AclBindingFilter(*resource, AclOperation.ANY, AclPermissionType.ANY)
        for gone in admin.delete_acls([found]).values():
            gone.result(60)
