"""The share coordinator: states of share partitions, as updates and snapshots, and what a restart finds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_broker.coordinator.effects import Append, Now, Reply
from klamm_broker.coordinator.share.combining import combined
from klamm_broker.coordinator.share.model import ShareKey, StateBatch
from klamm_broker.coordinator.share.states import Report, ShareStates, StateConfig
from klamm_kafka.wire.errors import ErrorCode as E

KEY = ShareKey("g", b"t" * 16, 0)
NOW = Now(1, 1_000)


class World:
    """The coordinator of one partition of the topic, and its log. With `hold`, appends wait for `settle`."""

    def __init__(self, **config):
        self.config = StateConfig(partitions=1, **config)
        self.log, self.held, self.hold = [], [], False
        self.replies = {}
        self.states = self.made()

    def made(self):
        return ShareStates(self.config, log_end=lambda _: len(self.log))

    def run(self, effects):
        for effect in effects:
            match effect:
                case Reply():
                    self.replies[effect.token] = effect.response
                case Append():
                    self.log += effect.records
                    self.held.append(effect.then)
        if not self.hold:
            self.settle()

    def settle(self, error=E.NONE):
        while self.held:
            self.run(self.held.pop(0)(error, NOW))

    def initialize(self, epoch=1, offset=0, token="i"):
        self.run(self.states.initialize(KEY, epoch, offset, token, NOW))
        return self.replies.get(token)

    def write(self, *batches, start=0, leader=0, epoch=1, done=0, token="w"):
        report = Report(epoch, leader, start, done, batches)
        self.run(self.states.write(KEY, report, token, NOW))
        return self.replies.get(token)

    def restart(self):
        self.states = self.made()
        self.states.start_loading(0)
        assert self.states.unavailable(KEY) is E.COORDINATOR_LOAD_IN_PROGRESS
        self.states.replay(0, 0, self.log)
        self.states.finish_loading(0)


@pytest.fixture
def world():
    return World()


def test_reports_add_up_and_survive_a_restart(world):
    assert world.initialize().error is E.NONE
    world.write(StateBatch(0, 9, 2, 1))
    world.write(StateBatch(12, 12, 0, 1), start=5, done=5)
    state = world.states.get(KEY)
    assert state.batches == (StateBatch(5, 9, 2, 1), StateBatch(12, 12, 0, 1))
    assert (state.start_offset, state.complete_count, state.snapshot_epoch) == (5, 5, 0)
    world.restart()
    assert world.states.get(KEY) == state


def test_every_so_often_a_snapshot_is_written():
    world = World(updates_per_snapshot=2)
    world.initialize()
    for offset in range(5):
        world.write(StateBatch(offset, offset, 2, 1), start=0)
    kinds = [record.key[:2] for record in world.log]
    assert kinds == [b"\0\0", b"\0\1", b"\0\1", b"\0\0", b"\0\1", b"\0\1"]
    assert world.states.get(KEY).batches == (StateBatch(0, 4, 2, 1),)
    assert world.states.redundant_before() == {0: 3}
    state = world.states.get(KEY)
    del world.log[:3]
    world.restart()
    assert world.states.get(KEY) == state, "the records before the snapshot are not needed"


def test_a_snapshot_has_what_was_written_meanwhile():
    world = World(updates_per_snapshot=0)
    world.initialize()
    world.hold = True
    world.write(StateBatch(0, 0, 2, 1), token="a")
    world.write(StateBatch(1, 1, 2, 1), token="b")
    assert "a" not in world.replies
    world.hold = False
    world.settle()
    assert world.replies["a"].error is world.replies["b"].error is E.NONE
    assert world.states.get(KEY).batches == (StateBatch(0, 1, 2, 1),)
    world.restart()
    assert world.states.get(KEY).batches == (StateBatch(0, 1, 2, 1),)


def test_a_failed_write_changes_nothing(world):
    world.initialize()
    world.hold = True
    world.write(StateBatch(0, 0, 2, 1))
    world.settle(E.KAFKA_STORAGE_ERROR)
    assert world.replies["w"].error is not E.NONE
    assert world.states.get(KEY).batches == ()


def test_old_leaders_and_epochs_are_fenced(world):
    assert world.write(StateBatch(0, 0, 2, 1)).error is E.INVALID_REQUEST
    world.initialize(epoch=3)
    assert world.initialize(epoch=2).error is E.FENCED_STATE_EPOCH
    assert world.write(epoch=2).error is E.FENCED_STATE_EPOCH
    world.run(world.states.read(KEY, 4, "r", NOW))
    assert world.replies["r"].state.leader_epoch == 4
    assert world.write(leader=3, epoch=3).error is E.FENCED_LEADER_EPOCH
    world.run(world.states.read(KEY, 3, "r", NOW))
    assert world.replies["r"].error is E.FENCED_LEADER_EPOCH
    world.restart()
    assert world.states.get(KEY).leader_epoch == 4


def test_states_are_deleted(world):
    world.run(world.states.delete(KEY, "d", NOW))
    assert world.replies["d"].error is E.NONE
    assert not world.log
    world.initialize()
    world.run(world.states.on_topics_deleted([KEY.topic_id], NOW))
    assert world.states.get(KEY) is None
    world.restart()
    assert world.states.get(KEY) is None
    world.run(world.states.read(KEY, 0, "r", NOW))
    assert (world.replies["r"].error, world.replies["r"].message) == (
        E.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.",
    )  # fmt: skip


def test_a_state_that_rests_is_written_as_a_snapshot(world):
    world.initialize()
    world.write(StateBatch(0, 0, 2, 1))
    world.run(world.states.write_cold_snapshots(Now(1, 1_000 + world.config.cold_ms)))
    assert len(world.log) == 3
    assert world.states.redundant_before() == {0: 2}
    world.run(world.states.write_cold_snapshots(Now(1, 1_000 + 2 * world.config.cold_ms)))
    assert len(world.log) == 3, "once is enough"


def test_bytes_that_are_no_record_are_left_out(world, caplog):
    world.initialize()
    state = world.states.get(KEY)
    world.log += [(b"\0\0\0", b"x"), (b"", b""), (b"\0\7", b"")]
    world.restart()
    assert world.states.get(KEY) == state
    assert "a record cannot be read" in caplog.text


batches = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30), st.integers(0, 8), st.sampled_from([0, 2, 4]), st.integers(1, 4),
    ),
    max_size=8,
)  # fmt: skip


@given(old=batches, new=batches, start=st.integers(-1, 20))
def test_combining_is_the_strongest_report_of_each_record(old, new, start):
    result = combined(old, new, start)
    expected = {}
    for batch in [*old, *new]:
        for offset in range(batch.first, batch.last + 1):
            if offset >= start:
                rank = (batch.deliveries, batch.state)
                expected[offset] = max(rank, expected.get(offset, rank))
    found = {o: (b.deliveries, b.state) for b in result for o in range(b.first, b.last + 1)}
    assert found == expected
    for left, right in pairwise(result):
        assert left.last < right.first
        assert left.last + 1 < right.first or left[2:] != right[2:]
