"""A running broker with an authorizer: real clients with and without rights, rights that come and go, a kill -9."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
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
from support.broker import wait_until
from support.raw import fetch_request
from support.secure_broker import LoginClient, SecureBroker

from klamm_broker.server.authorizer_keys import STANDARD
from klamm_kafka.wire.errors import ErrorCode as E
from klamm_kafka.wire.messages.fetch import FetchRequest

CONFIG = {"authorizer.class.name": STANDARD, "super.users": "User:ann;User:ANONYMOUS"}
BOB = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "bob-secret"}  # fmt: skip


@pytest.fixture
def broker(tmp_path):
    with SecureBroker(tmp_path, CONFIG) as running:
        yield running


@pytest.fixture
def admin(broker):
    made = AdminClient({"bootstrap.servers": broker.bootstrap})
    made.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    return made


def bobs(operation, kind=ResourceType.TOPIC, name="orders", pattern=ResourcePatternType.LITERAL):
    return AclBinding(kind, name, pattern, "User:bob", "*", operation, AclPermissionType.ALLOW)


def grant(admin, *acls):
    for future in admin.create_acls(list(acls)).values():
        future.result(30)


def revoke(admin, acl):
    fields = (acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type)  # fmt: skip
    (future,) = admin.delete_acls([AclBindingFilter(*fields)]).values()
    assert future.result(30) == [acl]


def produce(producer, value=b"x"):
    """Returns the error of one record, None for a record that is stored."""
    told = []
    try:
        producer.produce("orders", value, on_delivery=lambda error, _: told.append(error))
    except KafkaException as e:  # what it knows of the topic already
        return e.args[0].code()
    producer.flush(30)
    (error,) = told
    return None if error is None else error.code()


def lines(broker):
    said = [text.partition("klamm.audit: ")[2] for text in broker.log_text.splitlines()]
    return [json.loads(text) for text in said if text]


def test_a_producer_may_write_once_it_is_allowed(broker, admin):
    producer = Producer({"bootstrap.servers": broker.sasl_bootstrap, **BOB, "message.timeout.ms": 5000, "topic.metadata.refresh.interval.ms": 300})  # fmt: skip
    assert produce(producer) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    write = bobs(AclOperation.WRITE)
    grant(admin, write)
    wait_until(lambda: produce(producer) is None, "the record to be stored")
    revoke(admin, write)
    wait_until(lambda: produce(producer) == KafkaError.TOPIC_AUTHORIZATION_FAILED, "the record to be refused")
    said = lines(broker)
    (denied, *_) = [line for line in said if line["event"] == "denied"]
    assert denied.items() >= {"principal": "User:bob", "resource": "orders", "host": "127.0.0.1"}.items()
    (added, removed) = [line for line in said if line["event"] == "ACLs changed"]
    assert (
        added["added"]
        == removed["removed"]
        == ["User:bob is allowed WRITE on TOPIC LITERAL orders from host *"]
    )


def test_a_consumer_that_loses_its_right_is_told(broker, admin):
    read = bobs(AclOperation.READ)
    grant(admin, read, bobs(AclOperation.READ, ResourceType.GROUP, "g"))
    assert produce(Producer({"bootstrap.servers": broker.bootstrap})) is None
    consumer = Consumer({"bootstrap.servers": broker.sasl_bootstrap, **BOB, "group.id": "g", "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe(["orders"])
    try:
        assert consumer.poll(30).value() == b"x"
        revoke(admin, read)
        deadline = time.monotonic() + 30
        while (message := consumer.poll(1)) is None or message.error() is None:
            assert time.monotonic() < deadline
        assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_rights_are_there_after_kill_9(broker, admin):
    for number in range(20):  # each answered change is on the disk, the last as well as the first
        grant(admin, bobs(AclOperation.WRITE, name=f"t{number}"))
    broker.kill()
    broker.start()
    again = AdminClient({"bootstrap.servers": broker.bootstrap})
    told = again.describe_acls(
        AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
    )
    assert sorted(acl.name for acl in told.result(30)) == sorted(f"t{number}" for number in range(20))
    bob = AdminClient({"bootstrap.servers": broker.sasl_bootstrap, **BOB})
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        bob.create_acls([bobs(AclOperation.ALL)])[bobs(AclOperation.ALL)].result(30)


def test_a_fetch_session_notices_rights_that_come_and_go(broker, admin):
    """Its partitions have nothing to tell otherwise, as nothing is written."""
    read = bobs(AclOperation.READ)
    with LoginClient(broker.sasl_port) as bob:
        assert not bob.plain("bob", "bob-secret").error_code
        first = bob.request(fetch_request("orders", session_epoch=0, max_wait_ms=100), 12)
        assert [p.error_code for t in first.responses for p in t.partitions] == [E.TOPIC_AUTHORIZATION_FAILED]

        def go_on(epoch):
            asked = FetchRequest(session_id=first.session_id, session_epoch=epoch, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20)  # fmt: skip
            answer = bob.request(asked, 12)
            assert not answer.error_code
            return [p.error_code for t in answer.responses for p in t.partitions]

        assert go_on(1) == [E.TOPIC_AUTHORIZATION_FAILED]
        grant(admin, read)
        assert go_on(2) == [E.NONE]
        assert go_on(3) == []
        revoke(admin, read)
        assert go_on(4) == [E.TOPIC_AUTHORIZATION_FAILED]


def test_a_regular_expression_matches_what_its_member_may_describe(broker, admin):
    admin.create_topics([NewTopic("others", 1, 1)])["others"].result(30)
    grant(admin, bobs(AclOperation.READ), bobs(AclOperation.READ, ResourceType.GROUP, "g"))
    consumer = Consumer({"bootstrap.servers": broker.sasl_bootstrap, **BOB, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe(["^o.*"])
    try:

        def assigned():
            consumer.poll(0.1)
            return {partition.topic for partition in consumer.assignment()}

        wait_until(assigned, "an assignment")
        assert assigned() == {"orders"}
        grant(admin, bobs(AclOperation.DESCRIBE, name="others"))
        # a new topic has all matched anew
        admin.create_topics([NewTopic("o-hidden", 1, 1)])["o-hidden"].result(30)
        wait_until(lambda: assigned() == {"orders", "others"}, "the topic to be matched", timeout_s=40)
    finally:
        consumer.close()
