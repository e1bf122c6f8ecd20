"""Backups of Apache Kafka, restored to our broker, and the other way round; over TLS and SASL at Apache's side."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.backups import backup, commit, committed, contents, read, topic_configs, write, write_transaction
from support.broker import NO_RETENTION, new_topic
from support.klamm import klamm
from support.secure_kafka import SecureKafka, property_

from klamm.testing import EmbeddedBroker

AUTHORIZERS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS;User:ann",
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory, apache_kafka, processes):
    """Apache's broker and ours, both with an authorizer."""
    work = tmp_path_factory.mktemp("clusters")
    config = NO_RETENTION | AUTHORIZERS
    with (
        SecureKafka(work, AUTHORIZERS) as kafka,
        EmbeddedBroker(work / "ours", config=config) as ours,
    ):
        yield kafka, ours


def acls(bootstrap: str) -> str:
    return klamm("acl", "list", "-b", bootstrap, "-o", "csv").stdout


def test_from_kafka_to_ours(clusters, tmp_path):
    """Transactions, compression of all kinds, keys, headers, times, configs, groups, ACLs and quotas."""
    kafka, ours = clusters
    admin = AdminClient({"bootstrap.servers": kafka.address})
    config = {"max.message.bytes": "3000000", "message.timestamp.type": "LogAppendTime"}
    for future in admin.create_topics([NewTopic("orders", 2), NewTopic("times", 1, config=config)]).values():
        future.result(60)
    for i, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        write(kafka.address, "orders", i * 100, 100, 2, **{"compression.type": codec})
    write_transaction(kafka.address, "orders", [b"never"] * 4, commit=False)
    write_transaction(kafka.address, "orders", [b"surely"], commit=True)
    write(kafka.address, "times", 0, 20)
    commit(kafka.address, "shop", {("orders", 0): 255, ("orders", 1): 100})
    rule = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in admin.create_acls([rule]).values():
        future.result(60)
    quota = ("quota", "set", "--user", "bob", "producer_byte_rate=1000000", "-b", kafka.address)
    assert klamm(*quota).returncode == 0

    props = kafka.connection("SASL_SSL")
    (tmp_path / "client.properties").write_text("".join(f"{k}={property_(v)}\n" for k, v in props.items()))
    secure = ("-b", props["bootstrap.servers"], "--command-config", tmp_path / "client.properties")
    said = backup("create", tmp_path / "b", *secure)
    assert "521 records" in said
    done = klamm("backup", "restore", str(tmp_path / "b"), "-b", ours.bootstrap)
    assert (done.returncode, "521 records" in done.stdout) == (1, True)
    assert "SCRAM users cannot be restored" in done.stderr
    assert done.stderr.count("not restored") == 1, done.stderr

    before, after = read(kafka.address, "orders", 2), read(ours.bootstrap, "orders", 2)
    assert contents(after) == contents(before)
    assert read(ours.bootstrap, "times") == read(kafka.address, "times")
    assert committed(ours.bootstrap, "shop", [("orders", 0), ("orders", 1)]) == [250, 100]
    assert acls(ours.bootstrap) == acls(kafka.address)
    assert "bob" in klamm("quota", "list", "-b", ours.bootstrap).stdout
    own = topic_configs(ours.bootstrap, "times")
    assert "LogAppendTime" in own
    assert "retention.ms" not in own


def test_from_ours_to_kafka_and_on_in_the_same_folder(clusters, tmp_path):
    """A group goes on at Apache's broker where it was, and the backup goes on with the new cluster."""
    kafka, ours = clusters
    topic = new_topic(ours, 3, {"cleanup.policy": "compact"})
    write(ours.bootstrap, topic, 0, 300, 3, **{"compression.type": "lz4"})
    write_transaction(ours.bootstrap, topic, [b"never"], commit=False)
    write(ours.bootstrap, topic, 300, 30, 3)
    commit(ours.bootstrap, "team", {(topic, 0): 105, (topic, 2): 3})
    backup("create", tmp_path / "b", "-b", ours.bootstrap, "--topic", topic)
    backup("restore", tmp_path / "b", "-b", kafka.address)
    assert contents(read(kafka.address, topic, 3)) == contents(read(ours.bootstrap, topic, 3))
    assert committed(kafka.address, "team", [(topic, 0), (topic, 2)]) == [103, 3]
    assert "compact" in topic_configs(kafka.address, topic)
    again = klamm("backup", "create", str(tmp_path / "b"), "-b", kafka.address, "--topic", topic)
    assert "the last backup is of another cluster" in again.stderr
    assert "330 records" in again.stdout
    assert "good: 2 backups" in backup("verify", tmp_path / "b")
    late = new_topic(ours)
    write(ours.bootstrap, late, 0, 200)
    cut = {"version": 1, "partitions": [{"topic": late, "partition": 0, "offset": 150}]}
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    where = ("--offset-json-file", str(tmp_path / "cut.json"), "--bootstrap-server", ours.bootstrap)
    assert klamm("kafka-delete-records", *where).returncode == 0
    backup("create", tmp_path / "b", "-b", ours.bootstrap, "--topic", late)
    backup("restore", tmp_path / "b", "-b", kafka.address, "--keep-offsets")
    assert read(kafka.address, late) == read(ours.bootstrap, late)
    assert backup("verify", tmp_path / "b", "--against", kafka.address).startswith(
        "equal: 1 topic, 50 records"
    )


def test_a_user_with_few_rights(tmp_path, apache_kafka, processes):
    """READ and DESCRIBE_CONFIGS of topics and DESCRIBE of groups are enough for a backup, which tells what it may not see."""
    with SecureKafka(tmp_path, AUTHORIZERS | {"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "false"}) as kafka:  # fmt: skip
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("few", 1)])["few"].result(60)
        write(kafka.address, "few", 0, 10)
        commit(kafka.address, "few-group", {("few", 0): 4})
        at = ("-b", kafka.address)
        for rule in (["read", "describe-configs", "--topic", "few"], ["describe", "--group", "few-group"]):
            assert klamm("acl", "add", "ann", *rule, *at).returncode == 0
        props = kafka.connection("SASL_PLAINTEXT")
        (tmp_path / "ann").write_text("".join(f"{k}={property_(v)}\n" for k, v in props.items()))
        ann = ("-b", props["bootstrap.servers"], "--command-config", str(tmp_path / "ann"))
        done = klamm("backup", "create", str(tmp_path / "b"), *ann)
        assert (done.returncode, "1 topic, 10 records" in done.stdout) == (0, True), done.stderr
        for what in ("ACLs and SCRAM users", "quotas"):
            assert f"{what} are not in the backup: not authorized" in done.stderr
        said = backup("restore", tmp_path / "b", *at, "--prefix", "x-")
        assert "1 offset of 1 group" in said
        refused = klamm("backup", "restore", str(tmp_path / "b"), *ann, "--prefix", "y-", "--parts", "topics")
        assert (refused.returncode, "y-few" in refused.stderr) == (1, True)
