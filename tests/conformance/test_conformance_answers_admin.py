"""Topics, configurations and the cluster: our answers beside Apache Kafka's, field by field."""

from __future__ import annotations

import pytest
from support.admin_cases import (
    ALTER_REFUSED,
    APPEND,
    BROKER,
    CREATE_REFUSED,
    DELETE,
    DESCRIBE_REFUSED,
    GROWTH,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    assigned,
    config,
    creatable,
)
from support.answers import NOBODY, Request, Side

from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreateTopicsRequest,
)
from klamm_kafka.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm_kafka.wire.messages.describe_cluster import DescribeClusterRequest
from klamm_kafka.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm_kafka.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from klamm_kafka.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.usefixtures("apache_kafka")


def api_versions(side: Side) -> list[Request]:
    return [(ApiVersionsRequest(client_software_name="x", client_software_version="1"), v) for v in (0, 3, 4)]


def api_versions_with_a_bad_name(side: Side) -> list[Request]:
    return [(ApiVersionsRequest(client_software_name="", client_software_version=" "), 3)]


def metadata(side: Side) -> list[Request]:
    named = [MetadataRequestTopic(name=n) for n in ("known", "empty")]
    return [(MetadataRequest(topics=named), v) for v in (0, 1, 4, 8, 9, 12, 13)]


def metadata_of_what_is_not_there(side: Side) -> list[Request]:
    by_name = [MetadataRequestTopic(name=n) for n in ("unknown", "bad/name", "", "x" * 250)]
    by_id = [MetadataRequestTopic(topic_id=i, name=None) for i in (NOBODY, side.topic_ids["known"])]
    return [
        (MetadataRequest(topics=by_name, allow_auto_topic_creation=False), 12),
        (MetadataRequest(topics=by_id, allow_auto_topic_creation=False), 12),
        (MetadataRequest(topics=[], allow_auto_topic_creation=False), 12),
        (MetadataRequest(topics=named_bad(), allow_auto_topic_creation=True), 12),
    ]


def named_bad() -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=n) for n in (".", "..", "bad name")]


def metadata_with_operations(side: Side) -> list[Request]:
    topics = [MetadataRequestTopic(name="known")]
    asked = MetadataRequest(
        topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    return [(asked, 8)]


def describe_cluster(side: Side) -> list[Request]:
    return [
        (DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
        (DescribeClusterRequest(include_fenced_brokers=True), 2),
        (DescribeClusterRequest(endpoint_type=2), 1),
        (DescribeClusterRequest(endpoint_type=7), 1),
    ]


def describe_topic_partitions(side: Side) -> list[Request]:
    cursor = DescribeTopicPartitionsRequestCursor(topic_name="known", partition_index=1)
    named = [TopicRequest(name=n) for n in ("known", "empty", "unknown", "bad/name")]
    return [
        (DescribeTopicPartitionsRequest(topics=named), 0),
        (DescribeTopicPartitionsRequest(topics=named, response_partition_limit=3), 0),
        (DescribeTopicPartitionsRequest(topics=named, cursor=cursor), 0),
    ]


def describe_log_dirs(side: Side) -> list[Request]:
    topics = [
        DescribableLogDirTopic(topic="known", partitions=[0, 1, 9]),
        DescribableLogDirTopic(topic="unknown", partitions=[0]),
    ]
    return [(DescribeLogDirsRequest(topics=topics), v) for v in (1, 4, 5)]


def describe_topic_configs(side: Side) -> list[Request]:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="known", configuration_keys=None)
    return [
        (DescribeConfigsRequest(resources=[resource]), 1),
        (DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4),
    ]


def describe_broker_configs(side: Side) -> list[Request]:
    keys = ["num.partitions", "log.retention.ms", "log.retention.hours", "message.max.bytes", "auto.create.topics.enable",
            "log.cleanup.policy", "offsets.retention.minutes", "compression.type", "no.such.key", "log.segment.bytes",
            "group.initial.rebalance.delay.ms", "unclean.leader.election.enable"]  # fmt: skip
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=keys)
    return [(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)]


def describe_configs_of_what_is_not_there(side: Side) -> list[Request]:
    return [
        (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=t, resource_name=n, configuration_keys=None)]), 4)
        for t, n, _ in DESCRIBE_REFUSED
    ]  # fmt: skip


def create_topics_checked_only(side: Side) -> list[Request]:
    topics = [
        creatable("good", num_partitions=3, replication_factor=1),
        creatable("defaults"),
        creatable("assigned", **assigned([1], [1], [1])),
        creatable("with.config", num_partitions=1, replication_factor=1, **config("retention.ms", "5")),
    ]
    return [(CreateTopicsRequest(topics=topics, validate_only=True), v) for v in (2, 5, 7)]


