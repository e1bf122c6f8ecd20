"""The cache of fetch sessions and what incremental fetches tell, against naive models that look at everything."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.fetch_world import EPOCH, PARTITIONS, RECORD, World, decoded

from klamm_broker.server import fetch_sessions, fetching
from klamm_broker.server.fetch_sessions import EVICTION_MS, next_epoch
from klamm_broker.server.fetching import FullFetch
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NAMES = ("a", "b")
E = ErrorCode


def request(asked=(), *, by_id=False, forget=(), **more) -> FetchRequest:
    """Returns a request. `asked` are (topic key, partition, offset), `forget` (topic key, partition)."""
    where = "topic_id" if by_id else "topic"
    more = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | more
    return FetchRequest(
        topics=[
            FetchTopic(
                **{where: key},
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
            for key, index, offset in asked
        ],
        forgotten_topics_data=[ForgottenTopic(**{where: key}, partitions=[index]) for key, index in forget],
        **more,
    )


def told(answer: FetchResponse, *, by_id=False) -> dict[Any, tuple[int, ...]]:
    """Maps (topic key, partition) to (error, high watermark, log start, bytes)."""
    return {
        (t.topic_id if by_id else t.topic, p.partition_index): (
            p.error_code,
            p.high_watermark,
            p.log_start_offset,
            len(p.records or b""),
        )
        for t in answer.responses
        for p in t.partitions
    }


class NaiveSession:
    """A session by KIP-227 that looks at every partition each time."""

    def __init__(self, world: World, *, by_id: bool) -> None:
        self.world = world
        self.by_id = by_id
        self.asked: dict[tuple[Any, int], int] = {}
        self.names: dict[tuple[Any, int], str] = {}
        self.last: dict[tuple[Any, int], tuple[int, int]] = {}

    def ask(self, asked, forget) -> None:
        for key, index, offset in asked:
            self.asked[key, index] = offset
            if (key, index) not in self.last:
                self.last[key, index] = (-1, -1)
        for where in forget:
            self.asked.pop(where, None)
            self.last.pop(where, None)
            self.names.pop(where, None)

    def answer(self, *, committed: bool, full: bool) -> dict[Any, tuple[int, ...]]:
        result = {}
        for where, offset in self.asked.items():
            found = self.look(where, offset, committed)
            high, start = self.last[where]
            if found[0]:
                self.last[where] = (-1, start if not full else -1)
                result[where] = found
            elif full or found[3] or (found[1], found[2]) != (high, start):
                self.last[where] = found[1], found[2]
                result[where] = found
        return result

    def look(self, where, offset, committed) -> tuple[int, ...]:
        key, index = where
        topics = self.world.topics
        if self.by_id and where not in self.names:
            if key not in topics.by_id:
                return (E.UNKNOWN_TOPIC_ID, -1, -1, 0)
            self.names[where] = topics.by_id[key].name
        topic = topics.by_name.get(self.names[where] if self.by_id else key)
        if topic is None or index >= len(topic.partitions):
            return (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0)
        if self.by_id and topic.id != key:
            return (E.INCONSISTENT_TOPIC_ID, -1, -1, 0)
        log = topic.partitions[index].log
        if not log.log_start_offset <= offset <= log.high_watermark:
            return (E.OFFSET_OUT_OF_RANGE, -1, -1, 0)
        up_to = log.last_stable_offset if committed else log.high_watermark
        return (0, log.high_watermark, log.log_start_offset, max(up_to - offset, 0) * RECORD)


class SessionsAgainstTheModel(RuleBasedStateMachine):
    """One session with room for everything: each answer is the naive one."""

    @initialize(by_id=st.booleans())
    def begin(self, by_id: bool) -> None:
        self.world = World()
        self.by_id = by_id
        self.version = 16 if by_id else 12
        self.keys: list[Any] = [bytes(15) + b"\xff"] if by_id else ["never"]
        for name in NAMES:
            self.make(name)
        self.session_id, self.epoch = 0, 0
        self.model = NaiveSession(self.world, by_id=by_id)

    def make(self, name: str) -> None:
        topic = self.world.create(name)
        self.keys.append(topic.id if self.by_id else name)

    @rule(name=st.sampled_from(NAMES))
    def delete_or_create(self, name: str) -> None:
        if name in self.world.topics.by_name:
            self.world.delete(name)
        else:
            self.make(name)

    @rule(
        name=st.sampled_from(NAMES),
        index=st.integers(0, PARTITIONS - 1),
        count=st.integers(1, 3),
        stable=st.booleans(),
    )
    def append(self, name: str, index: int, count: int, stable: bool) -> None:
        if name in self.world.topics.by_name:
            self.world.append(name, index, count, stable=stable)

    @rule(name=st.sampled_from(NAMES), index=st.integers(0, PARTITIONS - 1), by_retention=st.booleans())
    def move_the_log_start(self, name: str, index: int, by_retention: bool) -> None:
        if name not in self.world.topics.by_name:
            return
        partition = self.world.topics.by_name[name].partitions[index]
        partition.log.log_start_offset = min(partition.log.log_start_offset + 1, partition.log.high_watermark)
        if by_retention:
            self.world.fetch_sessions.note_log_starts()
        else:
            self.world.waiting.advanced(partition, 0)

    @rule(data=st.data(), committed=st.booleans(), full=st.booleans())
    def fetch(self, data: st.DataObject, committed: bool, full: bool) -> None:
        where = st.tuples(st.sampled_from(self.keys), st.integers(0, PARTITIONS))
        asked = data.draw(st.lists(st.tuples(where, st.integers(0, 4)), max_size=4, unique_by=lambda a: a[0]))
        asked = [(key, index, offset) for (key, index), offset in asked]
        full = full or self.session_id == 0
        forget = [] if full else data.draw(st.lists(where, max_size=2))
        if full:
            self.model = NaiveSession(self.world, by_id=self.by_id)
            self.epoch = 0
        self.model.ask(asked, forget)
        answer = self.world.fetch(
            request(
                asked,
                by_id=self.by_id,
                forget=forget,
                session_id=self.session_id,
                session_epoch=self.epoch,
                isolation_level=int(committed),
            ),
            self.version,
        )
        assert answer.error_code == 0
        if not full and not self.model.asked:  # nothing left: the session is over
            assert (answer.session_id, answer.responses) == (0, [])
            self.session_id = self.epoch = 0
            return
        expected = self.model.answer(committed=committed, full=full)
        if full:  # a partition that is not there is not looked up by the name that its id had once
            expected = {
                w: (E.UNKNOWN_TOPIC_ID, -1, -1, 0)
                if self.by_id and w[0] not in self.world.topics.by_id
                else v
                for w, v in expected.items()
            }
        assert told(answer, by_id=self.by_id) == expected
        self.session_id = answer.session_id
        assert self.session_id
        self.epoch = next_epoch(self.epoch)

    @invariant()
    def partitions_know_only_those_who_watch_them(self) -> None:
        if not hasattr(self, "world"):
            return
        sessions = self.world.fetch_sessions._sessions.values()
        watched = {w for s in sessions for w in s.partitions.values()}
        for topic in self.world.topics:
            for partition in topic.partitions:
                assert set(partition.waiters) <= watched
        assert self.world.fetch_sessions.partitions == len(watched)
        assert len(self.world.fetch_sessions) <= 1


TestSessionsAgainstTheModel = SessionsAgainstTheModel.TestCase
TestSessionsAgainstTheModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class NaiveCache:
    """Kafka's rule of eviction, word by word."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: dict[int, dict[str, int]] = {}

    def create(self, size: int, now: int) -> int | None:
        """Returns the session that goes, 0 for none; None when the new one is not made."""
        if len(self.sessions) < self.slots:
            return 0
        if not self.sessions:
            return None
        oldest = min(self.sessions, key=lambda i: self.sessions[i]["used"])
        if now - self.sessions[oldest]["used"] > EVICTION_MS:
            return oldest
        old = {i: s for i, s in self.sessions.items() if s["old"]}
        smallest = min(old, key=lambda i: (old[i]["size"], i), default=None)
        return smallest if smallest is not None and old[smallest]["size"] < size else None


