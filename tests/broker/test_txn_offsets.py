"""Offsets within transactions against a naive model: whatever comes last in the log of a partition wins, of what counts;
and a coordinator that loads the log is where the live one was."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.coordinator.effects import Append, KeyValue, Now, Reply
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import CommitRequest, GroupConfig, OffsetToCommit, TopicPartition
from klamm_broker.coordinator.txn_offsets import TxnCommitRequest
from klamm_kafka.wire.errors import ErrorCode as E

GROUPS = ("g", "h")
PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
PRODUCERS = (1, 2, 3)
NOW = Now(0, 1_700_000_000_000)


class World:
    """A coordinator with one partition of `__consumer_offsets`, whose log keeps producers and markers."""

    def __init__(self) -> None:
        self.coordinator = GroupCoordinator(GroupConfig(offsets_topic_partitions=1))
        self.log: list[tuple[list[KeyValue], int] | tuple[None, int, bool]] = []
        self.replies: list[object] = []

    def run(self, effects) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, Reply):
                self.replies.append(effect.response)
                continue
            assert isinstance(effect, Append)
            producer_id = -1 if effect.producer is None else effect.producer[0]
            self.log.append((list(effect.records), producer_id))
            queue.extend(effect.then(E.NONE, NOW))

    def commit(self, group: str, at: TopicPartition, offset: int, producer_id: int | None) -> None:
        offsets = {at: OffsetToCommit(offset)}
        request = (
            CommitRequest(group_id=group, offsets=offsets)
            if producer_id is None
            else TxnCommitRequest(group_id=group, offsets=offsets, producer_id=producer_id, producer_epoch=0)
        )
        self.run(self.coordinator.commit(request, object(), NOW))
        assert self.replies[-1].partitions == {at: E.NONE}

    def delete(self, group: str, at: TopicPartition) -> None:
        self.run(self.coordinator.delete_offsets(group, [at], object(), NOW))

    def mark(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((None, producer_id, committed))
        self.run(self.coordinator.on_marker(0, producer_id, committed=committed, now=NOW))

    def reloaded(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(GroupConfig(offsets_topic_partitions=1))
        coordinator.start_loading(0)
        for entry in self.log:
            if entry[0] is None:
                coordinator.replay_marker(0, entry[1], committed=entry[2])
            else:
                coordinator.replay(0, entry[0], producer_id=entry[1])
        coordinator.finish_loading(0, NOW)
        return coordinator


class Model:
    """Every commit in its order, with its producer and fate."""

    def __init__(self) -> None:
        self.commits: list[list] = []  # group, place, offset, producer or None, counts

    def commit(self, group, at, offset, producer) -> None:
        self.commits.append([group, at, offset, producer, producer is None])

    def delete(self, group, at) -> None:
        self.commits = [c for c in self.commits if c[:2] != [group, at]]

    def mark(self, producer, *, committed) -> None:
        for commit in self.commits:
            if commit[3] == producer and not commit[4]:
                commit[4] = committed or None
        self.commits = [c for c in self.commits if c[4] is not None]

    def offset(self, group, at) -> int | None:
        found = [c[2] for c in self.commits if c[:2] == [group, at] and c[4]]
        return found[-1] if found else None

    def unstable(self, group, at) -> bool:
        return any(c[:2] == [group, at] and c[4] is False for c in self.commits)


def seen(coordinator: GroupCoordinator, group: str, at: TopicPartition) -> tuple[int | None, bool]:
    found = coordinator.fetch(group, require_stable=True)
    committed = found.offsets.get(at)
    return (None if committed is None else committed.offset), at in found.unstable


STEPS = st.one_of(
    st.tuples(
        st.just("commit"),
        st.sampled_from(GROUPS),
        st.sampled_from(PLACES),
        st.sampled_from((None, *PRODUCERS)),
    ),
    st.tuples(st.just("mark"), st.sampled_from(PRODUCERS), st.booleans(), st.none()),
    st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.sampled_from(PLACES), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_offsets_are_those_of_the_last_commit_that_counts(steps):
    world, model = World(), Model()
    for n, (what, one, two, producer) in enumerate(steps):
        if what == "commit":
            world.commit(one, two, n, producer)
            model.commit(one, two, n, producer)
        elif what == "mark":
            world.mark(one, committed=two)
            model.mark(one, committed=two)
        else:
            world.delete(one, two)
            model.delete(one, two)
        for coordinator in (world.coordinator, world.reloaded()):
            for group in GROUPS:
                for at in PLACES:
                    wanted = model.offset(group, at), model.unstable(group, at)
                    assert seen(coordinator, group, at) == wanted, (what, group, at)
    for producer in PRODUCERS:
        world.mark(producer, committed=False)
    for group in world.coordinator.groups.values():
        assert not group.pending_offsets


def test_a_group_with_undecided_offsets_only_is_kept():
    world = World()
    world.commit("g", PLACES[0], 5, 1)
    assert "g" in world.coordinator.groups
    world.mark(1, committed=False)
    assert "g" not in world.coordinator.groups, "nothing is left of it"


def test_a_group_is_deleted_with_its_undecided_offsets():
    world = World()
    world.commit("g", PLACES[0], 5, 1)
    world.run(world.coordinator.delete_group("g", object(), NOW))
    assert world.replies[-1] is E.NONE
    world.mark(1, committed=True)
    assert "g" not in world.coordinator.groups
    assert "g" not in world.reloaded().groups


@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [(-1, "", E.NONE), (0, "", E.ILLEGAL_GENERATION), (3, "m", E.ILLEGAL_GENERATION)],
)
def test_members_of_a_group_that_does_not_exist(generation, member, error):
    world = World()
    request = TxnCommitRequest(
        group_id="g", generation_id=generation, member_id=member, offsets={PLACES[0]: OffsetToCommit(1)}, producer_id=1,
        producer_epoch=0, reports_missing_group=False,
    )  # fmt: skip
    world.run(world.coordinator.commit(request, object(), NOW))
    result = world.replies[-1]
    assert (result.error or result.partitions[PLACES[0]]) == error
