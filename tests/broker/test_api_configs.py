"""Configurations of brokers, groups, client metrics and loggers: changed, described, listed, kept, and in force."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from support.broker import wait_until
from support.raw import RawClient, batch, produce_request

from klamm.testing import EmbeddedBroker
from klamm_broker.api.topic_configs import ResourceType, Source, topic_entries
from klamm_broker.server import loggers
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.consumer_groups import consumer_config, share_config
from klamm_broker.server.streams_groups import streams_config
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages import alter_configs as legacy
from klamm_kafka.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = ResourceType
SET, DELETE, APPEND, SUBTRACT = range(4)
E = ErrorCode


@pytest.fixture
def client(processes, tmp_path):
    with EmbeddedBroker(tmp_path / "data") as running, RawClient(running.port) as connected:
        yield connected


def change(client, kind, name, *changes, only=False):
    """Changes one resource; returns (error, sentence)."""
    configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
    (answer,) = client.request(request, 1).responses
    return E(answer.error_code), answer.error_message


def replace(client, kind, name, configs, *, only=False):
    made = [legacy.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=made)
    (answer,) = client.request(
        legacy.AlterConfigsRequest(resources=[resource], validate_only=only), 2
    ).responses
    return E(answer.error_code), answer.error_message


def describe(client, kind, name, *keys):
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (answer,) = client.request(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results
    assert answer.error_code == 0, answer.error_message
    return {c.name: c for c in answer.configs}


def create(client, name):
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert client.request(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def where_from(entry):
    return [(s.name, s.value, Source(s.source).name) for s in entry.synonyms]


def test_a_brokers_default_is_changed_while_it_runs(client):
    create(client, "small")
    big = produce_request("small", batch(b"x" * 5000))

    def error():
        return client.request(big, 9).responses[0].partition_responses[0].error_code

    assert error() == 0
    assert change(client, BROKER, "1", ("message.max.bytes", SET, "1000"))[0] == 0
    assert error() == E.MESSAGE_TOO_LARGE
    assert change(client, TOPIC, "small", ("max.message.bytes", SET, "9000"))[0] == 0
    assert error() == 0, "what a topic says itself goes first"
    entry = describe(client, TOPIC, "small", "max.message.bytes")["max.message.bytes"]
    assert where_from(entry) == [
        ("max.message.bytes", "9000", "DYNAMIC_TOPIC_CONFIG"),
        ("message.max.bytes", "1000", "DYNAMIC_BROKER_CONFIG"),
        ("message.max.bytes", "1048588", "DEFAULT_CONFIG"),
    ]


def test_this_brokers_value_goes_before_that_of_all_brokers(client):
    name = "log.retention.ms"
    assert change(client, BROKER, "", (name, SET, "111"))[0] == 0
    assert change(client, BROKER, "1", (name, SET, "222"))[0] == 0
    entry = describe(client, BROKER, "1", name)[name]
    assert (entry.value, entry.read_only, entry.config_source) == ("222", False, Source.DYNAMIC_BROKER_CONFIG)
    assert where_from(entry)[:2] == [
        (name, "222", "DYNAMIC_BROKER_CONFIG"),
        (name, "111", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ]
    everywhere = describe(client, BROKER, "")
    assert {n: c.value for n, c in everywhere.items()} == {name: "111", "min.insync.replicas": "1"}
    assert change(client, BROKER, "1", (name, DELETE, None))[0] == 0
    assert describe(client, BROKER, "1", name)[name].value == "111"


@pytest.mark.usefixtures("processes")
def test_what_was_changed_is_there_after_a_restart(tmp_path):
    settings = {"log.retention.ms": "333", "log.segment.bytes": "2000000"}
    with EmbeddedBroker(tmp_path / "data", config=settings) as broker, RawClient(broker.port) as client:
        assert change(client, BROKER, "1", ("log.retention.ms", SET, "222"))[0] == 0
        assert change(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))[0] == 0
        create(client, "t")
    with EmbeddedBroker(tmp_path / "data", config=settings) as broker, RawClient(broker.port) as client:
        entry = describe(client, BROKER, "1", "log.retention.ms")["log.retention.ms"]
        assert where_from(entry)[:2] == [
            ("log.retention.ms", "222", "DYNAMIC_BROKER_CONFIG"),
            ("log.retention.ms", "333", "STATIC_BROKER_CONFIG"),
        ]
        of_topic = describe(client, TOPIC, "t", "retention.ms", "segment.bytes")
        assert of_topic["retention.ms"].value == "222"
        assert of_topic["segment.bytes"].value == "2000000"
        assert describe(client, GROUP, "g")["consumer.session.timeout.ms"].value == "50000"


def test_a_broker_property_in_another_unit_is_told_in_that_unit():
    given = {"log.retention.hours": "48", "log.roll.hours": "168", "log.retention.minutes": "30"}
    entries = {e.key.name: e for e in topic_entries(BrokerConfig.load(given), {})}
    told = {name: [(s.name, s.value, s.source.name) for s in e.synonyms] for name, e in entries.items()}
    assert (entries["retention.ms"].text, entries["segment.ms"].text) == ("1800000", "604800000")
    assert told["retention.ms"] == [
        ("log.retention.minutes", "30", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "48", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    assert told["segment.ms"] == [
        ("log.roll.hours", "168", "STATIC_BROKER_CONFIG"),
        ("log.roll.hours", "168", "DEFAULT_CONFIG"),
    ]


def test_the_settings_of_mirror_topics_are_read_only_so_that_mirrormaker_does_not_copy_them():
    own = {"klamm.mirror.state": "promoted", "klamm.mirror.promotion.epoch": "8", "retention.ms": "1"}
    told = [e for e in topic_entries(BrokerConfig.load({}), own) if e.source is Source.DYNAMIC_TOPIC_CONFIG]
    assert {e.key.name for e in told} == set(own)
    # Apache's MirrorSourceConnector takes what is neither a default nor read-only nor sensitive.
    assert [e.key.name for e in told if not e.read_only] == ["retention.ms"]


@pytest.mark.usefixtures("processes")
def test_a_stored_value_that_does_not_fit_any_more_does_not_stop_the_start(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert change(client, BROKER, "1", ("log.retention.ms", SET, "222"))[0] == 0
    path = tmp_path / "data" / "klamm-cluster.json"
    path.write_text(path.read_text().replace('"222"', '"soon"'))
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert describe(client, BROKER, "1", "log.retention.ms")["log.retention.ms"].value is None


REFUSED = [
    (BROKER, "1", ("node.id", SET, "5"), E.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
    (BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), E.INVALID_REQUEST, "listeners"),
    (BROKER, "1", ("num.io.threads", SET, "x"), E.INVALID_REQUEST, "Not a number of type INT"),
    (BROKER, "1", ("ssl.key.password", SET, "x"), E.INVALID_REQUEST, "can be dynamically updated only per-listener"),
    (BROKER, "", ("sasl.kerberos.service.name", SET, "x"), E.INVALID_REQUEST, "broker id must be specified"),
    (BROKER, "1", ("log.retention.mss", SET, "5"), E.INVALID_REQUEST, "Unknown config name: log.retention.mss"),
    (BROKER, "1", ("log.retention.ms", SET, "soon"), E.INVALID_REQUEST, "Not a number of type LONG"),
    (BROKER, "1", ("log.retention.ms", SET, None), E.INVALID_REQUEST, "Null value not supported"),
    (BROKER, "1", ("log.retention.ms", APPEND, "5"), E.INVALID_CONFIG, "log.retention.ms"),
    (BROKER, "1", ("log.retention.ms", 9, "5"), E.INVALID_REQUEST, "Unknown operations type 9"),
    (BROKER, "1", ("min.insync.replicas", SET, "2"), E.INVALID_CONFIG, "Broker-level min.insync.replicas"),
    (BROKER, "", ("min.insync.replicas", DELETE, None), E.INVALID_CONFIG, "cannot be removed while ELR"),
    (BROKER, "7", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST, "expected 1, but received 7"),
    (BROKER, "x", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST, "must be an integer"),
    (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), E.INVALID_REQUEST, "Default group resources"),
    (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), E.INVALID_CONFIG, "greater than or equal to group.consumer.min"),
    (GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "99999"), E.INVALID_CONFIG, "less than or equal to group.consumer.max"),
    (GROUP, "g", ("nope", SET, "1"), E.INVALID_CONFIG, "Unknown group config name: nope"),
    (METRICS, "", ("interval.ms", SET, "1000"), E.INVALID_REQUEST, "can't be empty"),
    (METRICS, "m", ("interval.ms", SET, "1"), E.INVALID_REQUEST, "between 100 and 3600000"),
    (METRICS, "m", ("match", SET, "client_id=["), E.INVALID_CONFIG, "Illegal client matching pattern"),
    (METRICS, "m", ("metrics", APPEND, "a"), E.INVALID_CONFIG, "its type is not LIST"),
    (METRICS, "m", ("nope", SET, "1"), E.INVALID_REQUEST, "Unknown client metrics configuration: nope"),
    (LOGGER, "1", ("no.such.logger", SET, "INFO"), E.INVALID_CONFIG, "does not exist"),
    (LOGGER, "1", ("root", SET, "LOUD"), E.INVALID_CONFIG, "not a supported log level"),
    (LOGGER, "1", ("root", APPEND, "INFO"), E.INVALID_REQUEST, "APPEND operation is not allowed"),
    (LOGGER, "1", ("root", DELETE, None), E.INVALID_REQUEST, "root"),
    (LOGGER, "", ("root", SET, "INFO"), E.INVALID_REQUEST, "must be an integer"),
    (99, "x", ("a", SET, "b"), E.INVALID_REQUEST, "Unknown resource type 99"),
]  # fmt: skip


def test_what_cannot_be_is_refused_with_a_sentence(client):
    for kind, name, asked, code, says in REFUSED:
        found, why = change(client, kind, name, asked)
        assert found is code, (kind, name, asked, why)
        assert says in (why or ""), (kind, name, asked, why)
    both = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert change(client, BROKER, "1", *both)[0] == E.INVALID_REQUEST


def test_what_tools_set_and_has_no_effect_is_kept_and_told(client):
    name = "sasl.kerberos.min.time.before.relogin"
    assert name not in describe(client, BROKER, "1")
    assert change(client, BROKER, "1", (name, SET, "58000"))[0] == 0
    entry = describe(client, BROKER, "1", name)[name]
    assert (entry.value, entry.read_only, entry.config_type) == ("58000", False, 5)
    assert change(client, BROKER, "", ("num.io.threads", SET, "9"))[0] == 0
    assert describe(client, BROKER, "")["num.io.threads"].value == "9"
    assert change(client, BROKER, "1", (name, DELETE, None))[0] == 0
    assert name not in describe(client, BROKER, "1")


def test_intervals_of_assignments_change_at_once(client):
    for kind in ("consumer", "share", "streams"):
        assert change(client, BROKER, "", (f"group.{kind}.assignment.interval.ms", SET, "77"))[0] == 0
        name = f"{kind}.assignment.interval.ms"
        assert describe(client, GROUP, "g", name)[name].value == "77"


def test_coordinators_read_the_intervals_anew(tmp_path):
    kinds, own = ("consumer", "share", "streams"), {}
    storage = SimpleNamespace(config=BrokerConfig.load({"log.dirs": str(tmp_path)}))
    cluster = SimpleNamespace(get=lambda kind, name: own)
    settings = [
        consumer_config(storage, cluster).settings,
        share_config(storage, cluster).settings,
        streams_config(lambda: storage.config, cluster).settings,
    ]
    changed = {f"group.{kind}.assignment.interval.ms": "88" for kind in kinds}
    storage.config = storage.config.with_dynamic(defaults=changed, own={})
    assert [of("g").assignment_interval_ms for of in settings] == [88] * 3
    own |= {f"{kind}.assignment.interval.ms": "99" for kind in kinds}
    assert [of("g").assignment_interval_ms for of in settings] == [99] * 3


def test_lists_are_appended_to_what_is_in_force(client):
    name = "log.cleanup.policy"
    assert change(client, BROKER, "1", (name, APPEND, "compact"))[0] == 0
    assert describe(client, BROKER, "1", name)[name].value == "delete,compact"
    assert change(client, BROKER, "1", (name, SUBTRACT, "delete"))[0] == 0
    assert describe(client, BROKER, "1", name)[name].value == "compact"


def test_only_validated_changes_are_not_made(client):
    assert change(client, BROKER, "1", ("log.retention.ms", SET, "5"), only=True)[0] == 0
    assert describe(client, BROKER, "1", "log.retention.ms")["log.retention.ms"].value is None
    assert replace(client, GROUP, "g", {"consumer.session.timeout.ms": "50000"}, only=True)[0] == 0
    assert describe(client, GROUP, "g")["consumer.session.timeout.ms"].value == "45000"


def test_the_older_request_replaces_everything(client):
    create(client, "t")
    assert replace(client, TOPIC, "t", {"retention.ms": "5", "segment.ms": "6"})[0] == 0
    assert replace(client, TOPIC, "t", {"retention.ms": "7"})[0] == 0
    found = describe(client, TOPIC, "t", "retention.ms", "segment.ms")
    assert {n: c.value for n, c in found.items()} == {"retention.ms": "7", "segment.ms": "604800000"}
    assert replace(client, TOPIC, "t", {"retention.ms": None})[0] == E.INVALID_REQUEST
    assert replace(client, TOPIC, "t", {"nope": "1"})[0] == E.INVALID_CONFIG
    assert replace(client, TOPIC, "unknown", {})[0] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(client, LOGGER, "1", {"root": "INFO"})[0] == E.INVALID_REQUEST
    assert replace(client, BROKER, "", {})[0] == E.INVALID_CONFIG, "it would remove min.insync.replicas"


def test_groups_and_subscriptions_are_described_with_what_they_inherit(client):
    found = describe(client, GROUP, "any")
    assert set(found) == {
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.assignment.interval.ms",
        "streams.session.timeout.ms",
        "streams.heartbeat.interval.ms",
        "streams.assignment.interval.ms",
        "streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms",
        "share.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.assignment.interval.ms",
        "share.record.lock.duration.ms",
        "share.delivery.count.limit",
        "share.partition.max.record.locks",
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
    }
    assert where_from(found["consumer.session.timeout.ms"]) == [
        ("group.consumer.session.timeout.ms", "45000", "DEFAULT_CONFIG")
    ]
    assert change(client, METRICS, "m", ("match", SET, "client_id=a.*"), ("metrics", SET, "*"))[0] == 0
    found = describe(client, METRICS, "m")
    assert {n: (c.value, c.config_source) for n, c in found.items()} == {
        "interval.ms": ("300000", Source.DEFAULT_CONFIG),
        "match": ("client_id=a.*", Source.CLIENT_METRICS_CONFIG),
        "metrics": ("*", Source.CLIENT_METRICS_CONFIG),
    }


def test_resources_with_configurations_are_listed(client):
    create(client, "t")
    change(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    change(client, METRICS, "m", ("interval.ms", SET, "1000"))

    def listed(version, *types):
        answer = client.request(ListConfigResourcesRequest(resource_types=list(types)), version)
        return answer.error_code or {(r.resource_name, r.resource_type) for r in answer.config_resources}

    assert listed(0) == {("m", METRICS)}
    assert listed(1) == {("g", GROUP), ("m", METRICS), ("1", BROKER), ("1", LOGGER), ("t", TOPIC)}
    assert listed(1, TOPIC) == {("t", TOPIC)}
    assert listed(1, TOPIC, 99) == E.UNSUPPORTED_VERSION
    change(client, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None))
    assert listed(1, GROUP) == set()


def test_levels_of_loggers_are_told_and_changed(client):
    name = "klamm_broker.server.broker"

    def level():
        entry = describe(client, LOGGER, "1")[name]
        assert entry.config_source == Source.DYNAMIC_BROKER_LOGGER_CONFIG
        return entry.value

    before = level()
    assert before == describe(client, LOGGER, "1")["root"].value, "it has none of its own"
    assert change(client, LOGGER, "1", (name, SET, "TRACE"))[0] == 0
    assert level() == "TRACE"
    assert change(client, LOGGER, "1", (name, SET, "FATAL"), ("nope", SET, "INFO"))[0] == E.INVALID_CONFIG
    assert level() == "TRACE", "all or none"
    assert change(client, LOGGER, "1", (name, DELETE, None))[0] == 0
    assert level() == before


def test_names_of_levels_are_kafkas():
    logger = logging.getLogger("klamm_broker.tests.levels")
    assert loggers.exists(logger.name)
    for text, number in loggers.LEVELS.items():
        loggers.set_level(logger.name, text)
        assert (logger.level, loggers.level(logger.name)) == (number, text)
    logger.setLevel(1)
    assert loggers.level(logger.name) == "TRACE"
    loggers.set_level(logger.name, None)
    assert logger.level == logging.NOTSET
    assert not loggers.exists("klamm_broker.no.such.logger")


def test_without_eligible_leader_replicas_min_insync_replicas_is_free(client):
    update = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
    assert client.request(UpdateFeaturesRequest(feature_updates=[update]), 2).error_code == 0
    assert change(client, BROKER, "1", ("min.insync.replicas", SET, "1"))[0] == 0
    assert change(client, BROKER, "", ("min.insync.replicas", DELETE, None))[0] == 0


@pytest.mark.usefixtures("processes")
def test_a_limit_of_connections_is_in_force_at_once(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert change(client, BROKER, "1", ("max.connections", SET, "1"))[0] == 0
        with RawClient(broker.port) as waiting:
            wait_until(lambda: "further ones wait" in broker.log_text, "a line about it")
            assert change(client, BROKER, "1", ("max.connections", DELETE, None))[0] == 0
            describe(waiting, BROKER, "1", "node.id")
        assert change(client, BROKER, "1", ("max.connections.per.ip.overrides", SET, "127.0.0.1:1"))[0] == 0
        with RawClient(broker.port) as refused:
            refused.wait_closed()
        assert change(client, BROKER, "1", ("max.connections.per.ip.overrides", SET, "127.0.0.1"))[0] != 0
        own = "listener.name.plaintext.max.connection.creation.rate"
        assert change(client, BROKER, "1", (own, SET, "0"))[0] != 0
        assert change(client, BROKER, "1", (own, SET, "5"))[0] == 0
