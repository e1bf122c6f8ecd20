"""The lines of a move's steps."""

from __future__ import annotations

from typing import Any

from klamm.cli.mirror_move_words import step_line


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
