"""The admin APIs with librdkafka, kafka-python and aiokafka, which speak older and newer versions of them."""

from __future__ import annotations

import gc
import warnings

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from support.broker import new_topic

with warnings.catch_warnings():  # it reads its tables through an old function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ConfigResource as PyResource
    from kafka.admin import ConfigResourceType as PyType
    from kafka.admin import KafkaAdminClient

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def result(futures):
    (future,) = futures.values()
    return future.result(60)


def test_librdkafka_configures_brokers_groups_and_topics(broker, admin):
    topic = new_topic(broker)
    for kind, name, key, value in (
        (ResourceType.BROKER, "1", "log.cleaner.backoff.ms", "16000"),
        (ResourceType.TOPIC, topic, "retention.ms", "5000"),
    ):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        result(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]))
        found = result(admin.describe_configs([ConfigResource(kind, name)]))
        assert found[key].value == value
        assert not found[key].is_default
        entry = ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        result(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]))
        assert result(admin.describe_configs([ConfigResource(kind, name)]))[key].is_default
    replaced = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "7000"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        result(admin.alter_configs([replaced]))
    assert result(admin.describe_configs([replaced]))["segment.ms"].value == "7000"


def test_librdkafka_grows_elects_and_describes(broker, admin):
    topic = new_topic(broker)
    result(admin.create_partitions([NewPartitions(topic, 3)]))
    (described,) = admin.describe_topics(TopicCollection([topic])).values()
    assert len(described.result(60).partitions) == 3
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(60)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]
    cluster = admin.describe_cluster().result(60)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id] == [1]


def test_librdkafka_keeps_scram_users(admin):
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    result(
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"secret", b"salt")])
    )
    found = admin.describe_user_scram_credentials(["bob"])["bob"].result(60)
    assert [(i.mechanism, i.iterations) for i in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    result(
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)])
    )
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["bob"])["bob"].result(60)


def test_librdkafka_hears_that_there_is_no_authorizer(admin):
    what = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:x", "*")
    binding = AclBinding(*what, AclOperation.READ, AclPermissionType.ALLOW)
    with pytest.raises(KafkaException, match="No Authorizer is configured"):
        result(admin.create_acls([binding]))
    which = AclBindingFilter(*what, AclOperation.ANY, AclPermissionType.ANY)
    assert admin.describe_acls(which).result(60) == [], "it keeps the error to itself, of Kafka's as well"


def test_kafka_python_configures(broker):
    topic = new_topic(broker)
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        resource = PyResource(PyType.TOPIC, topic, {"retention.ms": "5000"})
        client.alter_configs([resource])
        assert "5000" in str(client.describe_configs([PyResource(PyType.TOPIC, topic)]))
        assert "message.max.bytes" in str(
            client.describe_configs([PyResource(PyType.BROKER, "1")], config_filter="all")
        )
        client.delete_topics([topic])
        assert topic not in client.list_topics()
    finally:
        client.close()
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def test_aiokafka_configures(broker):
    topic = new_topic(broker)
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        await client.alter_configs([AioResource(AioType.TOPIC, topic, {"retention.ms": "5000"})])
        (answer,) = await client.describe_configs([AioResource(AioType.TOPIC, topic)])
        assert "5000" in str(answer)
        await client.create_partitions({topic: AioNewPartitions(total_count=4)})
        (described,) = await client.describe_topics([topic])
        assert len(described["partitions"]) == 4
        await client.delete_topics([topic])
        assert topic not in await client.list_topics()
    finally:
        await client.close()