def create_topics_refused(side: Side) -> list[Request]:
    refused = [
        creatable(**{"name": f"refused-{n}"} | fields) for n, (fields, *_) in enumerate(CREATE_REFUSED)
    ]
    topics = [creatable("known"), *refused, creatable("doubled"), creatable("doubled")]
    return [(CreateTopicsRequest(topics=topics), 7), (CreateTopicsRequest(topics=topics), 4)]


def create_topics_whose_names_collide(side: Side) -> list[Request]:
    return [
        (CreateTopicsRequest(topics=[creatable("a.b")]), 7),
        (CreateTopicsRequest(topics=[creatable("a_b")]), 7),
    ]


def delete_topics(side: Side) -> list[Request]:
    by_id = [
        DeleteTopicState(topic_id=NOBODY),
        DeleteTopicState(name="unknown"),
        DeleteTopicState(name="bad/name"),
    ]
    both = [DeleteTopicState(name="known", topic_id=side.topic_ids["known"])]
    by_id_of_known = DeleteTopicState(topic_id=side.topic_ids["known"])
    return [
        (DeleteTopicsRequest(topic_names=["unknown", "bad/name", ""], timeout_ms=5000), 1),
        (DeleteTopicsRequest(topics=by_id, timeout_ms=5000), 6),
        (DeleteTopicsRequest(topics=both, timeout_ms=5000), 6),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="known")] * 2, timeout_ms=5000), 6),
        (DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=both[0].topic_id)] * 2, timeout_ms=5000), 6),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="known"), by_id_of_known], timeout_ms=5000), 6),
        (DeleteTopicsRequest(topic_names=["known", "known"], timeout_ms=5000), 4),
    ]


def create_partitions(side: Side) -> list[Request]:
    wanted = [("unknown", 3, None), *(("known", count, assignments) for count, assignments, _ in GROWTH)]
    return [
        (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=n, count=c, assignments=a)], timeout_ms=5000, validate_only=True), 3)
        for n, c, a in wanted
    ]  # fmt: skip


def alter(*changes: Change, name: str = "empty", kind: int = TOPIC, only: bool = True) -> Request:
    configs = [AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=only), 1


def alter_configs(side: Side) -> list[Request]:
    return [
        *(alter(*changes) for changes, *_ in ALTER_REFUSED),
        alter(("retention.ms", SET, "5")),
        alter(("retention.ms", DELETE, None)),
        alter(("no.such.key", DELETE, None)),
        alter(("cleanup.policy", APPEND, "compact")),
        alter(("cleanup.policy", SUBTRACT, "delete")),
        alter(("retention.ms", SET, "5"), name="unknown"),
        alter(("retention.ms", SET, "5"), name="bad/name"),
        alter(("retention.ms", SET, "5"), name=""),
        alter(("x", SET, "5"), kind=99),
    ]


def altered_configs_as_described(side: Side) -> list[Request]:
    resource = DescribeConfigsResource(
        resource_type=TOPIC,
        resource_name="empty",
        configuration_keys=["retention.ms", "cleanup.policy", "nope"],
    )
    described: Request = (DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    return [
        alter(("retention.ms", SET, "777777"), ("cleanup.policy", APPEND, "compact"), only=False),
        described,
        alter(("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "compact"), only=False),
        described,
        alter(("cleanup.policy", DELETE, None), only=False),
    ]


INTENDED: dict[str, dict[str, str]] = {
    "api_versions": {
        r"api_keys\[(1[^08]|[2-9]\d)\]": "not served: the ledger in docs/differences.md; what is served has Kafka's versions",
        r"supported_features\[klamm": "our own: the ledger in docs/differences.md",
        r"finalized_features_epoch": "our count of changes, Kafka's offset of its metadata log",
    },
    "create_topics_checked_only": {r"\.topic_id": "a topic that was only checked has no id"},
    "alter_configs": {
        r"^5\..*error_code": "an operation that does not exist is the client's error, not ours"
    },
}


@pytest.mark.parametrize(
    "case",
    [
        api_versions, api_versions_with_a_bad_name, metadata, metadata_of_what_is_not_there, metadata_with_operations,
        describe_cluster, describe_topic_partitions, describe_log_dirs, describe_topic_configs,
        describe_broker_configs, describe_configs_of_what_is_not_there, create_topics_checked_only, create_topics_refused,
        create_topics_whose_names_collide, delete_topics, create_partitions, alter_configs,
        altered_configs_as_described,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_answers_are_kafkas(two_brokers, case):
    two_brokers.compare(case, INTENDED.get(case.__name__))
