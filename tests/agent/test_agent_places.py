"""The places that an agent goes on from while lines of before its start are not acknowledged: registry and write-ahead log."""

from __future__ import annotations

import shutil

import pytest

from klamm_agent.files.tracked import HEAD, Checkpoint, Limits, Observed, Print
from klamm_agent.files.tracker import Tracker
from klamm_agent.state.places import STREAMS, FileMark, Places
from klamm_agent.state.registry import StateDir

A, B, C = (1, 1), (1, 2), (1, 3)


def at(inode: tuple[int, int], offset: int) -> Checkpoint:
    return Checkpoint(
        path=f"/{inode[1]}.log", inode=inode, head=Print.of(b"h"), offset=offset, tail=Print.of(b"t")
    )


def killed(state: StateDir) -> None:
    """Leaves A and a stream at 50 in the registry, and at 100 in the log, whose batch nobody acknowledged; and C at 20."""
    places = Places(state, wanted=True)
    places.save([at(A, 50), at(C, 20)], {"journal": 50}, [counted(A, 1)])
    dropped = [(7, [counted(A, 2)])]
    about = {
        "batches": [[1, "t", None, 1, 1, [["/1.log", *A, 50, 100, 1], ["journal", *STREAMS, 50, 100, 1]]]]
    }
    FileMark(at(A, 100), dropped).note(about)
    about["streams"] = {"journal": 100}
    places.wal.commit(about, [bytearray(b"x")])
    places.close()


def counted(inode: tuple[int, int], lines: int) -> dict:
    return {
        "path": f"/{inode[1]}.log", "dev": inode[0], "inode": inode[1],
        "from": 0, "to": 100, "reason": "filter", "lines": lines,
    }  # fmt: skip


def offsets(places: Places) -> dict[tuple[int, int], int]:
    return {c.inode: c.offset for c in places.checkpoints}


def lines(places: Places, inode: tuple[int, int]) -> int:
    return sum(row["lines"] for row in places.policy if (row["dev"], row["inode"]) == inode)


def test_the_registry_passes_no_lines_of_before_that_are_not_acknowledged(tmp_path):
    state = StateDir(tmp_path / "s")
    killed(state)
    places = Places(state, wanted=True)
    assert offsets(places) == {A: 100, C: 20}
    assert (places.streams, lines(places, A)) == ({"journal": 100}, 3)
    held = places.held({A, STREAMS})
    policy = [*places.policy, counted(B, 4)]
    places.save([at(A, 100), at(B, 30), at(C, 25)], {"journal": 100}, policy, held=held)
    places.close()

    places = Places(state, wanted=True)
    assert offsets(places) == {A: 100, B: 30, C: 25}, "the log is beyond it"
    assert (places.streams, lines(places, A), lines(places, B)) == ({"journal": 100}, 3, 4)
    assert len(places.wal.book.live) == 1
    places.close()

    shutil.copytree(tmp_path / "s", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut/wal")  # a power cut
    cut = StateDir(tmp_path / "cut")
    places = Places(cut, wanted=True)
    assert offsets(places) == {A: 50, B: 30, C: 25}
    assert (places.streams, lines(places, A), lines(places, B)) == ({"journal": 50}, 1, 4)
    places.close()
    cut.close()

    places = Places(state, wanted=True)
    assert places.held(set()) == set(), "all is acknowledged"
    places.save([at(A, 100)], {"journal": 100}, places.policy)
    places.close()
    assert [c.offset for c in state.load()] == [100]
    assert (state.streams, sum(row["lines"] for row in state.policy)) == ({"journal": 100}, 7)
    state.close()


def test_files_whose_place_changed_without_a_read_are_held_too(tmp_path):
    """C gets the place of A, of which it is a copy; then C is forgotten, which the log must go on to know."""
    state = StateDir(tmp_path / "s")
    killed(state)
    places = Places(state, wanted=True)
    tracker = Tracker([Limits()], places.checkpoints)
    tracker.changed[C] = None
    tracker._files.pop(C)
    assert places.note(tracker)
    held = places.held({A})
    assert held == {A, C}
    places.save([at(A, 100)], {}, [], held=held)
    assert {c.inode: c.offset for c in state.load()} == {A: 50, C: 20}
    places.close()
    places = Places(state, wanted=True)
    assert offsets(places) == {A: 100}, "the log knows that C is forgotten"
    places.close()
    state.close()


@pytest.mark.parametrize("is_read", [False, True])
def test_content_that_nobody_read_is_replaced_once(tmp_path, is_read):
    """The registry tells of content that has other content in its place by now: only the log knows that."""
    state = StateDir(tmp_path / "s")
    places = Places(state, wanted=True)
    tracker = Tracker([Limits()])
    tracker.observe([Observed(path="/1.log", inode=A, size=5000, modified=1.0, source=0)], 1.0, 1.0)
    (file,) = tracker.to_open()
    tracker.opened(file, b"a" * HEAD, b"", 1.0)
    places.save(tracker.checkpoints())
    tracker.looked(file, 200, 2.0, 1, 2.0)
    new = b"b" * 99 + b"\n"
    tracker.glimpsed(file, 2 * new)
    assert places.note(tracker)
    if is_read:
        block = tracker.feed(file, 2 * new, 4096)
        mark, _ = places.mark(file, [], block.end, sent=True)
        about = {"batches": [[1, "t", None, 2, 1, [["/1.log", *A, 0, 200, 2]]]]}
        mark.note(about)
        places.wal.commit(about, [bytearray(b"x")])
    places.close()

    places = Places(state, wanted=True)
    found = {c.inode: (c.offset, c.size) for c in places.checkpoints}
    assert found.pop((-1, -1)) == (0, 5000)
    assert found == ({A: (200, -1)} if is_read else {})
    places.close()
    state.close()
