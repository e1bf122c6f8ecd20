"""Consumer groups in simulated time: topics that change, members that behave as Kafka's consumers do."""

from __future__ import annotations

import random
from typing import Any

from support.group_sim import GROUP, Sim

from klamm_broker.coordinator.consumer.consumer_protocol import read_assignment
from klamm_broker.coordinator.consumer.group import ConsumerGroup
from klamm_broker.coordinator.consumer.model import ConsumerConfig, HeartbeatRequest, HeartbeatResult
from klamm_broker.coordinator.consumer.topics import TopicInfo
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import Protocol
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)


class SimTopics:
    """The topics of a cluster."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, TopicInfo] = {}
        self._by_id: dict[bytes, TopicInfo] = {}
        self._made = 0

    def by_name(self, name: str) -> TopicInfo | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def names(self) -> list[str]:
        return list(self._by_name)

    def put(self, name: str, partitions: int) -> TopicInfo:
        """Create a topic, or give it more partitions."""
        old = self._by_name.get(name)
        self._made += old is None
        topic = TopicInfo(name, self._made.to_bytes(16, "big") if old is None else old.id, partitions)
        self._by_name[name] = self._by_id[topic.id] = topic
        self.version += 1
        return topic

    def remove(self, name: str) -> None:
        del self._by_id[self._by_name.pop(name).id]
        self.version += 1


class ConsumerSim(Sim):
    """A `Sim` whose coordinator knows topics. `consumer` are keywords of ConsumerConfig."""

    def __init__(
        self, *, topics: SimTopics | None = None, consumer: dict[str, Any] | None = None, **config: Any
    ) -> None:
        self.topics = topics or SimTopics()
        self.consumer = consumer or {}
        super().__init__(**config)

    def make(self, config: Any, new_uuid: Any) -> GroupCoordinator:
        return GroupCoordinator(
            config, consumer=ConsumerConfig(**self.consumer), topics=self.topics, new_uuid=new_uuid
        )

    def restarted(self, **config: Any) -> ConsumerSim:
        return super().restarted(topics=self.topics, consumer=self.consumer, **config)  # type: ignore[return-value]

    def create_topic(self, name: str, partitions: int) -> TopicInfo:
        created = self.topics.by_name(name) is None
        topic = self.topics.put(name, partitions)
        self.coordinator.on_topics_changed([name], created=created)
        return topic

    def delete_topic(self, name: str) -> None:
        self.topics.remove(name)
        self.coordinator.on_topics_changed([name])

    @property
    def group(self) -> ConsumerGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def send(self, **fields: Any) -> str:
        """Sends a heartbeat; returns its token."""
        token = self.token("heartbeat")
        fields.setdefault("client_host", "/127.0.0.1")
        request = HeartbeatRequest(**{"group_id": GROUP, **fields})
        self.run(self.coordinator.consumer_heartbeat(request, token, self.now))
        return token

    def beat(self, **fields: Any) -> HeartbeatResult:
        """Sends a heartbeat that is answered at once."""
        result = self.replies[self.send(**fields)]
        assert isinstance(result, HeartbeatResult)
        return result


class SimMember:
    """A consumer: joins, sends heartbeats, gives up at once what it has to (unless `slow`), starts over when fenced.

    `owned` is what it may be reading at the moment: what it was told to own and has not yet said that it gave up.
    """

    def __init__(
        self,
        sim: ConsumerSim,
        name: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        slow: bool = False,
        assignor: str | None = None,
    ) -> None:
        self.sim = sim
        self.name = name
        self.topics: list[str] | None = list(topics)
        self.regex = regex
        self.instance = instance
        self.slow = slow
        self.assignor = assignor
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.target: dict[bytes, set[int]] | None = None
        self.waiting: str | None = None

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}

    def fields(self) -> dict[str, Any]:
        joins = self.epoch == 0
        return {
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": 30_000,
            "topics": self.topics,
            "regex": self.regex,
            "server_assignor": self.assignor,
            "owned": {} if joins else {t: frozenset(p) for t, p in self.owned.items()},
        }

    def beat(self) -> HeartbeatResult:
        """Sends a full heartbeat that is answered at once; returns what follows from it."""
        result = self.sim.beat(**self.fields())
        self.take(result)
        return result

    def take(self, result: HeartbeatResult) -> None:
        if result.error in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.epoch, self.owned = 0, {}
            return
        if result.error is not ErrorCode.NONE:
            return
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.target = {t: set(p) for t, p in result.assignment.items()}
        if self.target is not None and not self.slow:
            self.owned = {t: set(p) for t, p in self.target.items() if p}

    def leave(self, epoch: int = -1) -> ErrorCode:
        result = self.sim.beat(member_id=self.name, member_epoch=epoch, instance_id=self.instance)
        self.epoch, self.owned, self.target = 0, {}, None
        return result.error


class ClassicMember:
    """A consumer of the classic protocol with a cooperative assignor: joins, syncs, gives up, joins again."""

    def __init__(self, sim: ConsumerSim, *topics: str, instance: str | None = None) -> None:
        self.sim = sim
        self.topics = topics
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: dict[bytes, set[int]] = {}

    @property
    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}

    def metadata(self) -> bytes:
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic=topic.name, partitions=sorted(p))
            for t, p in self.owned.items()
            if (topic := self.sim.topics.by_id(t)) is not None  # deleted meanwhile
        ]
        said = ConsumerProtocolSubscription(topics=list(self.topics), user_data=None, owned_partitions=owned)
        return b"\0\1" + said.encode(1)

    def join(self) -> Any:
        """JoinGroup; its result."""
        protocols = (Protocol("cooperative-sticky", self.metadata()),)
        kwargs = {
            "protocols": protocols,
            "protocol_type": "consumer",
            "instance": self.instance,
            "needs_id": True,
        }
        token = self.sim.join(self.member_id, **kwargs)
        if token not in self.sim.replies:
            return None
        result = self.sim.replies[token]
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            return self.join()
        if result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation_id
        return result

    def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        """SyncGroup; what it got is its own from then on."""
        token = self.sim.sync(self.member_id, self.generation, assignments or {})
        result = self.sim.replies[token]
        if result.error is ErrorCode.NONE:
            found, _ = read_assignment(result.assignment, self.sim.topics)
            self.owned = {t: set(p) for t, p in found.items() if p}
        return result

    def beat(self) -> ErrorCode:
        """Heartbeat, and what a consumer does when it is told to join again."""
        error = self.sim.heartbeat(self.member_id, self.generation, instance=self.instance)
        lost = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION)
        if error in lost:
            self.member_id, self.generation, self.owned = "", -1, {}
        if error is ErrorCode.REBALANCE_IN_PROGRESS or error in lost:
            mixed = isinstance(self.sim.coordinator.groups.get(GROUP), ConsumerGroup)
            if mixed and self.join().error is ErrorCode.NONE:
                self.sync()
        return error


def settle(members: list[SimMember], *, rounds: int = 12, pause_ms: int = 2_000) -> None:
    """Sends heartbeats of all, in random order, until nothing can change any more."""
    rng = random.Random(7)
    for _ in range(rounds):
        for member in rng.sample(members, len(members)):
            member.beat()
        if members:
            members[0].sim.advance(pause_ms)
