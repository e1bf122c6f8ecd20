"""Share groups in the coordinator: members, assignment, start offsets, deletion, and what a restart finds."""

from __future__ import annotations

import pytest

from klamm_broker.coordinator.consumer.topics import TopicInfo
from klamm_broker.coordinator.effects import Append, ChangeShareStates, Now, Reply
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import GroupConfig, JoinRequest, Protocol
from klamm_broker.coordinator.share.config import ShareConfig, ShareSettings
from klamm_broker.coordinator.share.model import (
    AlteredOffsets,
    DeletedOffsets,
    ShareHeartbeat,
)
from klamm_broker.coordinator.share.simple_assignor import Reader, assign
from klamm_kafka.wire.errors import ErrorCode as E

T, U = b"t" * 16, b"u" * 16
GROUP = "g"


class World:
    """A coordinator, its log, and a share coordinator that does what it is asked, or fails with `error`."""

    def __init__(self, *, max_size: int = 10) -> None:
        self.topics = {"t": TopicInfo("t", T, 2), "u": TopicInfo("u", U, 1)}
        self.version = 0
        self.ms = 1_000
        self.log: list = []
        self.states: dict = {}
        self.error = E.NONE
        self.max_size = max_size
        self.coordinator = self.made()

    def made(self):
        share = ShareConfig(
            max_size=self.max_size, settings=lambda _: ShareSettings(assignment_interval_ms=0)
        )
        return GroupCoordinator(GroupConfig(offsets_topic_partitions=1), share=share, topics=self)

    def by_name(self, name):
        return self.topics.get(name)

    def by_id(self, topic_id):
        return next((t for t in self.topics.values() if t.id == topic_id), None)

    def names(self):
        return self.topics

    @property
    def now(self):
        return Now(self.ms, self.ms)

    def run(self, effects):
        replies = []
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            match effect:
                case Reply():
                    replies.append(effect.response)
                case Append():
                    self.log += effect.records
                    queue += effect.then(E.NONE, self.now)
                case ChangeShareStates():
                    errors = dict.fromkeys(effect.changes, self.error)
                    if self.error is E.NONE:
                        for key, wanted in effect.changes.items():
                            if wanted is None:
                                self.states.pop(key, None)
                            else:
                                self.states[key] = wanted
                    queue += effect.then(errors, self.now)
        return replies

    def heartbeat(self, member="m", epoch=0, topics=None, **more):
        request = ShareHeartbeat(group_id=GROUP, member_id=member, member_epoch=epoch, topics=topics, **more)
        (answer,) = self.run(self.coordinator.share.heartbeat(request, "token", self.now))
        return answer

    def joined(self, member="m", topics=("t",)):
        """Returns the answer that brings the assignment: the second or third, once the states are there."""
        answer = self.heartbeat(member, 0, topics)
        assert answer.error is E.NONE
        for _ in range(2):
            answer = self.heartbeat(member, answer.member_epoch, topics)
        return answer

    def restart(self):
        self.coordinator = self.made()
        self.coordinator.start_loading(0)
        self.coordinator.replay(0, self.log)
        self.run(self.coordinator.finish_loading(0, self.now))


@pytest.fixture
def world():
    return World()


def test_a_member_gets_partitions_once_their_state_is_stored(world):
    first = world.heartbeat(topics=["t"])
    assert (first.member_epoch, first.assignment, first.heartbeat_interval_ms) == (2, {}, 5_000)
    assert world.states == {(GROUP, T, 0): (2, -1), (GROUP, T, 1): (2, -1)}
    second = world.heartbeat(epoch=first.member_epoch)
    assert (second.member_epoch, second.assignment) == (3, {T: [0, 1]})
    assert world.heartbeat(epoch=3).assignment is None, "nothing is new"
    assert world.heartbeat(epoch=3, topics=["t"]).assignment == {T: [0, 1]}, "it asked for everything"


def test_states_that_could_not_be_begun_are_tried_again(world):
    world.error = E.COORDINATOR_NOT_AVAILABLE
    answer = world.heartbeat(topics=["t"])
    assert not world.states
    world.error = E.NONE
    for _ in range(2):
        answer = world.heartbeat(epoch=answer.member_epoch)
    assert answer.assignment == {T: [0, 1]}


