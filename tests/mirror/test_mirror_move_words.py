"""The lines of a move's steps."""

from __future__ import annotations

from typing import Any

from klamm.cli.mirror_move_words import drawn, step_line
from klamm_mirror.move.steps import Kind, Move, Step, done, stored


def place(group: str, verdict: str, *, exact: bool) -> dict[str, Any]:
    return {"group": group, "verdict": verdict, "exact": exact}


def test_groups_that_read_records_again_are_named():
    exact = [place("a", "set", exact=True), place("b", "ahead", exact=False)]
    assert step_line("groups", {"places": exact}) == "  groups   1 set, 1 farther already, left alone"
    one = step_line("groups", {"places": [*exact, place("c", "there", exact=False)]}, planned=True)
    assert one.splitlines()[1:] == [
        "           note: 1 offset is not exact: some records are read again by c"
    ]
    many = step_line("groups", {"places": [place(f"g{i}", "set", exact=False) for i in range(1000)]})
    said = "1000 offsets are not exact: some records are read again by g0, g1, g10, g100, g101 and others"
    assert many.splitlines()[1:] == [f"           note: {said}"]


def test_a_move_that_is_shown_again_tells_that_its_groups_were_set():
    row = {"group": "g", "target_topic": "A.t", "partition": 0, "verdict": "set", "target_offset": 7}
    topics = [{"topic": "o", "target_topic": "A.o"}, {"topic": "p", "target_topic": "p"}]
    move = Move(kind=Kind.CUTOVER, flow="A->B", identity="1", began_ms=1)
    move = done(move, Step.GROUPS, {"places": [{**row, "before": None}]}, 2)
    move = done(move, Step.TELL, {"cluster": "B", "bootstrap": "b:9092", "topics": topics}, 3)
    lines = drawn(move)
    assert "  groups go on at" in lines
    assert [line.strip() for line in lines if line.endswith(("A.o", "  p"))] == ["o, A.o", "p"]
    again = drawn(stored(move))
    assert [line for line in again if "klamm group describe shows where they are now" in line]
    assert "  groups go on at" not in again
