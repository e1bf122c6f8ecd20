"""Brings the source's topics to the target: finds, creates, extends and configures them. One pass at a time.

Raises ClientError (a cluster is away), ConfigError (both clusters are the same).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.wire.fields import UUID_ZERO
from klamm_mirror.origins import Origin
from klamm_mirror.settings.keep_offsets import FEATURE, KEEP, MIRROR, SOURCE, STATE, missing_feature
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.settings.policy import ReplicationPolicy
from klamm_mirror.target_admin import AdminRequests
from klamm_mirror.topics import internal_topics, topic_admin
from klamm_mirror.topics.config_policy import ConfigPolicy
from klamm_mirror.topics.mirror_states import foreign_parts, source_text
from klamm_mirror.topics.topic_plan import (
    NewTopic,
    TopicPlan,
    plan_configs,
    plan_partitions,
    remote_names,
    target_configs,
)

log = logging.getLogger(__name__)

DELETIONS: Final = "sync.topic.deletions"
DELETE: Final = "delete"


def wants_topic(
    topic: str, wants: Callable[[str], bool], policy: ReplicationPolicy, target: str, *, heartbeats: bool
) -> bool:
    """Returns True for a topic to mirror: it matches, is no internal topic, and did not come from the target."""
    if policy.is_internal_topic(topic) or target in policy.topic_sources(topic):
        return False
    return wants(topic) or (heartbeats and policy.is_heartbeats_topic(topic))


class Topics:
    """The topics of one flow. `parsed` is the connector's configuration, `plugins` are those that it names.

    `remotes` are the target's names of topics that have another one than the replication policy gives.
    """

    def __init__(
        self, parsed: Mapping[str, Any], plugins: FlowPlugins, source: Cluster, target: Cluster,
        remotes: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.ids: dict[str, bytes] = {}
        """Of the topics that `find` found, where the source gives topics ids."""
        self.cluster: str | None = None
        """The id of the cluster that `find` asked."""
        self._parsed = parsed
        self._source = source
        self._target = target
        self._policy = plugins.policy
        self._wants = plugins.wants_topic
        self._settings = plugins.configs
        self._plugins = plugins
        self._remotes = remotes or {}
        self._alias: str = parsed["source.cluster.alias"]

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
        if self._parsed[KEEP] and FEATURE not in (await self._target.any_broker()).features:
            parsed = self._parsed
            raise missing_feature(parsed["target.cluster.alias"], parsed["target.cluster.bootstrap.servers"])

    async def prepare_segments(self) -> None:
        """Creates the topic of offset segments at the target. A target that refuses it does without."""
        parsed = self._parsed
        if not parsed["mirror.offset.segments.enabled"] or parsed[KEEP]:
            return
        topic = self._policy.offset_segments_topic(self._alias)
        admin, replicas = (
            self._plugins.forwarded(self._target),
            parsed["offset-syncs.topic.replication.factor"],
        )
        try:
            await internal_topics.create(self._target, topic, replicas, admin=admin)
        except BrokerError as e:
            if e.retriable:
                raise
            log.warning("offset segments are not kept, groups are translated by offset syncs: %s", e)

    async def prepare_syncs(self) -> None:
        """Creates the topic of offset syncs."""
        parsed = self._parsed
        if not parsed["emit.offset-syncs.enabled"] or parsed[KEEP]:
            return
        at_target = parsed["offset-syncs.topic.location"] == "target"
        cluster = self._target if at_target else self._source
        topic = self._policy.offset_syncs_topic(self._alias if at_target else parsed["target.cluster.alias"])
        admin = self._plugins.forwarded(self._target) if at_target else None
        replicas = parsed["offset-syncs.topic.replication.factor"]
        await internal_topics.create(cluster, topic, replicas, admin=admin)

    async def find(self) -> dict[str, int]:
        """Returns the source's topics to mirror, with their numbers of partitions."""
        found = await self._source.refresh(None)
        self.cluster = found.cluster_id
        counts = {
            t.name: len(t.partitions)
            for t in found.topics
            if t.name is not None and not t.error_code and not t.is_internal and self.wants(t.name)
        }
        self.ids = {t.name: t.topic_id for t in found.topics if t.name in counts and t.topic_id != UUID_ZERO}
        return counts

    async def plan(self, topics: Mapping[str, int]) -> TopicPlan:
        """Returns which remote topics are missing or have too few partitions. Raises ConfigError for names that collide."""
        there = {
            t.name: len(t.partitions)
            for t in (await self._target.refresh(None)).topics if not t.error_code and t.name is not None
        }  # fmt: skip
        names = remote_names(topics, self.remote)
        missing, grow = plan_partitions(topics, there, names)
        configs = await self._target_configs(list(missing))
        replicas = await self._replicas() if missing else 0
        marked = await self._mirror_settings(list(missing)) if missing and self._parsed[KEEP] else {}
        create = (
            NewTopic(
                name=names[t],
                source=t,
                partitions=count,
                replicas=replicas,
                configs=_set(configs.get(t, {})) | marked.get(t, {}),
            )
            for t, count in missing.items()
        )
        return TopicPlan(create=tuple(create), grow=grow)

    async def _mirror_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Returns what makes mirror topics of these topics' copies: the state, and the cluster that they are from first."""
        here = Origin((await self._source.refresh([])).cluster_id or f"alias:{self._alias}", self._alias)
        foreign = await foreign_parts(self._source, topics)
        first = {t: part.origin or here for t, part in foreign.items() if part.before is None}
        return {t: {STATE: MIRROR, SOURCE: source_text(first.get(t, here))} for t in topics}

    async def plan_configs(self, topics: Sequence[str], policy: ConfigPolicy) -> TopicPlan:
        """Returns which settings of remote topics become those of their sources."""
        names = {topic: self.remote(topic) for topic in topics}
        ours = await self._target_configs(topics)
        theirs = await topic_admin.own_configs(self._target, [*names.values()], self._settings.wants)
        return TopicPlan(configure=policy.chosen(ours, names, plan_configs(ours, theirs, names)))

    async def carry_out(self, plan: TopicPlan) -> None:
        """Creates, extends and configures remote topics."""
        admin = self._plugins.admin(self._target)
        await topic_admin.create(admin, plan.create)
        await topic_admin.grow(admin, plan.grow)
        await topic_admin.configure(admin, plan.configure)

    async def delete(self, topics: Sequence[str], made: Mapping[str, bytes]) -> list[str]:
        """Deletes the remote topics of topics that the source has deleted, as all of its brokers say. `made` are the ids of the
        remote topics that the flow made, by source topic: another topic of the name is somebody's own, and stays. Returns the
        names of those that stay. Raises ClientError.
        """
        try:
            topics = await topic_admin.absent(self._source, topics)
        except ClientError as e:
            if not e.retriable:
                raise
            log.warning("nothing is deleted (%s) before all brokers of the source answer: %s", DELETIONS, e)
            return []
        there = {t.name: t.topic_id for t in (await self._target.refresh(None)).topics if not t.error_code}
        names = {name: made.get(topic) for topic in topics if (name := self.remote(topic)) in there}
        ours = {name: topic_id for name, topic_id in names.items() if topic_id and topic_id == there[name]}
        refused = await AdminRequests(self._target, self._parsed["admin.timeout.ms"]).delete_topics(ours)
        for name in ours:
            if name in refused:
                log.error("%s", refused[name])
            else:
                log.warning("%s is deleted, as its source was (%s)", name, DELETIONS)
        return [name for name in names if name not in ours]

    async def make(self, topics: Mapping[str, int]) -> dict[str, bytes]:
        """Creates missing remote topics and adds missing partitions. Returns the ids of the created ones, by source topic."""
        plan = await self.plan(topics)
        await self.carry_out(plan)
        if not plan.create:
            return {}
        answer = await self._target.refresh([new.name for new in plan.create])
        ids = {t.name: t.topic_id for t in answer.topics if not t.error_code and t.topic_id != UUID_ZERO}
        return {new.source: ids[new.name] for new in plan.create if new.name in ids}

    async def sync_configs(self, topics: Sequence[str], policy: ConfigPolicy) -> int:
        """Copies the settings of source topics to their remote topics. Returns how many topics changed."""
        plan = await self.plan_configs(topics, policy)
        await self.carry_out(plan)
        policy.carried_out()
        return len({change.topic for change in plan.configure})

    def wants(self, topic: str) -> bool:
        """Returns True for a name that the flow mirrors, whether there is such a topic or not."""
        parsed = self._parsed
        return wants_topic(
            topic, self._wants, self._policy, parsed["target.cluster.alias"],
            heartbeats=parsed["heartbeats.replication.enabled"],
        )  # fmt: skip

    def remote(self, topic: str) -> str:
        """Returns the target's name for a topic of the source."""
        return self._remotes.get(topic) or self._policy.remote_topic(topic)

    async def _target_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Returns the settings of source topics for the target."""
        wants = self._settings
        found = await topic_admin.settings(self._source, topics)
        return {t: target_configs(own, wants.wants, wants.wants_default) for t, own in found.items()}

    async def _replicas(self) -> int:
        brokers, wanted = len((await self._target.refresh([])).brokers), self._parsed["replication.factor"]
        if wanted > brokers > 0:
            log.warning(
                "remote topics get %d replicas instead of %d: there are no more brokers", brokers, wanted
            )
            return brokers
        return int(wanted)


def _set(configs: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in configs.items() if value is not None}
