"""Carries out plans about topics, and describes topics. Raises ClientError.

A topic that the cluster refuses is logged, and the others continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from klamm_kafka.client import Cluster
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from klamm_kafka.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm_mirror.settings.keep_offsets import OWN_KEYS
from klamm_mirror.target_admin import TOPIC, Admin
from klamm_mirror.topics.topic_plan import ConfigChange, MorePartitions, NewTopic, Origin, Setting
from klamm_plugins import mirror

log = logging.getLogger(__name__)


async def create(admin: Admin, topics: Sequence[NewTopic]) -> None:
    """Creates topics. One that exists already is as good."""
    if not topics:
        return
    refused = await admin.create_topics(
        [
            mirror.NewTopic(
                name=t.name, num_partitions=t.partitions, replication_factor=t.replicas, configs=t.configs
            )
            for t in topics
        ]
    )
    _log("making", refused)
    for topic in topics:
        if topic.name not in refused:
            log.info("made %s", topic.name)


async def grow(admin: Admin, topics: Sequence[MorePartitions]) -> None:
    """Adds partitions to topics."""
    if not topics:
        return
    refused = await admin.create_partitions({topic.name: topic.wanted for topic in topics})
    _log("adding partitions to", refused)
    for topic in topics:
        if topic.name not in refused:
            log.info("%s has %d partitions now", topic.name, topic.wanted)


async def configure(admin: Admin, changes: Sequence[ConfigChange]) -> None:
    """Changes settings of topics."""
    edits: dict[str, dict[str, str | None]] = {}
    for change in changes:
        edits.setdefault(change.topic, {})[change.name] = change.new
    if edits:
        _log("configuring", await admin.incremental_alter_configs(edits))


def _log(what: str, refused: Mapping[str, str]) -> None:
    for topic, why in refused.items():
        log.error("%s %s is refused: %s", what, topic, why)


async def absent(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """Returns the topics that no broker of a cluster knows. A broker alone may be behind. Raises ClientError, also where a
    broker does not answer.
    """
    if not topics:
        return []
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    unknown = set(topics)
    for node in [b.node_id for b in (await cluster.refresh([])).brokers]:
        answer: MetadataResponse = await (await cluster.broker(node)).request(request)
        unknown &= {t.name for t in answer.topics if t.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return [name for name in topics if name in unknown]


async def settings(
    cluster: Cluster, topics: Sequence[str], keys: Collection[str] | None = None
) -> dict[str, list[Setting]]:
    """Returns the settings of topics that may be changed, those of `keys` (None: all). Leaves out a topic that may not
    be described.
    """
    if not topics:
        return {}
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name=t, configuration_keys=None if keys is None else sorted(keys)
        )
        for t in topics
    ]
    answer: DescribeConfigsResponse = await cluster.request(DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: [
            Setting(c.name, c.value, Origin(c.config_source))
            for c in result.configs if not c.is_sensitive and (not c.read_only or c.name in OWN_KEYS)
        ]
        for result in answer.results if not result.error_code
    }  # fmt: skip


async def own_configs(
    cluster: Cluster, topics: Sequence[str], wants: Callable[[str], bool], keys: Collection[str] | None = None
) -> dict[str, dict[str, str | None]]:
    """Returns the topics' own settings whose names are wanted. Leaves out a topic that may not be described. `keys` are all
    that may be wanted; None: any.
    """
    found = await settings(cluster, topics, keys)
    return {
        topic: {s.name: s.value for s in own if s.origin is Origin.TOPIC and wants(s.name)}
        for topic, own in found.items()
    }
