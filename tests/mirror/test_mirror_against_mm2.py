"""MirrorMaker 4.3.1 and our source connector beside each other: the same source topics, the same rights and settings.

Both mirror from one Apache Kafka to another, under the aliases `theirs` and `ours`; what they made of each topic is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.kafka_broker import KafkaBroker, wait_for
from support.mirror_maker import MirrorMaker
from support.mirroring import Running, change, props, read, run_until

from klamm_mirror.heartbeat.connector import MirrorHeartbeatConnector
from klamm_mirror.metrics.sensors import SOURCE_ABOUT
from klamm_mirror.topics.formats import Heartbeat

pytestmark = pytest.mark.usefixtures("apache_kafka")

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
STATIC = {"log.segment.bytes": "52428800"}
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
RIGHTS = [
    ("rights", ResourcePatternType.LITERAL, operation, permission)
    for operation in (
        AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS,
    )
    for permission in (ALLOW, DENY)
] + [
    ("rights", ResourcePatternType.PREFIXED, AclOperation.READ, ALLOW),
    ("absent", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW),
    ("*", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW),
    ("theirs.x", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW),
    ("B.x", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW),
    ("__offsets", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW),
]  # fmt: skip


class Both(NamedTuple):
    source: AdminClient
    target: AdminClient
    config: dict[str, str]
    mirror_maker: MirrorMaker


def admin(kafka: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})


def grant(
    client: AdminClient, bindings: list[tuple[str, ResourcePatternType, AclOperation, AclPermissionType]]
) -> None:
    wanted = [
        AclBinding(ResourceType.TOPIC, name, pattern, f"User:u{i}", "*", operation, permission)
        for i, (name, pattern, operation, permission) in enumerate(bindings)
    ]
    for future in client.create_acls(wanted).values():
        future.result(60)


def rights(client: AdminClient, alias: str) -> set[tuple[str, str, str, str, str]]:
    """Returns the bindings of an alias' remote topics, without the alias."""
    every = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {
        (b.name.removeprefix(f"{alias}."), b.resource_pattern_type.name, b.principal, b.operation.name,
         b.permission_type.name)
        for b in client.describe_acls(every).result(60)
        if b.name.startswith(f"{alias}.")
    }  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Yields two brokers, with MirrorMaker and our connector between them."""
    with (
        KafkaBroker(tmp_path_factory.mktemp("source"), AUTHORIZED | STATIC) as source,
        KafkaBroker(tmp_path_factory.mktemp("target"), AUTHORIZED) as target,
    ):
        ours, there = admin(source), admin(target)
        configs = {"retention.ms": "86400000", "min.insync.replicas": "1", "cleanup.policy": "compact,delete"}
        for future in ours.create_topics(
            [NewTopic("rights", 1, 1), NewTopic("settings", 2, 1, config=configs)]
        ).values():
            future.result(60)
        change_broker(ours, "log.flush.interval.messages", "1234")
        grant(ours, RIGHTS)
        file = {
            "clusters": "theirs,wholetheirs,B", "wholetheirs.bootstrap.servers": source.address,
            "wholetheirs->B.enabled": "true", "B->wholetheirs.emit.heartbeats.enabled": "false", "wholetheirs->B.topics": "settings",
            "wholetheirs->B.use.defaults.from": "source", "theirs.bootstrap.servers": source.address, "B.bootstrap.servers": target.address,
            "theirs->B.enabled": "true", "theirs->B.topics": ".*",
            "sync.topic.acls.interval.seconds": "1", "sync.topic.configs.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
        }  # fmt: skip
        config = props(
            source.address, target.address, topics=".*", source__cluster__alias="ours",
            sync__topic__acls__enabled="true", sync__topic__acls__interval__seconds="1",
            sync__topic__configs__interval__seconds="1", refresh__topics__interval__seconds="1",
            heartbeats__replication__enabled="true",
        )  # fmt: skip
        whole = {"source.cluster.alias": "wholeours", "topics": "settings", "use.defaults.from": "source"}
        with (
            MirrorMaker(tmp_path_factory.mktemp("mm2"), file) as theirs,
            Running(config),
            Running({**config, **whole}),
        ):
            yield Both(ours, there, config, theirs)


def test_acls_become_the_same(both):
    wait_for("MirrorMaker's bindings", lambda: len(rights(both.target, "theirs")) > 5, 120)
    wait_for("the same ones", lambda: rights(both.target, "ours") == rights(both.target, "theirs"))
    found = rights(both.target, "ours")
    assert {(name, operation) for name, _, principal, operation, _ in found if principal == "User:u0"} == {
        ("rights", "READ")
    }
    assert {name for name, *_ in found} == {"rights", "absent", "*", "theirs.x"}
    grant(both.source, [("late", ResourcePatternType.LITERAL, AclOperation.READ, ALLOW)])
    wait_for("a later one of theirs", lambda: "late" in names(both.target, "theirs"))
    wait_for("a later one", lambda: rights(both.target, "ours") == rights(both.target, "theirs"))


def names(client: AdminClient, alias: str) -> set[str]:
    return {binding[0] for binding in rights(client, alias)}


def change_broker(client: AdminClient, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(60)


def settings(client: AdminClient, topic: str) -> dict[str, str]:
    """A topic's own settings; none while it does not exist."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = client.describe_configs([resource])[resource].result(60)
    except KafkaException:
        return {}
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in found.items() if entry.source == own}


