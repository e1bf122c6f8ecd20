"""Quotas that follow the source's, and users whom the target lacks."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.broker import new_name
from support.kafka_broker import KafkaBroker
from support.klamm import klamm
from support.mirror import mirror_file
from support.mirroring import Running, props

from klamm_kafka.client import Cluster
from klamm_mirror.principals.quotas import Entity, QuotaChange, carry_out, changes, list_quotas, name_of
from klamm_mirror.principals.users import Credential, missing

ANN: Entity = (("user", "ann"),)
APP: Entity = (("client-id", "app"), ("user", None))
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"


# ---- decisions


def everybody(_: str) -> bool:
    return True


def decided(
    ours: Mapping[Entity, Mapping[str, float]],
    theirs: Mapping[Entity, Mapping[str, float]],
    *,
    wants: Callable[[str], bool] = everybody,
    deletes: bool = False,
) -> list[tuple[str, str, float | None, float | None]]:
    found = changes(ours, theirs, wants, deletes=deletes)
    return [(name_of(c.entity), c.key, c.old, c.new) for c in found]


def test_quotas_become_the_source_s_and_others_stay():
    ours = {ANN: {PRODUCE: 10.0, CONSUME: 5.0}, APP: {PRODUCE: 1.0}}
    theirs = {ANN: {PRODUCE: 20.0, CONSUME: 5.0, "request_percentage": 3.0}, (("ip", "::1"),): {"x": 1.0}}
    assert decided(ours, theirs) == [
        ("user=<default>/client-id=app", PRODUCE, None, 1.0),
        ("user=ann", PRODUCE, 20.0, 10.0),
    ]


def test_quotas_of_the_target_alone_are_removed_by_policy():
    theirs = {ANN: {PRODUCE: 20.0}, APP: {PRODUCE: 1.0}}
    assert decided({ANN: {CONSUME: 5.0}}, theirs, wants="user=ann".__eq__, deletes=True) == [
        ("user=ann", CONSUME, None, 5.0),
        ("user=ann", PRODUCE, 20.0, None),
    ]


def test_users_are_missing_by_mechanism():
    ours = [Credential("ann", "SCRAM-SHA-256", 4096), Credential("ann", "SCRAM-SHA-512", 8192)]
    assert missing(ours, [Credential("ann", "SCRAM-SHA-256", 9999)]) == ours[1:]


# ---- clusters


@pytest.fixture(scope="module")
def pair(
    apache_kafka: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    make = tmp_path_factory.mktemp
    with KafkaBroker(make("a")) as a, KafkaBroker(make("b")) as b:
        yield a, b


def quotas(bootstrap: str) -> dict[Entity, dict[str, float]]:
    async def ask() -> dict[Entity, dict[str, float]]:
        async with Cluster(bootstrap) as cluster:
            return await list_quotas(cluster)

    return asyncio.run(ask())


def set_quotas(bootstrap: str, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Sets the quotas of a client; None removes one."""

    async def ask() -> dict[str, str]:
        wanted = [QuotaChange(entity=entity, key=k, old=None, new=v) for k, v in values.items()]
        async with Cluster(bootstrap) as cluster:
            return await carry_out(cluster, wanted)

    assert asyncio.run(ask()) == {}


def add_user(bootstrap: str, name: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    wanted = UserScramCredentialUpsertion(name, info, b"secret")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(60)


def made(kafka: KafkaBroker) -> str:
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    return topic


def details(mirror: Running, part: str) -> dict[str, Any]:
    found: dict[str, Any] = mirror.details().get(part, {})
    return found


def planned(a: KafkaBroker, b: KafkaBroker, topic: str, path: Path) -> list[tuple[Any, ...]]:
    settings = {
        "A->B.enabled": "true", "topics": topic, "sync.client.quotas.enabled": "true", "check.users.enabled": "true",
        "client.quotas.exclude": "ip=.*",
    }  # fmt: skip
    file = mirror_file(path / "mm2.properties", {"A": a.address, "B": b.address}, settings)
    done = klamm("mirror", "plan", str(file), "--flow", "A->B", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "1 missing user" in done.stderr
    rows = [r for r in json.loads(done.stdout) if r["kind"] in {"quota", "missing user"}]
    return [(r["kind"], r["name"], r["setting"], r["old"], r["new"]) for r in rows]


def test_quotas_and_users_between_clusters_of_kafka(pair, tmp_path):
    a, b = pair
    set_quotas(a.address, ANN, {PRODUCE: 1_000_000.0, CONSUME: 2_000_000.0})
    set_quotas(a.address, APP, {"request_percentage": 50.0})
    set_quotas(a.address, (("ip", "127.0.0.1"),), {"connection_creation_rate": 100.0})
    set_quotas(b.address, (("user", "bob"),), {PRODUCE: 5.0})
    add_user(a.address, "ann")
    topic = made(a)
    assert planned(a, b, topic, tmp_path) == [
        ("quota", "user=<default>/client-id=app", "request_percentage", None, "50"),
        ("quota", "user=ann", CONSUME, None, "2000000"),
        ("quota", "user=ann", PRODUCE, None, "1000000"),
        ("missing user", "ann", "SCRAM-SHA-512", None, 5000),
    ]
    config = props(
        a.address, b.address, topics=topic, sync__client__quotas__enabled="true", check__users__enabled="true",
        client__quotas__exclude="ip=.*", sync__client__quotas__interval__seconds="1",
    )  # fmt: skip
    with Running(config) as mirror:
        mirror.until(lambda: details(mirror, "quotas").get("synced_ms"), "the quotas")
        expected = {
            ANN: {PRODUCE: 1_000_000.0, CONSUME: 2_000_000.0},
            APP: {"request_percentage": 50.0},
            (("user", "bob"),): {PRODUCE: 5.0},
        }
        assert quotas(b.address) == expected
        set_quotas(a.address, ANN, {CONSUME: 3_000_000.0})
        mirror.until(lambda: details(mirror, "quotas")["changed"] == 4, "the change")
        assert quotas(b.address)[ANN] == {PRODUCE: 1_000_000.0, CONSUME: 3_000_000.0}
        mirror.until(lambda: details(mirror, "users").get("synced_ms"), "the users")
        assert details(mirror, "users")["examples"] == ["ann (SCRAM-SHA-512, 5000 iterations)"]


def test_a_target_that_refuses_a_quota_is_named(pair, target, caplog):
    """Kafka takes what is no number for a percentage, and then bounds nothing; Klamm refuses it."""
    a, _ = pair
    caplog.set_level(logging.ERROR, "klamm_mirror.principals")
    set_quotas(a.address, ANN, {"request_percentage": math.nan})
    config = props(
        a.address, target.bootstrap, topics=made(a), sync__client__quotas__enabled="true",
        client__quotas="user=ann", sync__client__quotas__interval__seconds="1",
    )  # fmt: skip
    with Running(config) as mirror:
        mirror.until(lambda: details(mirror, "quotas").get("conflicts"), "the refusal")
        [why] = details(mirror, "quotas")["conflicting"].values()
        assert "must be greater than 0" in why
    assert len([r for r in caplog.records if "user=ann" in r.getMessage()]) == 1
