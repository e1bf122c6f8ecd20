"""The steps of a move, pure: every step is done, in order, whatever is killed and whatever the source gets meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.mirror.moves.runner import Runner
from klamm_base.errors import KlammError
from klamm_kafka.client import broker_error
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.move.journal import Journal, Overtaken, batches
from klamm_mirror.move.steps import (
    CHANGING,
    ENDS,
    EXPORTED,
    PLANS,
    STANDING,
    Kind,
    Move,
    Phase,
    Step,
    begun,
    closed,
    done,
    led_back,
    next_step,
    restarted,
    resumed,
    stored,
    undo_next,
    undone,
)  # fmt: skip
from klamm_mirror.topics import internal_topics

kinds = st.sampled_from(list(Kind))


def new(kind: Kind, identity: str = "1") -> Move:
    return Move(kind=kind, flow="A->B", identity=identity, began_ms=1)


def found_by(step: Step, ends: dict[str, int]) -> dict[str, object]:
    return {ENDS: ends} if step in STANDING else {}


def read(journal: Journal, batches: list[list[Any]]) -> None:
    for batch in batches:
        for entry in batch:
            key, value = entry.encode()
            journal.take(Record(offset=0, timestamp=0, key=key, value=value))


def reread(journal: Journal, before: Move | None, after: Move, batches_: int | None = None) -> Move | None:
    """Returns the move as another process reads it, after a kill behind so many batches of a change."""
    there = journal._parts.get((after.kind, after.flow), {})
    read(journal, batches(before, stored(after), list(there))[:batches_])
    return journal.move(after.kind, after.flow)


@given(kinds, st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), max_size=40))
def test_groups_are_set_when_all_is_copied_and_each_move_ends(kind, events):
    """Each event: the step is killed before its end, the source grows, so many batches of its end reach the journal."""
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    end = 0
    move = reread(journal, None, new(kind))
    assert move is not None
    for killed, grows, records in [*events, *[(False, False, 9)] * 2 * len(PLANS[kind])]:
        ends = {"t-0": end}
        standing = any(move.is_done(s) for s in STANDING)
        step = next_step(move, ends if standing else None)
        if step is None:
            break
        plan = PLANS[kind]
        assert all(move.is_done(s) for s in plan[: plan.index(step)])
        if plan.index(step) > plan.index(Step.CHECK) and STANDING & set(plan[: plan.index(step)]):
            checked = [s for s in plan[: plan.index(step)] if s in STANDING]
            assert all(move.found(s)[ENDS] == ends for s in checked)
        noted = begun(move, step, {"before": 1}, 2) if step in CHANGING else move
        after = done(noted, step, found_by(step, ends), 3)
        now = reread(journal, move, noted)
        assert now == noted
        now = reread(journal, noted, after, 0 if killed else records)
        assert now is not None
        move, end = now, end + grows
    assert move.phase is Phase.DONE
    assert all(move.is_done(s) for s in PLANS[kind])


@given(kinds, st.integers(0, 12), st.integers(0, 3))
def test_what_was_begun_is_undone_in_reverse(kind, steps, records):
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    move = reread(journal, None, new(kind))
    assert move is not None
    changed: list[Step] = []
    for step in PLANS[kind][:steps]:
        after = done(move, step, found_by(step, {}), 3)
        reread(journal, move, after)
        move = after
        changed += [step] * (step in CHANGING)
    while (step := undo_next(move)) is not None:
        assert step == changed.pop()
        now = reread(journal, move, undone(move, step), records)
        assert now is not None
        if undo_next(now) == step:  # killed before it was noted: undone again
            changed.append(step)
            records = 9
        move = now
    assert not changed


def test_what_is_to_be_decided_is_shown_until_it_is():
    move = new(Kind.FAILBACK)
    for step in (Step.CHECK, Step.DIVERGED):
        move = done(move, step, {}, 2)
    assert next_step(move) is Step.SETTLE
    assert next_step(resumed(move)) is Step.DIVERGED
    assert next_step(resumed(begun(move, Step.SETTLE, {}, 3))) is Step.SETTLE


def through(move: Move, *steps: Step, found: dict[str, object] | None = None) -> Move:
    for step in steps:
        move = done(move, step, found or {}, 2)
    return move


@given(st.integers(1, len(PLANS[Kind.FAILOVER])))
def test_a_failover_that_is_given_again_looks_whether_the_source_is_lost_until_it_promoted(count):
    plan = PLANS[Kind.FAILOVER]
    move = through(new(Kind.FAILOVER), *plan[:count], found={"heard": {"t-0": [10, 1.0]}})
    again = resumed(move)
    if move.is_done(Step.PROMOTE):
        assert again == move
    else:
        assert next_step(again) is Step.CHECK
        assert again.found(Step.CHECK) == move.found(Step.CHECK)


@given(kinds, st.integers(0, 12), st.booleans())
def test_a_move_that_begins_anew_keeps_what_was_there_before(kind, steps, killed):
    """Only what was decided, and done, is asked for again."""
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    first = through(new(kind), *PLANS[kind][:steps], found={"before": {"g": {"t-0": 3}}})
    reread(journal, None, first)
    now = reread(journal, first, restarted(first, 9), 0 if killed else None)
    assert now is not None
    after = restarted(now, 9)
    assert next_step(after) is Step.CHECK
    before = CHANGING - {Step.SETTLE}
    assert {s for s in after.notes if s in CHANGING} == {s for s in first.notes if s in before}
    assert all(after.found(s) == first.found(s) for s in after.notes if s is not Step.DIVERGED)


def test_a_move_that_begins_anew_knows_what_was_exported():
    ranges = [{"topic": "t", "partition": 0, "start": 5, "end": 9}]
    shown = through(new(Kind.FAILBACK), Step.CHECK, Step.DIVERGED, found={"diverged": ["tail"]})
    settling = begun(shown, Step.SETTLE, {"decision": "export", EXPORTED: ranges}, 3)
    again = restarted(settling, 4)
    assert again.found(Step.DIVERGED) == {"diverged": ["tail"]}
    assert again.found(Step.SETTLE) == {"decision": "export", EXPORTED: ranges}
    settled = done(settling, Step.SETTLE, {"decision": "export", EXPORTED: ranges}, 5)
    for again in (restarted(settled, 6), restarted(restarted(settled, 6), 7)):
        assert again.found(Step.DIVERGED) == {EXPORTED: ranges}
        assert Step.SETTLE not in again.notes
    assert restarted(shown, 4).notes.keys() == {Step.CHECK, Step.DIVERGED}


OFFSETS = {f"group-{g}": {f"orders-{p}": g * p for p in range(100)} for g in range(200)}


def test_a_note_of_20000_offsets_is_cut_and_a_kill_between_two_batches_loses_nothing():
    assert sum(len(each) for each in OFFSETS.values()) == 20_000
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    move = through(new(Kind.CUTOVER), Step.CHECK, Step.QUIET)
    reread(journal, None, move)
    for after in (
        begun(move, Step.GROUPS, {"before": OFFSETS}, 3),
        done(begun(move, Step.GROUPS, {}, 3), Step.GROUPS, {"before": OFFSETS}, 4),
        done(move, Step.GROUPS, {"before": {**OFFSETS, "late": {"orders-0": 1}}}, 5),
        restarted(done(move, Step.GROUPS, {"before": OFFSETS}, 6), 7),
        undone(done(move, Step.GROUPS, {"before": OFFSETS}, 6), Step.GROUPS),
        closed(move),
        new(Kind.CUTOVER, "2"),
    ):
        killed = 0
        while (now := reread(journal, move, after, killed)) != after:
            assert now == move
            killed += 1
        reread(journal, after, after)  # the next change removes parts that a kill has left
        assert bool(journal._parts[move.kind, move.flow]) == bool(after.found(Step.GROUPS))
        for batch in batches(None, after):
            assert sum(len(key) + len(value or b"") for key, value in (e.encode() for e in batch)) < 1 << 20
        move = after


def test_a_part_that_is_missing_is_a_sentence():
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    move = begun(new(Kind.CUTOVER), Step.GROUPS, {"before": OFFSETS}, 3)
    found = batches(None, move)
    assert len(found) > 3
    read(journal, [*found[:1], *found[2:]])
    with pytest.raises(KlammError, match=r"part 1 of \d+ of the note of groups is missing"):
        journal.move(move.kind, move.flow)


class Topic:
    """The records of a journal, as commands share them."""

    def __init__(self, monkeypatch) -> None:
        self.records: list[Record] = []
        monkeypatch.setattr(internal_topics, "produce", self.produce)
        monkeypatch.setattr(Journal, "catch_up", self._catch_up(self))

    async def produce(self, cluster: object, topic: str, records: list[Record]) -> int:
        self.records += records
        return len(self.records) - len(records)

    @staticmethod
    def _catch_up(topic: Topic) -> Any:
        async def catch_up(journal: Journal) -> bool:
            journal.reset()
            for record in topic.records:
                journal.take(record)
            journal._position = len(topic.records)
            return True

        return catch_up

    def runner(self, work: dict[Step, Any], undo: dict[Step, Any] | None = None) -> Runner:
        async def ends() -> dict[str, int]:
            return {}

        journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
        return Runner(journal, work, undo or {}, ends, lambda *_: None)


async def nothing(move: Move, begin: Any) -> dict[str, Any]:
    return {ENDS: {}}


async def refuses(move: Move, begin: Any) -> dict[str, Any]:
    raise KlammError("refused")


ALL = dict.fromkeys(PLANS[Kind.CUTOVER], nothing)


@pytest.mark.parametrize("begin", [lambda known: restarted(known, 9), lambda known: new(Kind.CUTOVER, "2")])
async def test_a_move_that_is_refused_leaves_the_former_one_in_the_journal(monkeypatch, begin):
    topic = Topic(monkeypatch)
    first = topic.runner(ALL)
    assert await first.find(Kind.CUTOVER, "A->B") is None
    over = await first.run(new(Kind.CUTOVER))
    assert over.phase is Phase.DONE
    records = list(topic.records)
    again = topic.runner({**ALL, Step.CHECK: refuses})
    known = await again.find(Kind.CUTOVER, "A->B")
    assert known == over
    with pytest.raises(KlammError, match="refused"):
        await again.run(begin(known))
    assert topic.records == records
    third = topic.runner({**ALL, Step.QUIET: refuses})
    with pytest.raises(KlammError, match="refused"):
        await third.run(begin(await third.find(Kind.CUTOVER, "A->B")))
    now = await topic.runner(ALL).find(Kind.CUTOVER, "A->B")
    assert now is not None
    assert (now.phase, now.is_done(Step.CHECK), now.is_done(Step.GROUPS)) == (Phase.RUNNING, True, False)


async def test_of_two_commands_at_once_one_stops_before_it_changes_anything(monkeypatch):
    topic, changed = Topic(monkeypatch), []

    async def groups(move: Move, begin: Any) -> dict[str, Any]:
        await begin({"before": {}})
        changed.append(move.identity)
        return {}

    first = topic.runner({**ALL, Step.GROUPS: groups})
    await first.find(Kind.CUTOVER, "A->B")

    async def overtaken(move: Move, begin: Any) -> dict[str, Any]:
        await first.run(new(Kind.CUTOVER, "first"))
        return {ENDS: {}}

    second = topic.runner({**ALL, Step.GROUPS: groups, Step.CHECK: overtaken})
    await second.find(Kind.CUTOVER, "A->B")
    with pytest.raises(Overtaken, match=r"another command goes on with the cutover of A->B"):
        await second.run(new(Kind.CUTOVER, "second"))
    assert changed == ["first"]


async def test_of_two_commands_that_have_read_the_same_state_one_changes_something(monkeypatch):
    """The second has passed the check when the first writes, and writes when the first has passed its own."""
    topic, changed = Topic(monkeypatch), []

    def groups(name: str) -> Any:
        async def work(move: Move, begin: Any) -> dict[str, Any]:
            await begin({"before": {}})
            changed.append(name)
            raise KlammError("killed")

        return {**ALL, Step.GROUPS: work}

    looks = (Step.CHECK, Step.QUIET, Step.DRAIN, Step.VERIFY)
    move = through(new(Kind.CUTOVER), *looks, found={ENDS: {}})
    await Journal(None, "moves", 1).write(move, None)  # type: ignore[arg-type]
    first, second = topic.runner(groups("first")), topic.runner(groups("second"))
    await first.find(Kind.CUTOVER, "A->B")
    await second.find(Kind.CUTOVER, "A->B")

    async def late(cluster: object, name: str, records: list[Record]) -> int:
        monkeypatch.setattr(internal_topics, "produce", topic.produce)
        with pytest.raises(KlammError, match="killed"):
            await first.run(move)
        return await topic.produce(cluster, name, records)

    monkeypatch.setattr(internal_topics, "produce", late)
    with pytest.raises(Overtaken, match="another command wrote to moves at the same time"):
        await second.run(move)
    assert changed == ["first"]


async def test_an_undo_stops_a_command_that_goes_on(monkeypatch):
    topic, undone_ = Topic(monkeypatch), []

    async def undo_groups(move: Move, found: Any, begin: Any) -> None:
        await begin()
        undone_.append(found)

    undoing = topic.runner(ALL, {Step.GROUPS: undo_groups})

    async def groups(move: Move, begin: Any) -> dict[str, Any]:
        await begin({"before": {"g": {}}})
        now = await undoing.find(Kind.CUTOVER, "A->B")
        assert now is not None
        assert (await undoing.undo(now)).phase is Phase.UNDONE
        return {}

    first = topic.runner({**ALL, Step.GROUPS: groups})
    await first.find(Kind.CUTOVER, "A->B")
    with pytest.raises(Overtaken):
        await first.run(new(Kind.CUTOVER))
    assert undone_ == [{"before": {"g": {}}}]
    now = await undoing.find(Kind.CUTOVER, "A->B")
    assert now is not None
    assert now.phase is Phase.UNDONE


async def test_an_undo_that_is_refused_before_it_changes_anything_leaves_the_move_done(monkeypatch):
    topic = Topic(monkeypatch)

    async def nothing_to_undo(move: Move, found: Any, begin: Any) -> None:
        return None

    async def undo_groups(move: Move, found: Any, begin: Any) -> None:
        if used:
            raise KlammError("B has records of its own")
        await begin()

    used = True
    undo = {Step.PROMOTE: nothing_to_undo, Step.GROUPS: undo_groups}
    first = topic.runner(ALL, undo)
    await first.find(Kind.CUTOVER, "A->B")
    over = await first.run(new(Kind.CUTOVER))
    records = list(topic.records)
    with pytest.raises(KlammError, match="of its own"):
        await first.undo(over)
    assert topic.records == records
    assert await topic.runner(ALL).find(Kind.CUTOVER, "A->B") == over
    used = False
    assert (await first.undo(over)).phase is Phase.UNDONE
    now = await topic.runner(ALL).find(Kind.CUTOVER, "A->B")
    assert now is not None
    assert (now.phase, now.notes) == (Phase.UNDONE, {})


def test_a_move_that_promotes_does_not_wait_for_records_that_nothing_copies():
    steps = (Step.CHECK, Step.QUIET, Step.DRAIN, Step.VERIFY, Step.GROUPS)
    move = through(new(Kind.CUTOVER), *steps, found={ENDS: {"t-0": 5}})
    late = {"t-0": 6}
    assert next_step(move, late) is Step.QUIET
    assert next_step(begun(move, Step.PROMOTE, {"promoted": []}, 3), late) is Step.QUIET
    move = begun(move, Step.PROMOTE, {"promoted": ["t"]}, 3)
    assert next_step(move, late) is Step.PROMOTE
    assert next_step(through(move, Step.PROMOTE, found={"promoted": ["t"]}), late) is Step.TELL


def test_a_note_that_is_too_large_is_a_sentence(monkeypatch):
    async def produce(*_: object) -> int:
        raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "producing")

    async def nothing(_: Journal) -> None:
        return None

    monkeypatch.setattr(internal_topics, "produce", produce)
    monkeypatch.setattr(Journal, "catch_up", nothing)
    with pytest.raises(KlammError, match=r"moves does not take a note of \d+ bytes.*max\.message\.bytes"):
        asyncio.run(Journal(None, "moves", 1).write(new(Kind.CUTOVER), None))  # type: ignore[arg-type]


def test_the_same_way_is_a_new_move_after_one_that_led_back():
    first = through(new(Kind.FAILOVER), *PLANS[Kind.FAILOVER])
    back = replace(new(Kind.FAILBACK), flow="B->A", began_ms=5)
    assert not led_back(first, [back])
    assert led_back(first, [through(back, Step.CHECK, Step.DIVERGED, Step.SETTLE)])
    assert led_back(first, [replace(back, phase=Phase.DONE)])
    assert not led_back(first, [replace(back, phase=Phase.DONE, began_ms=1)])
    assert not led_back(first, [replace(back, phase=Phase.DONE, flow="A->B")])


@pytest.mark.parametrize(("held_ms", "anew"), [(4, False), (9, True)])
def test_a_way_back_is_a_new_move_once_its_flow_was_held_again(held_ms, anew):
    """The failover began before the way back, did not end, and went on after it."""
    back = done(replace(new(Kind.FAILBACK), flow="B->A"), Step.TELL, {}, 5)
    failover = done(new(Kind.FAILOVER), Step.HOLD, {"held": True}, held_ms)
    assert led_back(back, [failover]) is anew
    assert led_back(back, [replace(failover, phase=Phase.DONE)]) is anew


def test_a_new_move_takes_no_step_of_the_former_one():
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    first = new(Kind.CUTOVER)
    reread(journal, None, first)
    reread(journal, first, done(first, Step.CHECK, {}, 2))
    second = new(Kind.CUTOVER, "2")
    assert reread(journal, done(first, Step.CHECK, {}, 2), second) == second
    assert replace(second, notes={}) == second


def test_the_journal_keeps_no_records_of_applications():
    tail = {"topic": "t", "partition": 0}
    shown = {
        "at": "A",
        "diverged": [{**tail, "shown": [{"value": "secret"}]}],
        "own": [{**tail, "shown": []}],
    }
    move = done(new(Kind.FAILBACK), Step.DIVERGED, shown, 2)
    move = done(move, Step.GROUPS, {"before": {"places": {"t-0": 3}}, "places": [{"group": "g"}]}, 3)
    kept = stored(move)
    assert kept.found(Step.DIVERGED) == {"at": "A", "diverged": [tail], "own": [tail]}
    assert kept.found(Step.GROUPS) == {"before": {"places": {"t-0": 3}}}
    assert stored(kept) == kept
    assert move.found(Step.DIVERGED)["diverged"][0]["shown"]
