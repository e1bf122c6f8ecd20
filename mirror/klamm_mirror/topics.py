"""Brings the source's topics to the target: finds, creates, extends and configures them. One pass at a time.

Raises ClientError (a cluster is away), ConfigError (both clusters are the same).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_kafka.client import Cluster, Connection, broker_error
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_kafka.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from klamm_kafka.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm_kafka.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from klamm_kafka.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_mirror import internal_topics
from klamm_mirror.filters import NameFilter, config_filter, topic_filter
from klamm_mirror.policy import ReplicationPolicy, policy_from

log = logging.getLogger(__name__)

TOPIC: Final = 2
"""The resource type of a topic in requests about configs."""
_SET_BY_TOPIC: Final = 1
_SET, _DELETE = 0, 1

Configs = dict[str, dict[str, str | None]]


def wants_topic(
    topic: str, names: NameFilter, policy: ReplicationPolicy, target: str, *, heartbeats: bool
) -> bool:
    """Returns True for a topic to mirror: it matches, is no internal topic, and did not come from the target."""
    if policy.is_internal_topic(topic) or target in policy.topic_sources(topic):
        return False
    return names.wants(topic) or (heartbeats and policy.is_heartbeats_topic(topic))


class Topics:
    """The topics of one flow. `parsed` is the connector's configuration."""

    def __init__(self, parsed: Mapping[str, Any], source: Cluster, target: Cluster) -> None:
        self.ids: dict[str, str] = {}
        """Of the topics that `find` found, where the source gives topics ids."""
        self._parsed = parsed
        self._source = source
        self._target = target
        self._policy = policy_from(parsed)
        self._names = topic_filter(parsed)
        self._settings = config_filter(parsed)
        self._alias: str = parsed["source.cluster.alias"]
        self._timeout_ms: int = parsed["admin.timeout.ms"]

    async def check_clusters(self) -> None:
        """Refuses to mirror a cluster to itself: topics would multiply without end (`A.A.A.topic`)."""
        source, target = await self._source.refresh([]), await self._target.refresh([])
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            raise ConfigError(
                f"source.cluster.bootstrap.servers={self._parsed['source.cluster.bootstrap.servers']} and "
                f"target.cluster.bootstrap.servers={self._parsed['target.cluster.bootstrap.servers']} are one cluster "
                f"(id {source.cluster_id}): a cluster cannot be mirrored to itself",
                key="target.cluster.bootstrap.servers",
            )

    async def prepare_syncs(self) -> None:
        """Creates the topic of offset syncs."""
        parsed = self._parsed
        if not parsed["emit.offset-syncs.enabled"]:
            return
        at_target = parsed["offset-syncs.topic.location"] == "target"
        cluster = self._target if at_target else self._source
        topic = self._policy.offset_syncs_topic(self._alias if at_target else parsed["target.cluster.alias"])
        if await internal_topics.create(cluster, topic, parsed["offset-syncs.topic.replication.factor"]):
            log.info("made %s", topic)

    async def find(self) -> dict[str, int]:
        """Returns the source's topics to mirror, with their numbers of partitions."""
        found = await self._source.refresh(None)
        counts = {
            t.name: len(t.partitions)
            for t in found.topics
            if t.name is not None and not t.error_code and not t.is_internal and self.wants(t.name)
        }
        ids = {t.name: t.topic_id for t in found.topics if t.name in counts and t.topic_id != UUID_ZERO}
        self.ids = {name: topic_id.hex() for name, topic_id in ids.items()}
        return counts

    async def make(self, topics: Mapping[str, int]) -> None:
        """Creates missing remote topics and adds missing partitions."""
        there = {
            t.name: len(t.partitions) for t in (await self._target.refresh(None)).topics if not t.error_code
        }
        wanted = {self.remote(name): (name, count) for name, count in topics.items()}
        missing = {r: v for r, v in wanted.items() if r not in there}
        if missing:
            await self._create(missing)
        await self._grow({r: n for r, (_, n) in wanted.items() if 0 < there.get(r, 0) < n})

    async def sync_configs(self, topics: Sequence[str]) -> int:
        """Copies the settings of source topics to their remote topics. Returns how many topics changed."""
        ours = await self._configs(self._source, topics)
        theirs = await self._configs(self._target, [self.remote(t) for t in topics])
        changes = []
        for topic, wanted in ours.items():
            remote = self.remote(topic)
            present = theirs.get(remote)
            if present is None:
                continue
            edits = [
                AlterableConfig(name=name, config_operation=_SET, value=value)
                for name, value in wanted.items() if present.get(name) != value
            ] + [
                AlterableConfig(name=name, config_operation=_DELETE, value=None)
                for name in present if name not in wanted
            ]  # fmt: skip
            if edits:
                changes.append(AlterConfigsResource(resource_type=TOPIC, resource_name=remote, configs=edits))
        if changes:
            await self._alter(changes)
        return len(changes)

    def wants(self, topic: str) -> bool:
        """Returns True for a name that the flow mirrors, whether there is such a topic or not."""
        parsed = self._parsed
        return wants_topic(
            topic, self._names, self._policy, parsed["target.cluster.alias"],
            heartbeats=parsed["heartbeats.replication.enabled"],
        )  # fmt: skip

    def remote(self, topic: str) -> str:
        """Returns the target's name for a topic of the source."""
        return self._policy.format_remote_topic(self._alias, topic)

    # ---- inside

    async def _create(self, missing: Mapping[str, tuple[str, int]]) -> None:
        replicas = await self._replicas()
        configs = await self._configs(self._source, [name for name, _ in missing.values()])
        wanted = [
            CreatableTopic(
                name=remote,
                num_partitions=count,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.get(name, {}).items()],
            )
            for remote, (name, count) in missing.items()
        ]
        answer: CreateTopicsResponse = await (await _controller(self._target)).request(
            CreateTopicsRequest(topics=wanted, timeout_ms=self._timeout_ms), timeout_s=self._timeout_ms / 1000
        )
        for result in answer.topics:
            if result.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                log.info("made %s", result.name)
                continue
            self._refused(result.error_code, f"making {result.name}", result.error_message)

    async def _grow(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        wanted = [CreatePartitionsTopic(name=n, count=c, assignments=None) for n, c in counts.items()]
        answer: CreatePartitionsResponse = await (await _controller(self._target)).request(
            CreatePartitionsRequest(topics=wanted, timeout_ms=self._timeout_ms, validate_only=False)
        )
        for result in answer.results:
            if result.error_code:
                self._refused(result.error_code, f"adding partitions to {result.name}", result.error_message)
            else:
                log.info("%s has %d partitions now", result.name, counts[result.name])

    async def _alter(self, changes: list[AlterConfigsResource]) -> None:
        answer: IncrementalAlterConfigsResponse = await (await _controller(self._target)).request(
            IncrementalAlterConfigsRequest(resources=changes, validate_only=False)
        )
        for result in answer.responses:
            if result.error_code:
                what = f"settings of {result.resource_name}"
                self._refused(result.error_code, what, result.error_message)

    async def _configs(self, cluster: Cluster, topics: Sequence[str]) -> Configs:
        """Returns the topics' own settings that are to be copied. Leaves out a topic that may not be described."""
        if not topics:
            return {}
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=t, configuration_keys=None)
            for t in topics
        ]
        answer: DescribeConfigsResponse = await cluster.request(DescribeConfigsRequest(resources=resources))
        return {
            result.resource_name: {
                c.name: c.value
                for c in result.configs
                if c.config_source == _SET_BY_TOPIC and not c.is_sensitive and not c.read_only
                and self._settings.wants(c.name)
            }
            for result in answer.results if not result.error_code
        }  # fmt: skip

    async def _replicas(self) -> int:
        brokers, wanted = len((await self._target.refresh([])).brokers), self._parsed["replication.factor"]
        if wanted > brokers > 0:
            log.warning(
                "remote topics get %d replicas instead of %d: there are no more brokers", brokers, wanted
            )
            return brokers
        return int(wanted)

    def _refused(self, code: int, what: str, said: str | None) -> None:
        """Logs a topic that the target refuses; the others continue."""
        error = broker_error(code, what)
        if error.retriable:
            raise error
        log.error("%s%s", error, f": {said}" if said else "")


async def _controller(cluster: Cluster) -> Connection:
    node = cluster.metadata.controller_id if cluster.metadata is not None else -1
    return await (cluster.broker(node) if node >= 0 else cluster.any_broker())
