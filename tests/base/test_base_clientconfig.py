from __future__ import annotations

import logging
from pathlib import Path

import confluent_kafka
import pytest
from support.secure_kafka import KEY_PASSWORD, STORE_PASSWORD, STORES, key

from klamm_base.clientconfig import refusal, translate, warn_once
from klamm_base.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
SSL = {"security.protocol": "SSL"}
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="c" clientSecret="x" extension_tenant="t";',
}
CA, JKS, PEM = (str(STORES / name) for name in ("ca.pem", "trust.jks", "client.pem"))

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
    ("producer", {"linger.ms": " 5 "}, {"linger.ms": "5"}),
    ("consumer", {"max.poll.interval.ms": "500"}, {"max.poll.interval.ms": "500"}),
    ("consumer", {"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
    (
        "admin",
        {**SASL, "sasl.jaas.config": f'{PLAIN} username="ann" password="a\\"b;c";'},
        {"sasl.username": "ann", "sasl.password": 'a"b;c', "sasl.mechanism": "PLAIN"},
    ),
    (
        "admin",
        {**SASL, "sasl.username": "ann", "sasl.password": "x"},
        {"sasl.username": "ann", "sasl.password": "x"},
    ),
    ("admin", {**SSL, "ssl.truststore.location": CA}, {"ssl.ca.location": CA}),
    ("admin", {"ssl.truststore.location": "/not/there"}, {}),
    (
        "admin",
        {**SSL, "ssl.truststore.location": JKS, "ssl.truststore.password": STORE_PASSWORD},
        {"ssl.ca.pem": Path(CA).read_text()},
    ),
    (
        "admin",
        {**SSL, "ssl.truststore.certificates": Path(CA).read_text()},
        {"ssl.ca.pem": Path(CA).read_text()},
    ),
    (
        "admin",
        {**SSL, **key("client", "pem")},
        {"ssl.key.location": PEM, "ssl.certificate.location": PEM},
    ),
    ("admin", {**SSL, **key("client", "encrypted")}, {"ssl.key.password": KEY_PASSWORD}),
    ("admin", {**SSL, "ssl.ca.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
    (
        "admin",
        {**SSL, "ssl.endpoint.identification.algorithm": ""},
        {"ssl.endpoint.identification.algorithm": "none"},
    ),
    (
        "admin",
        {**SSL, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
        {"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"},
    ),
    (
        "admin",
        {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://tokens/", "sasl.oauthbearer.scope": "s"},
        {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "c",
            "sasl.oauthbearer.client.secret": "x",
            "sasl.oauthbearer.scope": "s",
            "sasl.oauthbearer.extensions": "tenant=t",
        },
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
        ("producer", "ssl.protocol"),
        ("producer", "sasl.login.class"),
        ("producer", "confluent.monitoring.interceptor.topic"),
    ],
)
def test_what_has_no_effect_is_named_with_a_reason(kind, name):
    result = translate({name: "x"}, kind, lenient=True)
    assert [n for n, _why in result.ignored] == [name]
    assert name not in result.config


@pytest.mark.parametrize(
    ("props", "said"),
    [
        (
            {**SSL, "ssl.truststore.location": "/not/there"},
            "ssl.truststore.location=/not/there: cannot be read",
        ),
        (
            {**SSL, "ssl.truststore.location": JKS, "ssl.truststore.password": "no"},
            "the password of the store is wrong",
        ),
        ({**SSL, "ssl.keystore.location": CA}, "has 0 private keys"),
        (
            {**SASL, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "Krb5LoginModule",
        ),
        ({**SASL, "sasl.jaas.config": f'{PLAIN} username="ann";'}, "has no password"),
        (
            {**SASL, "sasl.jaas.config": f'{PLAIN} username="ann" password="x"'},
            "does not end with a semicolon",
        ),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI .the default. cannot be used"),
        ({"security.protocol": "TLS"}, "use one of PLAINTEXT, SSL"),
        ({"buffer.memory": "much"}, "buffer.memory"),
    ],
)
def test_what_cannot_work_is_refused(props, said):
    with pytest.raises(ConfigError, match=said):
        translate(props, "producer")


def test_a_secret_is_not_in_the_error():
    with pytest.raises(ConfigError) as e:
        translate({**SASL, "sasl.jaas.config": f'{PLAIN} password="s3cret";'}, "producer")
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
    config = translate(java, "consumer").config
    assert config["partition.assignment.strategy"] == "cooperative-sticky"
    consumer = confluent_kafka.Consumer(
        config | {"log_level": 0}
    )  # raises for a setting that it does not take
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
    client(translate(java, kind).config | {"log_level": 0})  # raises for a setting that it does not take


def test_a_number_that_librdkafka_does_not_take_becomes_the_nearest_and_is_told():
    result = translate({"max.poll.interval.ms": str(2**31 - 1)}, "consumer")
    assert result.config["max.poll.interval.ms"] == "86400000"
    assert result.ignored == [("max.poll.interval.ms", "librdkafka takes 1 to 86400000; 86400000 is used")]


def test_a_warning_comes_once(caplog):
    ignored = translate({"interceptor.classes": "x"}, "producer").ignored
    with caplog.at_level(logging.WARNING):
        warn_once(ignored, prefix="test-only.")
        warn_once(ignored, prefix="test-only.")
    assert [r.message for r in caplog.records] == [
        "test-only.interceptor.classes has no effect: Java classes cannot run here"
    ]


@pytest.mark.parametrize("store", ["jks", "p12"])
def test_librdkafka_takes_the_keys_of_javas_stores(store):
    props = {**SSL, "ssl.truststore.location": CA, **key("client", store)}
    config = translate(props, "producer").config
    assert config["ssl.certificate.pem"].count("BEGIN CERTIFICATE") == 3
    confluent_kafka.Producer(config | {"log_level": 0})


def test_a_name_that_nobody_knows_is_left_for_librdkafka_to_refuse_unless_java_would_only_warn():
    strict = translate({"no.such": "x"}, "producer")
    assert strict.config["no.such"] == "x"
    lenient = translate({"no.such": "x", "queued.min.messages": "7"}, "consumer", lenient=True)
    assert lenient.ignored == [("no.such", "neither Java's clients nor librdkafka know it")]
    assert lenient.config["queued.min.messages"] == "7"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"linger.ms": "soon"}, ("linger.ms", 'property "linger.ms" (queue.buffering.max.ms)')),
        ({"acks": "some"}, ("acks", 'property "acks" (request.required.acks)')),
        (
            {"auto.offset.reset": "m"},
            ("auto.offset.reset", 'Invalid value "m" for configuration property "auto.offset'),
        ),
        ({"linger.ms": "5", "acks": "all"}, None),
    ],
)
def test_what_librdkafka_refuses_is_told_by_javas_names(settings, said):
    found = refusal(settings)
    if said is None:
        assert found is None
    else:
        assert found[0] == said[0]
        assert said[1] in found[1]
