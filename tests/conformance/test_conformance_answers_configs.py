"""Configurations, features, users, quotas and what one node has no need for: our answers beside Apache Kafka's."""

from __future__ import annotations

import pytest
from support.answers import Request, Side

from klamm_kafka.wire.messages import alter_client_quotas as set_quotas
from klamm_kafka.wire.messages import alter_configs as legacy
from klamm_kafka.wire.messages import alter_partition_reassignments as reassign
from klamm_kafka.wire.messages import alter_user_scram_credentials as set_users
from klamm_kafka.wire.messages import create_acls, delete_acls, describe_acls
from klamm_kafka.wire.messages import describe_client_quotas as get_quotas
from klamm_kafka.wire.messages import describe_quorum as quorum
from klamm_kafka.wire.messages import describe_user_scram_credentials as get_users
from klamm_kafka.wire.messages import elect_leaders as elect
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from klamm_kafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm_kafka.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm_kafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

pytestmark = pytest.mark.usefixtures("apache_kafka")
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def change(kind: int, name: str, *changes: tuple[str, int, str | None], only: bool = False) -> Request:
    configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=only), 1


def replace(kind: int, name: str, *configs: tuple[str, str | None], only: bool = False) -> Request:
    made = [legacy.AlterableConfig(name=key, value=value) for key, value in configs]
    resource = legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=made)
    return legacy.AlterConfigsRequest(resources=[resource], validate_only=only), 2


def describe(kind: int, name: str, *keys: str) -> Request:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4


def broker_configs(side: Side) -> list[Request]:
    keys = ("log.cleaner.threads", "message.max.bytes", "log.cleaner.backoff.ms", "log.retention.bytes")
    return [
        describe(BROKER, ""),
        change(BROKER, "1", ("message.max.bytes", SET, "2000000")),
        change(BROKER, "", ("message.max.bytes", SET, "3000000"), ("log.retention.bytes", SET, "5")),
        describe(BROKER, ""),
        describe(BROKER, "1", *keys),
        describe(TOPIC, "known", "max.message.bytes", "retention.bytes"),
        change(BROKER, "1", ("log.cleanup.policy", APPEND, "compact"), only=True),
        change(BROKER, "1", ("message.max.bytes", DELETE, None)),
        change(BROKER, "", ("message.max.bytes", DELETE, None), ("log.retention.bytes", DELETE, None)),
        describe(BROKER, "1", *keys),
        replace(BROKER, "1", ("message.max.bytes", "2000000")),
        replace(BROKER, "1"),
        describe(BROKER, "1", "message.max.bytes"),
    ]


def broker_configs_refused(side: Side) -> list[Request]:
    key = "log.retention.ms"
    return [
        change(BROKER, "1", ("node.id", SET, "5")),
        change(BROKER, "1", (key, SET, "soon")),
        change(BROKER, "", (key, SET, "soon")),
        change(BROKER, "", ("listeners", SET, "PLAINTEXT://:1")),
        change(BROKER, "", ("log.retention.hours", SET, "5")),
        change(BROKER, "7", (key, SET, "5")),
        change(BROKER, "x", (key, SET, "5")),
        change(BROKER, "1", (key, SET, None)),
        change(BROKER, "1", (key, APPEND, "5")),
        change(BROKER, "1", ("nope", APPEND, "5")),
        change(BROKER, "1", (key, 9, "5")),
        change(BROKER, "1", (key, SET, "5"), (key, SET, "6")),
        change(BROKER, "1", ("min.insync.replicas", SET, "2")),
        change(BROKER, "", ("min.insync.replicas", DELETE, None)),
        change(BROKER, "", ("min.insync.replicas", SET, "0")),
        change(BROKER, "1", ("compression.type", SET, "zip")),
        change(BROKER, "", ("node.id", DELETE, None)),
        change(BROKER, "1", ("sasl.kerberos.min.time.before.relogin", SET, "58000"), only=True),
        change(BROKER, "", ("sasl.kerberos.min.time.before.relogin", SET, "58000")),
        change(BROKER, "1", ("num.io.threads", SET, "9"), only=True),
        change(BROKER, "1", ("num.io.threads", SET, "x")),
        change(BROKER, "1", ("ssl.keystore.type", SET, "JKS")),
        change(BROKER, "1", ("nope", SET, "1"), only=True),
        replace(BROKER, "1", (key, "7777777"), ("node.id", "5")),
        replace(BROKER, ""),
        replace(BROKER, "1", ("a", None)),
        replace(BROKER, "1", ("a", "1"), ("a", "2")),
        replace(LOGGER, "1", ("root", "INFO")),
        replace(99, "1", ("root", "INFO")),
        change(99, "x", ("a", SET, "b")),
    ]