@settings(max_examples=60)
@pytest.mark.parametrize("slots", [0, 1, 3])
@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from([1, 1000, 70_000, 130_000])), max_size=30
    )
)
def test_the_cache_evicts_by_kafkas_rule(slots, steps):
    world, model, now = World(slots), NaiveCache(slots), 1
    world.create("a", 10)
    epochs: dict[int, int] = {}
    for use, size, pause in steps:
        now += pause
        world.loop.now_s = now / 1000
        if use and model.sessions:
            session_id = sorted(model.sessions)[size % len(model.sessions)]
            answer = world.fetch(request(session_id=session_id, session_epoch=epochs[session_id]), 12)
            assert answer.error_code == 0
            epochs[session_id] += 1
            mine = model.sessions[session_id]
            mine["used"], mine["old"] = now, now - mine["made"] > EVICTION_MS
            continue
        victim = model.create(size, now)
        asked = [("a", n, 0) for n in range(size)]
        answer = world.fetch(request(asked, session_epoch=0), 12)
        assert (answer.session_id == 0) == (victim is None)
        if victim is not None:
            model.sessions.pop(victim, None)
            model.sessions[answer.session_id] = {"size": size, "used": now, "made": now, "old": 0}
            epochs[answer.session_id] = 1
        assert set(world.fetch_sessions._sessions) == set(model.sessions)


