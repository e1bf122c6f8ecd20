"""MirrorMaker 4.3.1 and our source connector beside each other: the same source topics, the same rights and settings.

Both mirror from one Apache Kafka to another, under the aliases `theirs` and `ours`; what they made of each topic is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.kafka_broker import KafkaBroker, wait_for
from support.mirror_maker import MirrorMaker
from support.mirroring import Running, props

pytestmark = pytest.mark.usefixtures("apache_kafka")

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
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


class Clusters(NamedTuple):
    source: AdminClient
    target: AdminClient


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
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Yields two brokers, with MirrorMaker and our connector between them."""
    with (
        KafkaBroker(tmp_path_factory.mktemp("source"), AUTHORIZED) as source,
        KafkaBroker(tmp_path_factory.mktemp("target"), AUTHORIZED) as target,
    ):
        clusters = Clusters(admin(source), admin(target))
        clusters.source.create_topics([NewTopic("rights", 1, 1)])["rights"].result(60)
        grant(clusters.source, RIGHTS)
        file = {
            "clusters": "theirs,B", "theirs.bootstrap.servers": source.address, "B.bootstrap.servers": target.address,
            "theirs->B.enabled": "true", "theirs->B.topics": ".*",
            "sync.topic.acls.interval.seconds": "1", "sync.topic.configs.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
        }  # fmt: skip
        config = props(
            source.address, target.address, topics=".*", source__cluster__alias="ours",
            sync__topic__acls__enabled="true", sync__topic__acls__interval__seconds="1",
            sync__topic__configs__interval__seconds="1", refresh__topics__interval__seconds="1",
        )  # fmt: skip
        with MirrorMaker(tmp_path_factory.mktemp("mm2"), file), Running(config):
            yield clusters


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