def topic_configs_replaced(side: Side) -> list[Request]:
    seen = describe(TOPIC, "empty", "retention.ms", "segment.ms", "cleanup.policy")
    return [
        replace(TOPIC, "empty", ("retention.ms", "5"), ("segment.ms", "6")),
        seen,
        replace(TOPIC, "empty", ("cleanup.policy", "compact")),
        seen,
        replace(TOPIC, "empty", ("retention.ms", "5"), only=True),
        replace(TOPIC, "empty"),
        seen,
        replace(TOPIC, "unknown", ("retention.ms", "5")),
        replace(TOPIC, "", ("retention.ms", "5")),
        replace(TOPIC, "a/b", ("retention.ms", "5")),
        replace(TOPIC, "empty", ("nope", "5")),
        replace(TOPIC, "empty", ("retention.ms", "soon")),
    ]


def group_configs(side: Side) -> list[Request]:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    seen = describe(GROUP, "g", session, heartbeat, "consumer.assignment.interval.ms")
    return [
        seen,
        describe(GROUP, ""),
        change(GROUP, "g", (session, SET, "50000")),
        seen,
        change(GROUP, "g", (session, SET, "1")),
        change(GROUP, "g", (heartbeat, SET, "100000000")),
        change(GROUP, "g", ("nope", SET, "1")),
        change(GROUP, "", (session, SET, "50000")),
        change(GROUP, "g", (session, SET, "x")),
        change(GROUP, "g", ("nope", DELETE, None)),
        change(GROUP, "g", (session, APPEND, "5")),
        replace(GROUP, "g2", (heartbeat, "6000")),
        (ListConfigResourcesRequest(resource_types=[GROUP]), 1),
        change(GROUP, "g", (session, DELETE, None)),
        replace(GROUP, "g2"),
        (ListConfigResourcesRequest(resource_types=[GROUP]), 1),
    ]


def client_metrics(side: Side) -> list[Request]:
    return [
        describe(METRICS, "m"),
        describe(METRICS, ""),
        change(METRICS, "m", ("interval.ms", SET, "1000"), ("match", SET, "client_id=x")),
        describe(METRICS, "m"),
        change(METRICS, "m", ("interval.ms", SET, "1")),
        change(METRICS, "m", ("interval.ms", SET, "x")),
        change(METRICS, "m", ("metrics", APPEND, "a.b")),
        change(METRICS, "m", ("match", SET, "nonsense")),
        change(METRICS, "m", ("match", SET, "foo=x")),
        change(METRICS, "m", ("match", SET, "client_id=[")),
        change(METRICS, "", ("interval.ms", SET, "1000")),
        change(METRICS, "m", ("nope", SET, "1")),
        change(METRICS, "m", ("metrics", SET, "")),
        (ListConfigResourcesRequest(), 0),
        (ListConfigResourcesRequest(resource_types=[METRICS, 99]), 1),
        replace(METRICS, "m"),
        (ListConfigResourcesRequest(), 0),
    ]


def loggers(side: Side) -> list[Request]:
    return [
        change(LOGGER, "1", ("no.such.logger", SET, "DEBUG")),
        change(LOGGER, "1", ("root", SET, "LOUD")),
        change(LOGGER, "1", ("root", SET, "info")),
        change(LOGGER, "1", ("root", APPEND, "INFO")),
        change(LOGGER, "1", ("root", DELETE, None)),
        change(LOGGER, "", ("root", SET, "INFO")),
        change(LOGGER, "7", ("root", SET, "INFO")),
        change(LOGGER, "1", ("root", SET, "WARN")),
        describe(LOGGER, "1", "root"),
        describe(LOGGER, ""),
        describe(LOGGER, "7"),
    ]


