"""The steps of a move, pure: every step is done, in order, whatever is killed and whatever the source gets meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_base.errors import KlammError
from klamm_kafka.client import broker_error
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.errors import ErrorCode
from klamm_mirror.move.journal import Journal, entries
from klamm_mirror.move.steps import (
    CHANGING,
    ENDS,
    PLANS,
    STANDING,
    Kind,
    Move,
    Phase,
    Step,
    begun,
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


def reread(journal: Journal, before: Move | None, after: Move, records: int | None = None) -> Move | None:
    """Returns the move as another process reads it, after a kill behind so many records of a change."""
    for entry in entries(before, after)[:records]:
        key, value = entry.encode()
        journal.take(Record(offset=0, timestamp=0, key=key, value=value))
    return journal.move(after.kind, after.flow)


@given(kinds, st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), max_size=40))
def test_groups_are_set_when_all_is_copied_and_each_move_ends(kind, events):
    """Each event: the step is killed before its end, the source grows, so many records of its end reach the journal."""
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


@given(kinds, st.integers(0, 12), st.integers(0, 3))
def test_a_move_that_begins_anew_keeps_what_was_there_before(kind, steps, records):
    """Also after a kill between two records of the journal. Only what was decided is asked for again."""
    journal = Journal(None, "moves", 1)  # type: ignore[arg-type]
    first = through(new(kind), *PLANS[kind][:steps], found={"before": {"g": {"t-0": 3}}})
    reread(journal, None, first)
    killed = reread(journal, first, restarted(first, 9), records)
    assert killed is not None
    after = reread(journal, killed, restarted(killed, 9))
    assert after is not None
    assert next_step(after) is Step.CHECK
    before = CHANGING - {Step.SETTLE}
    assert {s for s in after.notes if s in CHANGING} == {s for s in first.notes if s in before}
    assert all(after.found(s) == first.found(s) for s in after.notes)


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
        asyncio.run(Journal(None, "moves", 1).write(new(Kind.CUTOVER)))  # type: ignore[arg-type]


def test_the_same_way_is_a_new_move_after_one_that_led_back():
    first = through(new(Kind.FAILOVER), *PLANS[Kind.FAILOVER])
    back = replace(new(Kind.FAILBACK), flow="B->A", began_ms=5)
    assert not led_back(first, [back])
    assert led_back(first, [through(back, Step.CHECK, Step.DIVERGED, Step.SETTLE)])
    assert led_back(first, [replace(back, phase=Phase.DONE)])
    assert not led_back(first, [replace(back, phase=Phase.DONE, began_ms=1)])
    assert not led_back(first, [replace(back, phase=Phase.DONE, flow="A->B")])


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