@pytest.fixture
def world():
    return World()


def begin(world, asked, version=12, **more):
    answer = world.fetch(request(asked, session_epoch=0, **more), version)
    assert answer.session_id
    return answer.session_id


def test_a_session_costs_what_has_changed(world, monkeypatch):
    topic = world.create("a", 1000)
    session_id = begin(world, [("a", n, 0) for n in range(1000)])
    looks = []
    read = fetching.Fetch._read
    monkeypatch.setattr(fetching.Fetch, "_read", lambda *args: looks.append(1) or read(*args))
    assert world.fetch(request(session_id=session_id, session_epoch=1), 12).responses == []
    assert len(looks) == 0
    world.append("a", 7)
    answer = world.fetch(request(session_id=session_id, session_epoch=2), 12)
    assert list(told(answer)) == [("a", 7)]
    assert len(looks) == 1
    assert topic.partitions[7].log.reads == 1


def test_a_parked_fetch_of_a_session_is_woken_by_its_partitions(world):
    world.create("a", 100)
    session_id = begin(world, [("a", n, 0) for n in range(100)])
    waits = request(session_id=session_id, session_epoch=1, max_wait_ms=500, min_bytes=25)
    assert world.fetch(waits, 12) is None
    slot = world.slot
    world.append("a", 5, 2)
    assert world.loop.soon == [], "20 of 25 bytes"
    world.append("a", 6, 1)
    world.loop.soon.pop()()
    answer = decoded(slot.reply, 12)
    assert told(answer) == {("a", 5): (0, 2, 0, 20), ("a", 6): (0, 1, 0, 10)}


def test_a_deletion_wakes_a_parked_fetch_of_a_session(world):
    topic = world.create("a", 2)
    session_id = begin(world, [(topic.id, 0, 0), (topic.id, 1, 0)], 16, by_id=True)
    assert world.fetch(request(session_id=session_id, session_epoch=1, max_wait_ms=500), 16) is None
    slot = world.slot
    world.delete("a")
    answer = told(decoded(slot.reply, 16), by_id=True)
    assert {v[0] for v in answer.values()} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    world.create("a", 2)
    again = told(world.fetch(request(session_id=session_id, session_epoch=2), 16), by_id=True)
    assert {v[0] for v in again.values()} == {E.INCONSISTENT_TOPIC_ID}