def same(client: AdminClient, prefix: str = "") -> bool:
    found = settings(client, f"{prefix}theirs.settings")
    return bool(found) and found == settings(client, f"{prefix}ours.settings")


def test_settings_become_the_same(both):
    def theirs(name: str) -> str | None:
        return settings(both.target, "theirs.settings").get(name)

    wait_for("the same settings", lambda: same(both.target), 120)
    wait_for("a setting of the broker", lambda: theirs("flush.messages") == "1234")
    for topic in ("theirs.settings", "ours.settings"):
        for name, value in (
            ("max.message.bytes", "999999"),  # a default at the source
            ("segment.bytes", "33554432"),  # from the source's server.properties
            ("min.insync.replicas", "1"),  # left out by the filter
        ):
            change(both.target, topic, name, value)
    change(both.source, "settings", "retention.ms", "99999999")
    wait_for("MirrorMaker's change", lambda: theirs("retention.ms") == "99999999")
    wait_for("the default", lambda: theirs("max.message.bytes") is None)
    wait_for("the same settings again", lambda: same(both.target))
    found = settings(both.target, "ours.settings")
    assert found == {
        "cleanup.policy": "compact,delete", "flush.messages": "1234", "min.insync.replicas": "1",
        "retention.ms": "99999999", "segment.bytes": "33554432",
    }  # fmt: skip


def test_the_sources_defaults_become_the_same(both):
    wait_for("all settings", lambda: len(settings(both.target, "wholetheirs.settings")) > 15, 120)
    try:
        wait_for("the same settings", lambda: same(both.target, "whole"))
    except TimeoutError:
        assert settings(both.target, "wholeours.settings") == settings(both.target, "wholetheirs.settings")
        raise


def copies(client: AdminClient, alias: str) -> dict[str, int]:
    """The remote topics of an alias, without it, with their numbers of partitions."""
    there = client.list_topics(timeout=60).topics
    return {
        name.removeprefix(f"{alias}."): len(topic.partitions)
        for name, topic in there.items()
        if name.startswith(f"{alias}.") and not name.endswith(".internal")
    }


def test_the_same_topics_are_mirrored_heartbeats_among_them(both):
    made = {"rights": 1, "settings": 2, "heartbeats": 1}
    for prefix, wanted in (("", made), ("whole", {"settings": 2, "heartbeats": 1})):
        for alias in (f"{prefix}theirs", f"{prefix}ours"):
            wait_for(f"{alias}'s topics", partial(has_copies, both.target, alias, wanted), 120)


def has_copies(client: AdminClient, alias: str, wanted: dict[str, int]) -> bool:
    return copies(client, alias) == wanted


def test_heartbeats_are_the_same_but_for_names_and_times(both):
    run_until(MirrorHeartbeatConnector, both.config, lambda context: bool(context.commits))
    bootstrap = both.config["target.cluster.bootstrap.servers"]
    beats = {Heartbeat.decode(row[0], row[1]).source: row for row in read(bootstrap, "heartbeats", None)}
    key, value, headers, timestamp = beats["ours"]
    their_key, their_value, their_headers, their_timestamp = beats["theirs"]
    assert key.replace(b"\x00\x04ours", b"\x00\x06theirs") == their_key
    assert headers == their_headers
    assert Heartbeat.decode(key, value).timestamp == timestamp
    assert Heartbeat.decode(their_key, their_value).timestamp == their_timestamp
    assert settings(both.target, "heartbeats") == {"cleanup.policy": "compact"}


def test_metrics_have_the_same_names_and_tags(both):
    names = {
        bean.partition(":")[2].replace(",", ":").replace("-", "_")
        for bean in both.mirror_maker.metrics("kafka.connect.mirror")
        if "topic=theirs.heartbeats" in bean
    }
    flow = "source=theirs:target=B:topic=theirs.heartbeats:partition=0"
    assert names == {f"type=MirrorSourceConnector:{flow}:{name}" for name in SOURCE_ABOUT}
