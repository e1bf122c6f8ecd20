from __future__ import annotations

import confluent_kafka
import pytest

from klamm_base.clientconfig import translate
from klamm_base.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

# kind, Java's properties, librdkafka's
CASES = [
    ("producer", {"acks": "all"}, {"acks": "all", "partitioner": "murmur2_random"}),
    ("producer", {"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
    ("producer", {"delivery.timeout.ms": "1000"}, {"message.timeout.ms": "1000"}),
    ("producer", {"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
    ("producer", {"request.timeout.ms": "5"}, {"request.timeout.ms": "5"}),
    ("consumer", {"request.timeout.ms": "50"}, {"socket.timeout.ms": "50"}),
    ("consumer", {"fetch.max.wait.ms": "5"}, {"fetch.wait.max.ms": "5"}),
    (
        "consumer",
        {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
        {"partition.assignment.strategy": "range"},
    ),
    (
        "admin",
        {"sasl.jaas.config": f'{PLAIN} username="ann" password="a\\"b;c";'},
        {"sasl.username": "ann", "sasl.password": 'a"b;c'},
    ),
    ("admin", {"ssl.truststore.location": "/etc/ca.pem"}, {"ssl.ca.location": "/etc/ca.pem"}),
    ("admin", {"ssl.keystore.location": "/k.p12"}, {"ssl.keystore.location": "/k.p12"}),
    (
        "admin",
        {"ssl.keystore.location": "/k.pem"},
        {"ssl.key.location": "/k.pem", "ssl.certificate.location": "/k.pem"},
    ),
    (
        "admin",
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
    ),
    ("producer", {"batch.size": "0"}, {"batch.num.messages": "1"}),
    (
        "producer",
        {"compression.type": "zstd", "compression.zstd.level": "9"},
        {"compression.type": "zstd", "compression.level": "9"},
    ),
    ("consumer", {"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
    ("consumer", {}, {"isolation.level": "read_uncommitted"}),
    ("consumer", {"isolation.level": "read_committed"}, {"isolation.level": "read_committed"}),
    ("consumer", {"queued.min.messages": "7"}, {"queued.min.messages": "7"}),
]


@pytest.mark.parametrize(("kind", "java", "rdkafka"), CASES)
def test_names_and_values(kind, java, rdkafka):
    result = translate(java, kind)
    assert rdkafka.items() <= result.config.items()
    assert result.ignored == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("producer", "key.serializer"),
        ("consumer", "max.poll.records"),
        ("consumer", "acks"),
        ("admin", "group.id"),
        ("producer", "compression.gzip.level"),
        ("consumer", "compression.gzip.level"),
        ("producer", "metadata.max.idle.ms"),
    ],
)
def test_what_has_no_effect_is_named_with_a_reason(kind, name):
    result = translate({name: "x"}, kind)
    assert [n for n, _why in result.ignored] == [name]
    assert name not in result.config


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"ssl.truststore.location": "/etc/ca.jks"}, "reads PEM files"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "Krb5LoginModule"),
        ({"sasl.jaas.config": f'{PLAIN} username="ann";'}, "has no password"),
        ({"buffer.memory": "much"}, "buffer.memory"),
        ({"ssl.keystore.type": "JKS"}, "use PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "convert it with keytool"),
    ],
)
def test_what_cannot_work_is_refused(props, said):
    with pytest.raises(ConfigError, match=said):
        translate(props, "producer")


def test_a_secret_is_not_in_the_error():
    with pytest.raises(ConfigError) as e:
        translate({"sasl.jaas.config": f'{PLAIN} password="s3cret";'}, "producer")
    assert "s3cret" not in str(e.value)


def test_a_consumers_settings_are_taken_by_librdkafka():
    java = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "auto.offset.reset": "none",
        "fetch.max.wait.ms": "100",
        "max.poll.records": "10",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    }
    consumer = confluent_kafka.Consumer(translate(java, "consumer").config | {"log_level": 0})
    consumer.close()


def test_a_duration_to_begin_at_is_refused():
    with pytest.raises(ConfigError, match="use earliest, latest or none"):
        translate({"auto.offset.reset": "by_duration:PT1H"}, "consumer")


@pytest.mark.parametrize(("kind", "client"), [("producer", confluent_kafka.Producer)])
def test_librdkafka_takes_what_comes_out(kind, client):
    java = {
        "compression.lz4.level": "3",
        "metadata.max.idle.ms": "300000",
        "bootstrap.servers": "127.0.0.1:1",
        "linger.ms": "5",
        "batch.size": "131072",
        "compression.type": "lz4",
        "enable.idempotence": "true",
        "buffer.memory": "67108864",
        "max.block.ms": "60000",
        "request.timeout.ms": "30000",
        "retry.backoff.max.ms": "1000",
        "metadata.max.age.ms": "60000",
    }
    client(translate(java, kind).config | {"log_level": 0})