def test_a_missing_partition_does_not_make_a_reader_of_others_spin(world):
    world.create("a", 1)
    both = [("a", 0, 0), ("gone", 0, 0)]
    assert world.fetch(request(both, session_epoch=-1, max_wait_ms=500), 12) is None, "it waits"
    session_id = begin(world, both)
    assert world.fetch(request(session_id=session_id, session_epoch=1, max_wait_ms=500), 12) is None
    only = begin(world, [("gone", 0, 0)])
    answer = world.fetch(request(session_id=only, session_epoch=1, max_wait_ms=500), 12)
    assert told(answer) == {("gone", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, 0)}


def test_nobody_starves_when_an_answer_has_no_room_for_all(world):
    world.create("a", 10)
    for n in range(10):
        world.append("a", n, 5)
    offsets = dict.fromkeys(range(10), 0)
    room = {"max_bytes": 20}
    answer = world.fetch(request([("a", n, 0) for n in range(10)], session_epoch=0, **room), 12)
    session_id, epoch = answer.session_id, 1
    for _ in range(40):
        asked = []
        for (_, n), (_, _, _, size) in told(answer).items():
            offsets[n] += size // RECORD
            asked += [("a", n, offsets[n])] if size else []
        answer = world.fetch(request(asked, session_id=session_id, session_epoch=epoch, **room), 12)
        epoch += 1
    assert set(offsets.values()) == {5}


def test_a_request_that_comes_before_the_answer_ends_the_wait(world):
    world.create("a", 1)
    session_id = begin(world, [("a", 0, 0)])
    assert world.fetch(request(session_id=session_id, session_epoch=1, max_wait_ms=500), 12) is None
    first = world.slot
    assert world.fetch(request(session_id=session_id, session_epoch=2, max_wait_ms=500), 12) is None
    assert decoded(first.reply, 12).error_code == 0
    assert decoded(first.reply, 12).responses == []