def features(side: Side) -> list[Request]:
    def update(*levels: tuple[str, int, int], version: int = 2, only: bool = True) -> Request:
        updates = [FeatureUpdateKey(feature=n, max_version_level=v, upgrade_type=t) for n, v, t in levels]
        return UpdateFeaturesRequest(feature_updates=updates, validate_only=only), version

    def old(name: str, level: int, *, allow: bool) -> Request:
        asked = FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=allow)
        return UpdateFeaturesRequest(feature_updates=[asked]), 0

    told: Request = (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return [
        *(update(("group.version", level, kind)) for level in (-1, 0, 1, 2) for kind in (0, 1, 2, 3, 9)),
        *(update(("metadata.version", level, kind)) for level in (6, 29, 30, 31) for kind in (1, 2, 3)),
        *(update(("kraft.version", level, kind)) for level in (0, 1, 2) for kind in (1, 2, 3)),
        update(("nope", 1, 1)),
        update(("nope", 0, 3)),
        update(),
        update(("transaction.version", 1, 2), ("group.version", 0, 1)),
        update(("group.version", 0, 2), version=1),
        old("group.version", 0, allow=False),
        update(("transaction.version", 0, 2), only=False),
        update(("transaction.version", 2, 2)),
        update(("transaction.version", 2, 1), only=False),
        old("group.version", 1, allow=True),
        told,
    ]


def elections_and_reassignments(side: Side) -> list[Request]:
    def move(topic: str, index: int, replicas: list[int] | None) -> Request:
        asked = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [reassign.ReassignableTopic(name=topic, partitions=[asked])]
        return reassign.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000), 1

    elected = [
        elect.TopicPartitions(topic="known", partitions=[0, 9]),
        elect.TopicPartitions(topic="unknown", partitions=[0]),
    ]
    listed = [ListPartitionReassignmentsTopics(name="known", partition_indexes=[0, 9])]
    return [
        (elect.ElectLeadersRequest(topic_partitions=elected, timeout_ms=5000), 2),
        (elect.ElectLeadersRequest(topic_partitions=elected, timeout_ms=5000, election_type=1), 1),
        (elect.ElectLeadersRequest(topic_partitions=elected, timeout_ms=5000, election_type=7), 2),
        (elect.ElectLeadersRequest(topic_partitions=elected, timeout_ms=5000), 0),
        (elect.ElectLeadersRequest(topic_partitions=[], timeout_ms=5000), 2),
        *(move("known", 0, replicas) for replicas in ([1], None, [2], [], [1, 1], [1, 2], [-1])),
        move("known", 9, [1]),
        move("known", 9, None),
        move("unknown", 0, [1]),
        (ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000), 0),
        (ListPartitionReassignmentsRequest(topics=listed, timeout_ms=5000), 0),
        (UnregisterBrokerRequest(broker_id=7), 0),
    ]


def the_quorum(side: Side) -> list[Request]:
    def ask(topic: str, index: int, version: int) -> Request:
        asked = [quorum.DescribeQuorumRequestPartitionData(partition_index=index)]
        topics = [quorum.DescribeQuorumRequestTopicData(topic_name=topic, partitions=asked)]
        return quorum.DescribeQuorumRequest(topics=topics), version

    return [
        *(ask("__cluster_metadata", 0, v) for v in (0, 1, 2)),
        ask("__cluster_metadata", 3, 2),
        ask("known", 0, 2),
    ]


def security(side: Side) -> list[Request]:
    which = {"operation": 1, "permission_type": 1}
    acl = create_acls.AclCreation(
        resource_type=2, resource_name="a", principal="User:x", host="*", operation=2, permission_type=3
    )
    return [
        *((describe_acls.DescribeAclsRequest(resource_type_filter=1, **which), v) for v in (1, 2, 3)),
        (create_acls.CreateAclsRequest(creations=[acl, acl]), 3),
        (create_acls.CreateAclsRequest(creations=[]), 2),
        (delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(resource_type_filter=2, **which)]), 3),
        *((CreateDelegationTokenRequest(max_lifetime_ms=1000), v) for v in (1, 2, 3)),
        (CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="b", max_lifetime_ms=1000), 3),
        (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2),
        (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2),
        (DescribeDelegationTokenRequest(owners=None), 3),
        (DescribeDelegationTokenRequest(owners=[]), 1),
    ]  # fmt: skip


