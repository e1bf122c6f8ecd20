"""Streams groups in simulated time: members that behave as Kafka Streams' threads do, and a broker that makes internal topics."""

from __future__ import annotations

from typing import Any

from support.consumer_group_sim import SimTopics
from support.group_sim import GROUP, Sim

from klamm_broker.coordinator.consumer.topics import TopicInfo
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.streams.config import StreamsConfig, StreamsSettings
from klamm_broker.coordinator.streams.group import StreamsGroup
from klamm_broker.coordinator.streams.model import (
    StreamsHeartbeat,
    StreamsResult,
)
from klamm_broker.coordinator.streams.tasks import TaskId, TaskSet, each
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages import streams_group_records as stored

Tasks = dict[str, set[int]]


def topology(*sources: str, log: str = "log", epoch: int = 0) -> stored.StreamsGroupTopologyValue:
    """Returns a subtopology for each source; the first one has state (unless `log` is empty)."""
    subtopologies = [
        stored.Subtopology(
            subtopology_id=str(n),
            source_topics=[source],
            state_changelog_topics=[stored.TopicInfo(name=log)] if log and n == 0 else [],
        )
        for n, source in enumerate(sources)
    ]
    return stored.StreamsGroupTopologyValue(epoch=epoch, subtopologies=subtopologies)


class StreamsSim(Sim):
    """A `Sim` whose coordinator knows topics. `settings` are those of every group."""

    def __init__(
        self,
        *,
        topics: SimTopics | None = None,
        settings: StreamsSettings | None = None,
        max_size: int = 100,
        **config: Any,
    ) -> None:
        self.topics = topics or SimTopics()
        self.settings = settings or StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
        self.max_size = max_size
        super().__init__(**config)

    def make(self, config: Any, new_uuid: Any) -> GroupCoordinator:
        streams = StreamsConfig(settings=lambda _: self.settings, max_size=self.max_size)
        return GroupCoordinator(config, streams=streams, topics=self.topics, new_uuid=new_uuid)

    def restarted(self, **config: Any) -> StreamsSim:
        more = {"topics": self.topics, "settings": self.settings, "max_size": self.max_size, **config}
        return super().restarted(**more)  # type: ignore[return-value]

    def create_topic(self, name: str, partitions: int) -> TopicInfo:
        created = self.topics.by_name(name) is None
        topic = self.topics.put(name, partitions)
        self.coordinator.on_topics_changed([name], created=created)
        return topic

    def delete_topic(self, name: str) -> None:
        self.topics.remove(name)
        self.coordinator.on_topics_changed([name])

    @property
    def group(self) -> StreamsGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def send(self, **fields: Any) -> str:
        """Sends a heartbeat; returns its token."""
        token = self.token("heartbeat")
        request = StreamsHeartbeat(**{"group_id": GROUP, "client_host": "/127.0.0.1", **fields})
        self.run(self.coordinator.streams.heartbeat(request, token, self.now))
        return token

    def beat(self, **fields: Any) -> StreamsResult:
        """Sends a heartbeat that is answered at once; missing internal topics are made."""
        result = self.replies[self.send(**fields)]
        assert isinstance(result, StreamsResult)
        for topic in result.missing_topics:
            self.create_topic(topic.name, topic.partitions)
        return result


class SimThread:
    """A thread of an application: joins, sends heartbeats, gives up at once what it has to (unless `slow`), joins again when fenced.

    `active` and `standby` are the tasks that it may be working on: told to own, and not yet said to be given up.
    """

    def __init__(
        self, sim: StreamsSim, name: str, process: str, topology: stored.StreamsGroupTopologyValue
    ) -> None:
        self.sim, self.name, self.process, self.topology = sim, name, process, topology
        self.slow = False
        self.epoch = 0
        self.active: Tasks = {}
        self.standby: Tasks = {}
        self.told: tuple[Tasks, Tasks] | None = None

    def fields(self) -> dict[str, Any]:
        joins = self.epoch == 0
        return {
            "member_id": self.name,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 30_000,
            "topology": self.topology if joins else None,
            "process_id": self.process,
            "active": {} if joins else frozen(self.active),
            "standby": {} if joins else frozen(self.standby),
            "warmup": {},
        }

    def beat(self) -> StreamsResult:
        result = self.sim.beat(**self.fields())
        self.take(result)
        return result

    def take(self, result: StreamsResult) -> None:
        if result.error in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.epoch, self.active, self.standby, self.told = 0, {}, {}, None
        if result.error is not ErrorCode.NONE:
            return
        self.epoch = result.member_epoch
        if result.assigned is not None:
            active = {s: set(p) for s, p in result.assigned.active.items()}
            standby = {s: set(p) for s, p in result.assigned.standby.items()}
            self.told = active, standby
            self.active = union(self.active, active) if self.slow else active
            self.standby = union(self.standby, standby) if self.slow else standby
        elif self.told is not None and not self.slow:
            self.active, self.standby = ({s: set(p) for s, p in t.items()} for t in self.told)

    def leave(self) -> None:
        self.sim.beat(member_id=self.name, member_epoch=-1)
        self.epoch, self.active, self.standby, self.told = 0, {}, {}, None

    @property
    def tasks(self) -> set[TaskId]:
        return {*each(self.active), *each(self.standby)}


def frozen(tasks: Tasks) -> dict[str, frozenset[int]]:
    return {s: frozenset(p) for s, p in tasks.items() if p}


def union(one: Tasks, other: Tasks) -> Tasks:
    return {s: one.get(s, set()) | other.get(s, set()) for s in one.keys() | other.keys()}


def task_set(tasks: TaskSet) -> tuple[set[TaskId], set[TaskId]]:
    return set(each(tasks.active)), set(each(tasks.standby))