def test_partitions_are_shared_by_members(world):
    world.joined("a")
    world.joined("b")
    world.joined("c")
    described = world.coordinator.share.describe(GROUP)
    assert described.state == "Stable"
    held = [p for m in described.members for a in m.assignment for p in a.partitions]
    assert len(held) >= 3
    assert set(held) == {0, 1}


def test_new_partitions_and_topics_are_assigned_as_they_come(world):
    epoch = world.joined(topics=["t", "later"]).member_epoch
    world.topics["t"] = TopicInfo("t", T, 3)
    world.topics["later"] = TopicInfo("later", b"l" * 16, 1)
    world.coordinator.on_topics_changed(["t", "later"], created=True)
    for _ in range(3):
        answer = world.heartbeat(epoch=epoch)
        epoch = answer.member_epoch
        if answer.assignment is not None:
            last = answer.assignment
    assert last == {T: [0, 1, 2], b"l" * 16: [0]}


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"member": ""}, E.INVALID_REQUEST, "Invalid member id in the request."),
        ({"member": "m" * 37}, E.INVALID_REQUEST, "Invalid member id in the request."),
        ({}, E.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ({"topics": []}, E.INVALID_REQUEST, "SubscribedTopicNames must be set in first request."),
        ({"epoch": -2}, E.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"topics": ["t"], "rack_id": ""}, E.INVALID_REQUEST, "RackId can't be empty."),
        ({"epoch": 5}, E.GROUP_ID_NOT_FOUND, "Share group g not found."),
        ({"epoch": -1}, E.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_wrong_heartbeats_are_refused(world, request_, error, words):
    answer = world.heartbeat(**request_)
    assert (answer.error, answer.error_message) == (error, words)


def test_epochs_fence_members(world):
    epoch = world.joined().member_epoch
    assert world.heartbeat(epoch=epoch - 1).error is E.NONE, "the last answer was lost"
    assert world.heartbeat(epoch=epoch + 1).error is E.FENCED_MEMBER_EPOCH
    world.heartbeat("n", topics=["t"])
    latest = epoch
    for _ in range(3):
        latest = world.heartbeat(epoch=latest).member_epoch
    assert latest > epoch
    assert world.heartbeat(epoch=latest - 2).error is E.FENCED_MEMBER_EPOCH
    assert world.heartbeat("stranger", epoch=3).error is E.UNKNOWN_MEMBER_ID


def test_a_group_has_room_for_so_many():
    world = World(max_size=1)
    epoch = world.joined().member_epoch
    assert world.heartbeat("n", topics=["t"]).error is E.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat(epoch=epoch).error is E.NONE


def test_members_leave_or_are_silent(world):
    world.joined("a")
    world.joined("b")
    assert world.heartbeat("a", epoch=-1).member_epoch == -1
    assert [m.member_id for m in world.coordinator.share.describe(GROUP).members] == ["b"]
    world.ms += 45_000
    world.run(world.coordinator.tick(world.now))
    assert world.coordinator.share.describe(GROUP).state == "Empty"


def test_a_restart_finds_the_group_as_it_was(world):
    world.joined("a")
    world.joined("b", topics=("t", "u"))
    before = world.coordinator.share.describe(GROUP)
    world.restart()
    assert world.coordinator.share.describe(GROUP) == before
    assert world.coordinator.share.partitions(GROUP) == (E.NONE, {T: {0, 1}, U: {0}})
    world.ms += 45_000
    world.run(world.coordinator.tick(world.now))
    assert world.coordinator.share.describe(GROUP).state == "Empty", "sessions began anew and ended"


def test_kinds_of_groups_do_not_mix(world):
    world.joined()
    coordinator = world.coordinator
    _, listed = coordinator.list_groups()
    assert [(g.group_id, g.protocol_type, g.state, g.type) for g in listed] == [
        (GROUP, "share", "Stable", "share")
    ]
    assert coordinator.list_groups(types=["consumer"])[1] == []
    assert coordinator.describe(GROUP).error_message == "Group g is not a classic group."
    assert coordinator.describe_consumer(GROUP).error_message == "Group g is not a consumer group."
    join = JoinRequest(
        group_id=GROUP, member_id="", group_instance_id=None, client_id="c", client_host="h",
        session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=(Protocol("range", b""),), requires_known_member_id=False,
    )  # fmt: skip
    (refused,) = world.run(coordinator.join(join, "token", world.now))
    assert refused.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.fetch(GROUP, member_id="m", member_epoch=1).error is E.GROUP_ID_NOT_FOUND


def alter(world, offsets):
    (answer,) = world.run(world.coordinator.share.alter_offsets(GROUP, offsets, "token", world.now))
    return answer


def test_start_offsets_are_set_for_groups_without_members(world):
    answer = alter(world, {"t": {0: 7, 9: 1}, "none": {0: 1}})
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert answer == AlteredOffsets(topics={"t": {0: E.NONE, 9: unknown}, "none": {0: unknown}})
    assert world.states == {(GROUP, T, 0): (1, 7)}
    assert world.coordinator.share.partitions(GROUP)[1] == {T: {0}}
    world.joined()
    assert world.states[GROUP, T, 1] == (2, -1)
    assert alter(world, {"t": {0: 1}}).error is E.NON_EMPTY_GROUP


def test_start_offsets_are_deleted(world):
    def delete(*names):
        (answer,) = world.run(world.coordinator.share.delete_offsets(GROUP, names, "token", world.now))
        return answer

    assert delete("t").error is E.GROUP_ID_NOT_FOUND
    alter(world, {"t": {0: 7}})
    answer = delete("t", "u", "none")
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert answer == DeletedOffsets(
        topics={
            "t": (E.NONE, None),
            "u": (unknown, "There is no offset information to delete."),
            "none": (unknown, unknown.message),
        }
    )
    assert not world.states
    assert world.coordinator.share.partitions(GROUP)[1] == {}


def test_a_group_is_deleted_with_its_states(world):
    world.joined()
    delete = lambda: world.run(world.coordinator.delete_group(GROUP, "token", world.now))
    assert delete() == [E.NON_EMPTY_GROUP]
    world.heartbeat(epoch=-1)
    world.error = E.KAFKA_STORAGE_ERROR
    assert delete() == [E.KAFKA_STORAGE_ERROR]
    assert world.coordinator.share.describe(GROUP).error is E.NONE
    world.error = E.NONE
    assert delete() == [E.NONE]
    assert not world.states
    world.restart()
    assert world.coordinator.share.describe(GROUP).error is E.GROUP_ID_NOT_FOUND


def test_deleted_topics_are_forgotten(world):
    world.joined(topics=("t", "u"))
    del world.topics["t"]
    world.run(world.coordinator.share.on_topics_deleted(frozenset([T]), world.now))
    assert world.coordinator.share.partitions(GROUP)[1] == {U: {0}}
    world.restart()
    assert world.coordinator.share.known_topics() == {U}


# The assignor


@pytest.mark.parametrize(("members", "partitions"), [(1, 3), (2, 3), (3, 3), (5, 2), (7, 3), (4, 0), (10, 7)])
def test_everybody_gets_work_and_every_partition_a_reader(members, partitions):
    readers = {f"m{i}": Reader(frozenset([T]), {}) for i in range(members)}
    result = assign(readers, {T: set(range(partitions))})
    sizes = [sum(map(len, a.values())) for a in result.values()]
    assert {p for a in result.values() for found in a.values() for p in found} == set(range(partitions))
    if partitions:
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
    kept = assign({m: Reader(frozenset([T]), result[m]) for m in readers}, {T: set(range(partitions))})
    assert kept == result, "nothing moves without a reason"


def test_members_get_only_topics_that_they_subscribe_to():
    readers = {"a": Reader(frozenset([T]), {}), "b": Reader(frozenset([T, U]), {U: frozenset([0])})}
    result = assign(readers, {T: {0, 1, 2}, U: {0}})
    assert result["a"].keys() == {T}
    assert result["b"][U] == {0}
    assert result["a"][T] | result["b"][T] == {0, 1, 2}