@pytest.mark.parametrize(
    ("more", "version", "code"),
    [
        ({"session_epoch": 2}, 12, E.INVALID_FETCH_SESSION_EPOCH),
        ({"session_epoch": -7}, 12, E.INVALID_FETCH_SESSION_EPOCH),
        ({"session_epoch": 1, "session_id": 5}, 12, E.FETCH_SESSION_ID_NOT_FOUND),
        ({"session_epoch": 1}, 13, E.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_fit_the_session_is_refused_and_leaves_it_alone(world, more, version, code):
    world.create("a", 1)
    session_id = begin(world, [("a", 0, 0)])
    answer = world.fetch(request(**({"session_id": session_id} | more)), version)
    assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
    assert world.fetch(request(session_id=session_id, session_epoch=1), 12).error_code == 0


def test_a_full_fetch_ends_the_session_that_it_names(world):
    world.create("a", 1)
    session_id = begin(world, [("a", 0, 0)])
    answer = world.fetch(request([("a", 0, 0)], session_id=session_id, session_epoch=-1), 12)
    assert (answer.session_id, len(world.fetch_sessions)) == (0, 0)
    assert not world.topics.by_name["a"].partitions[0].waiters


@pytest.mark.parametrize("how", ["full fetch", "eviction"])
def test_a_parked_fetch_whose_session_is_closed_is_answered_and_leaves_nothing_behind(world, how):
    topic = world.create("a", 2)
    session_id = begin(world, [("a", 0, 0), ("a", 1, 0)])
    waits = request([("a", 0, 0)], session_id=session_id, session_epoch=1, max_wait_ms=500)
    assert world.fetch(waits, 12) is None
    slot = world.slot
    if how == "eviction":
        world.fetch_sessions.slots = 1
        world.loop.now_s += EVICTION_MS / 1000 + 1
        begin(world, [("a", 1, 0)])
    else:
        world.fetch(request(session_id=session_id, session_epoch=-1), 12)
    assert slot.reply is None, "nobody else's request is handled in the middle of this one"
    for work in world.loop.soon:
        work()
    assert decoded(slot.reply, 12).error_code == 0
    left = [len(partition.waiters) for partition in topic.partitions]
    assert left == ([0, 1] if how == "eviction" else [0, 0]), "a closed session watches nothing"
    assert waits_for_nobody(world)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("how", ["append", "time", "close"])
def test_a_wait_that_is_over_leaves_nothing_to_the_garbage_collector(world, how, in_session):
    world.create("a", 3)
    asked = [("a", n, 0) for n in range(3)]
    waits = {"max_wait_ms": 500, "session_epoch": -1}
    if in_session:
        waits |= {"session_id": begin(world, asked), "session_epoch": 1}
    assert world.fetch(request(() if in_session else asked, **waits), 12) is None
    slot, world.slot = weakref.ref(world.slot), None
    gc.disable()
    try:
        if how == "append":
            world.append("a", 1)
            world.loop.soon.pop()()
        elif how == "time":
            next(iter(world.waiting._waiting)).finish()
        else:
            slot().abandoned()
        assert slot() is None
    finally:
        gc.enable()
    assert waits_for_nobody(world)


def waits_for_nobody(world):
    return not world.waiting._waiting


def test_an_answer_that_changes_the_session_is_noticed(world):
    """The answer to a parked fetch lets its connection go on, whose next request may be one of the same session."""
    world.create("a", 1)
    session_id = begin(world, [("a", 0, 0)])
    assert world.fetch(request(session_id=session_id, session_epoch=1, max_wait_ms=500), 12) is None
    answers = []
    again = request(session_id=session_id, session_epoch=2)
    world.slot.resolve = lambda _: answers.append(world.fetch(again, 12))
    last = world.fetch(again, 12)
    assert [answers[0].error_code, last.error_code] == [0, E.INVALID_FETCH_SESSION_EPOCH]


def test_the_epoch_goes_round():
    assert [next_epoch(0), next_epoch((1 << 31) - 1)] == [1, 1]


def test_sessions_have_a_bound_of_partitions(world, monkeypatch):
    world.fetch_sessions.partitions_max = 5
    world.create("a", 10)
    first = begin(world, [("a", n, 0) for n in range(3)])
    assert world.fetch(request([("a", n, 0) for n in range(3)], session_epoch=0), 12).session_id == 0
    grown = request([("a", n, 0) for n in range(9)], session_id=first, session_epoch=1)
    assert world.fetch(grown, 12).error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert (world.fetch_sessions.partitions, len(world.fetch_sessions)) == (0, 0)
    assert fetch_sessions.PARTITIONS_MAX >= 100_000


partition_states = st.tuples(
    st.integers(0, 2),  # records
    st.booleans(),  # the last of them is stable
    st.integers(0, 2),  # the offset that is asked for
    st.sampled_from([-1, -1, EPOCH, EPOCH + 1]),
    st.sampled_from(["there", "there", "there", "deleted", "offline", "missing"]),
)


@settings(max_examples=300)
@given(
    states=st.lists(partition_states, max_size=PARTITIONS),
    committed=st.booleans(),
    min_bytes=st.integers(0, 2 * RECORD),
)
def test_a_fetch_at_the_end_waits_as_any_other(states, committed, min_bytes):
    """The short look at all ends decides as the reading of all partitions does."""
    world = World()
    topic = world.create("t")
    asked = []
    for index, (records, stable, offset, epoch, state) in enumerate(states):
        if records:
            world.append("t", index, records - 1)
            world.append("t", index, 1, stable=stable)
        topic.partitions[index].deleted = state == "deleted"
        topic.partitions[index].log.offline = state == "offline"
        partition = PARTITIONS + index if state == "missing" else index
        asked.append(
            FetchPartition(
                partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=99
            )
        )
    wanted = FetchRequest(
        max_bytes=1000,
        min_bytes=min_bytes,
        isolation_level=int(committed),
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
    )
    short, long = (FullFetch(world, wanted, 11, 1, session=False) for _ in range(2))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FullFetch, "_at_the_end", lambda _: False)
        expected = long.attempt(final=False)
    answer = short.attempt(final=False)
    assert (answer is None) == (expected is None)
    assert short.missing == long.missing


def test_an_answer_tells_of_some_changes_and_the_next_of_the_others(world, monkeypatch):
    monkeypatch.setattr(fetching, "CHANGES_MAX", 10)
    world.create("a", 25)
    gone = [("gone", n, 0) for n in range(12)]
    session_id = begin(world, gone + [("a", n, 0) for n in range(25)])
    for n in range(25):
        world.append("a", n)
    looks, seen = [], []
    read = fetching.Fetch._read
    monkeypatch.setattr(fetching.Fetch, "_read", lambda *args: looks.append(1) or read(*args))
    for epoch in range(1, 6):
        waits = request(session_id=session_id, session_epoch=epoch, max_wait_ms=500, min_bytes=1 << 20)
        looks.clear()
        answer = world.fetch(waits, 12)
        assert answer is not None, "what is left is told by the next fetch, at once"
        assert len(looks) <= 10
        seen += [at for at, what in told(answer).items() if what[0] == E.NONE]
    assert set(seen) == {("a", n) for n in range(25)}, "errors do not stand before the others for ever"


def test_errors_that_were_told_are_told_again_but_are_no_reason_not_to_wait(world, monkeypatch):
    """Kafka tells errors in every answer and waits. So a session of very many topics that are gone must not spin."""
    monkeypatch.setattr(fetching, "CHANGES_MAX", 10)
    world.create("a", 5)
    session_id = begin(world, [("gone", n, 0) for n in range(25)] + [("a", n, 0) for n in range(5)])
    seen = []
    for epoch in range(1, 5):
        read = [("a", epoch - 1, 1)] if epoch > 1 else []
        waits = request(read, session_id=session_id, session_epoch=epoch, max_wait_ms=500)
        assert world.fetch(waits, 12) is None
        world.append("a", epoch)
        world.loop.soon.pop()()
        answer = told(decoded(world.slot.reply, 12))
        assert [at for at, what in answer.items() if what[0] == E.NONE] == [("a", epoch)], (
            "records come before errors"
        )
        seen += [at for at, what in answer.items() if what[0] == E.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(seen) > 25
    assert set(seen) == {("gone", n) for n in range(25)}, "each has its turn"
    world.create("gone", 25)
    ask = {"max_wait_ms": 500, "min_bytes": 0}
    found = set()
    for epoch in range(5, 9):
        answer = told(world.fetch(request(session_id=session_id, session_epoch=epoch, **ask), 12))
        found |= {at for at, what in answer.items() if what[0] == E.NONE and at[0] == "gone"}
    assert found == {("gone", n) for n in range(25)}, "a topic that has come is found"
    world.append("gone", 3)
    answer = told(world.fetch(request(session_id=session_id, session_epoch=9, **ask), 12))
    assert ("gone", 3) in answer


def test_a_partition_that_can_be_read_again_wakes_the_fetch_that_has_found_it(world):
    world.create("a", 1)
    session_id = begin(world, [("a", 0, 0), ("late", 0, 0)])
    world.create("late", 1)
    assert world.fetch(request(session_id=session_id, session_epoch=1, max_wait_ms=500), 12) is None
    world.append("late", 0)
    assert world.loop.soon, "the fetch is woken"
    world.loop.soon.pop()()
    assert told(decoded(world.slot.reply, 12)) == {("late", 0): (0, 1, 0, 10)}