def scram_users(side: Side) -> list[Request]:
    def up(name: str, mechanism: int = 1, iterations: int = 4096) -> set_users.ScramCredentialUpsertion:
        return set_users.ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
        )

    def gone(name: str, mechanism: int = 1) -> set_users.ScramCredentialDeletion:
        return set_users.ScramCredentialDeletion(name=name, mechanism=mechanism)

    def alter(deletions: tuple[object, ...] = (), upsertions: tuple[object, ...] = ()) -> Request:
        asked = set_users.AlterUserScramCredentialsRequest(
            deletions=list(deletions), upsertions=list(upsertions)
        )
        return asked, 0

    def told(*names: str) -> Request:
        users = [get_users.UserName(name=name) for name in names] or None
        return get_users.DescribeUserScramCredentialsRequest(users=users), 0

    return [
        told(),
        told("bob"),
        alter(upsertions=(up("bob"), up("al", 2, 8192))),
        alter(upsertions=(up("bob", 2), up("bad", 9))),
        told(),
        told("bob", "zed", "al", "al"),
        alter(upsertions=(up("bob", 1, 4095), up("al", 1, 16385), up(""))),
        alter(upsertions=(up("bob"), up("bob", 2))),
        alter(deletions=(gone("zed"), gone("al"), gone(""))),
        alter(deletions=(gone("x", 9),)),
        alter(deletions=(gone("al", 2), gone("bob"))),
        told(),
        alter(deletions=(gone("bob", 2),)),
        told(),
    ]


def quotas(side: Side) -> list[Request]:
    def alter(entity: list[tuple[str, str | None]], key: str, value: float | None) -> Request:
        ops = [set_quotas.OpData(key=key, value=value or 0, remove=value is None)]
        parts = [
            set_quotas.AlterClientQuotasRequestEntityData(entity_type=t, entity_name=n) for t, n in entity
        ]
        entry = set_quotas.AlterClientQuotasRequestEntryData(entity=parts, ops=ops)
        return set_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True), 1

    def twice() -> Request:
        request, version = alter([("user", "u")], rate, 1.0)
        request.entries *= 2
        return request, version

    def told(*components: tuple[str, int, str | None]) -> Request:
        made = [get_quotas.ComponentData(entity_type=t, match_type=k, match=m) for t, k, m in components]
        return get_quotas.DescribeClientQuotasRequest(components=made), 1

    rate = "producer_byte_rate"
    return [
        alter([("user", "u")], rate, None),
        alter([("foo", "1")], rate, 100.0),
        alter([], rate, 100.0),
        alter([("user", "u")], "nope", 1.0),
        alter([("user", "u")], rate, -1.0),
        alter([("user", "u")], rate, 1.5),
        alter([("user", "")], rate, 1.0),
        alter([("ip", None)], rate, 1.0),
        alter([("user", "u"), ("ip", "1.2.3.4")], rate, 10.0),
        told(),
        told(("user", 0, "u")),
        told(("foo", 2, None)),
        told(("user", 9, None)),
        told(("user", 0, None)),
        told(("user", 1, "x")),
        told(("user", 0, "u"), ("user", 0, "u")),
        told(("ip", 2, None), ("user", 2, None)),
        told(("", 2, None)),
        alter([("user", "u")], rate, 100.0),
        alter([("user", "u")], rate, 1e19),
        alter([("ip", None)], "connection_creation_rate", 3e9),
        alter([("ip", "no.such.host.invalid")], "connection_creation_rate", 1.0),
        twice(),
    ]


INTENDED: dict[str, dict[str, str]] = {
    "broker_configs_refused": {r"^22\.": "Kafka stores a property that nobody knows"},
    "features": {
        r"supported_features\[klamm": "our own: the ledger in docs/differences.md",
        r"finalized_features_epoch": "our count of changes, Kafka's offset of its metadata log",
        r"api_keys\[": "not served: the ledger in docs/differences.md",
    },
    "the_quorum": {
        r"(leader_epoch|high_watermark|log_end_offset|_timestamp)": "counts of ours",
        r"replica_directory_id": "each has an id of its own",
        r"nodes\[0\]\.listeners": "the endpoint of the broker: there is no other",
    },
}


@pytest.mark.parametrize(
    "case",
    [
        broker_configs, broker_configs_refused, topic_configs_replaced, group_configs, client_metrics, loggers, features,
        elections_and_reassignments, the_quorum, security, scram_users, quotas,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(two_brokers, case):
    two_brokers.compare(case, INTENDED.get(case.__name__))
