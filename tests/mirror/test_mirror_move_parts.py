"""Parts of moves, pure: losses, offsets of groups, and records that only one side has."""

from __future__ import annotations

import json
import re

import pytest

from klamm.mirror.held_by import why_held
from klamm.mirror.moves.common import missing, with_former
from klamm.mirror.moves.failover import with_held
from klamm_kafka.wire.batch import Record
from klamm_mirror.checkpoint.groups import Kind as GroupKind
from klamm_mirror.move.diverged import Tail, as_line, as_row
from klamm_mirror.move.group_offsets import GroupPlace, Verdict
from klamm_mirror.move.loss import Heard, losses
from klamm_mirror.move.steps import Kind, Move, Step, begun, closed, done


def place(offset: int | None = 10, before: int | None = None, **changes) -> GroupPlace:
    given = {"group": "g", "topic": "t", "partition": 0, "source_offset": 10, "remote": "A.t", "exact": True}
    return GroupPlace(**{**given, "offset": offset, "before": before, **changes})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (place(), Verdict.SET),
        (place(before=9), Verdict.SET),
        (place(before=10), Verdict.THERE),
        (place(before=11), Verdict.AHEAD),
        (place(offset=None), Verdict.UNKNOWN),
        (place(before=9, barred=Verdict.ACTIVE), Verdict.ACTIVE),
        (place(before=10, barred=Verdict.ACTIVE), Verdict.THERE),
        (place(barred=Verdict.TAKEN), Verdict.TAKEN),
        (place(kind=GroupKind.SHARE, barred=Verdict.UNSERVED), Verdict.UNSERVED),
        (place(kind=GroupKind.SHARE, source_offset=-1, offset=None), Verdict.UNREAD),
    ],
)
def test_a_group_is_set_unless_it_is_there_or_reads_there(found, verdict):
    assert found.verdict is verdict


def test_an_undo_knows_what_was_there_before_the_first_time():
    first = with_former([place(), place(partition=1, before=3), place(partition=2, before=10)], {})
    assert first == {"g": {"A.t-0": None, "A.t-1": 3}}
    again = [place(before=10), place(offset=20, partition=1, before=10), place(group="h", before=None)]
    assert with_former(again, first) == {"g": {"A.t-0": None, "A.t-1": 3}, "h": {"A.t-0": None}}


def test_what_is_missing_and_what_is_lost():
    ends = {("t", 0): 10, ("t", 1): 5, ("t", 2): 0}
    assert missing(ends, {("t", 0): 7, ("t", 1): 9}) == {("t", 0): 3, ("t", 1): 0, ("t", 2): 0}
    heard = {
        ("t", 0): Heard(end=12, seconds=3.5),
        ("t", 1): Heard(end=4, seconds=0.0),
        ("t", 2): Heard(end=None, seconds=9.0),
    }
    found = losses({("t", 0): 7, ("t", 1): 5, ("t", 2): 1, ("t", 3): 8}, heard, {("t", 3): 1_700})
    assert [(p.end, p.records, p.seconds, p.newest_ms) for p in found] == [
        (12, 5, 3.5, None),
        (5, 0, 0.0, None),
        (None, None, 9.0, None),
        (None, None, None, 1_700),
    ]


def test_records_are_counted_shown_and_written_whole():
    tail = Tail(topic="t", partition=0, start=5, end=8)
    records = [
        Record(offset=5, timestamp=20, key=b"k", value=None, headers=[("h", b"\xff")]),
        Record(offset=6, timestamp=10, key=None, value=b"\xff\x00"),
        Record(offset=7, timestamp=15, key=None, value="ü".encode()),
    ]
    for record in records:
        tail.add(record, 2)
    assert (tail.records, tail.first_ms, tail.last_ms, len(tail.shown)) == (3, 10, 20, 2)
    assert as_row("t", 0, records[1])["value"] == "base64:/wA="
    line = json.loads(as_line("t", 0, records[0]))
    assert (line["key"], line["value"], line["headers"]) == ("aw==", None, [["h", "/w=="]])


def test_a_failover_says_that_it_holds_the_flow():
    move = Move(kind=Kind.FAILOVER, flow="A->B", identity="1", began_ms=1)
    assert why_held(done(move, Step.CHECK, {}, 2)) is None
    held = done(move, Step.HOLD, {"connectors": {}}, 1_700_000_000_000)
    assert re.fullmatch(
        r"the failover of 2023-11-1\d \d\d:\d\d:\d\d holds it, and has not ended: if no command is at it, klamm "
        r"mirror failover mm2 'A->B' goes on with it, --undo ends it",
        why_held(held, "mm2") or "",
    )
    over = why_held(done(held, Step.TELL, {}, 3), "mm2") or ""
    assert "klamm mirror failback mm2 'B->A' goes back, klamm mirror failover mm2 'A->B' --undo" in over
    assert "klamm mirror cutover FILE 'B->A' goes back" in (
        why_held(done(held, Step.PROMOTE, {"promoted": ["t"]}, 3)) or ""
    )
    assert why_held(closed(held)) is None


def test_what_was_heard_before_the_flow_was_held_stays_known():
    move = Move(kind=Kind.FAILOVER, flow="A->B", identity="1", began_ms=1)
    move = done(move, Step.CHECK, {"heard": {"t-0": [10, 1.0], "t-1": [4, 2.0]}}, 2)
    now = {"state": "STOPPED", "heard": {"t-0": [None, 99.0], "t-1": [5, 3.0]}}
    failed = begun(move, Step.HOLD, {"connectors": {}}, 3)
    assert with_held(now, failed) == now
    held = done(failed, Step.HOLD, {"connectors": {}, "held": True}, 4)
    assert with_held(now, held) == {"state": "STOPPED", "heard": {"t-0": [10, 1.0], "t-1": [5, 3.0]}}
