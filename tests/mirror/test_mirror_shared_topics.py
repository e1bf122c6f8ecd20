"""Offsets of a topic that is copied both ways under one name: nothing that a group has not read is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_mirror.checkpoint.translator import GroupTranslator
from klamm_mirror.offsets.mapping import OffsetMapping, OffsetSyncReader, Translated
from klamm_mirror.offsets.segment_topic import SegmentReader
from klamm_mirror.offsets.segments import Segment, SegmentLog
from klamm_mirror.offsets.shared_topics import translate_shared

KEY = ("t", 0)
NOBODY: Any = None


@dataclass
class Side:
    """A cluster's log, of names of records, and the flow that copies it to the other side."""

    name: str
    log: list[str] = field(default_factory=list)
    position: int = 0
    written: int = 0
    segments: SegmentLog = field(default_factory=SegmentLog)

    def __post_init__(self) -> None:
        self.segments.begin(0)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.log.append(f"{self.name}{self.written}")
            self.written += 1

    def pass_over(self) -> tuple[int, int]:
        """Passes over what is not copied, as after an export. Returns that range."""
        first, self.position = self.position, len(self.log)
        self.segments.begin(self.position)
        return first, self.position

    def copy(self, other: Side, count: int) -> None:
        for offset in range(self.position, min(self.position + count, len(self.log))):
            if self.log[offset].startswith(self.name):
                self.segments.add(Segment(offset, len(other.log), 1))
                other.log.append(self.log[offset])
            else:  # it came from there
                self.segments.skip(offset + 1)
            self.position = offset + 1


@dataclass
class Mappings:
    """Both flows' mappings, as the checkpoint task of A->B has read them."""

    forward: OffsetMapping
    back: OffsetMapping
    _readers: tuple[SegmentReader, SegmentReader]

    @classmethod
    def empty(cls) -> Mappings:
        readers = SegmentReader(NOBODY, ""), SegmentReader(NOBODY, "")
        forward = OffsetMapping(OffsetSyncReader(NOBODY, ""), readers[0])
        back = OffsetMapping(OffsetSyncReader(NOBODY, "", backwards=True), readers[1], backwards=True)
        return cls(forward, back, readers)

    def read(self, number: int, side: Side) -> None:
        for block in side.segments.take():
            self._readers[number].store.apply(KEY, block)

    def translate(self, offset: int, left_out: Sequence[tuple[int, int]] = ()) -> int | None:
        return translate_shared(self.forward, self.back, *KEY, offset, left_out=left_out).offset


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "copy", "copy", "read"]), st.sampled_from([0, 1]), st.integers(1, 5)),
    max_size=40,
)


@given(steps=STEPS, data=st.data())
def test_a_reader_that_moves_skips_nothing(steps, data):
    sides, mappings = (Side("a"), Side("b")), Mappings.empty()
    sides[0].write(1)
    for what, number, count in (
        ("copy", 0, 1),
        ("write", 1, 1),
        ("copy", 1, 2),
        ("read", 0, 0),
        ("read", 1, 0),
        *steps,
    ):
        side, other = sides[number], sides[1 - number]
        match what:
            case "write":
                side.write(count)
            case "copy":
                side.copy(other, count)
            case "read":
                mappings.read(number, side)
    at = data.draw(st.integers(0, len(sides[0].log)))
    read = set(sides[0].log[:at])
    there = mappings.translate(at)
    if there is not None:
        assert set(sides[1].log[:there]) <= read


@given(steps=STEPS, data=st.data())
def test_it_reads_nothing_again_that_lies_behind_all_it_has_read(steps, data):
    """When all is copied, it goes on at the first record that it has not read."""
    sides, mappings = (Side("a"), Side("b")), Mappings.empty()
    for what, number, count in (("write", 0, 1), ("write", 1, 1), *steps):
        if what == "write":
            sides[number].write(count)
        else:
            sides[number].copy(sides[1 - number], count)
    for number in (0, 1):
        sides[number].copy(sides[1 - number], 1000)
        mappings.read(number, sides[number])
    at = data.draw(st.integers(0, len(sides[0].log)))
    read = set(sides[0].log[:at])
    left = [i for i, record in enumerate(sides[1].log) if record not in read]
    assert mappings.translate(at) == (left[0] if left else len(sides[1].log))


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "copy", "export"]), st.sampled_from([0, 1]), st.integers(1, 5)),
        max_size=40,
    ),
    data=st.data(),
)
def test_it_goes_on_behind_what_was_exported(steps, data):
    """When all else is copied: at the first record that it has not read, and that was not exported."""
    sides, mappings = (Side("a"), Side("b")), Mappings.empty()
    ranges, exported = list[tuple[int, int]](), set[str]()
    for what, number, count in (("write", 0, 1), ("write", 1, 1), ("copy", 0, 1), ("copy", 1, 1), *steps):
        match what:
            case "write":
                sides[number].write(count)
            case "copy":
                sides[number].copy(sides[1 - number], count)
            case "export":
                ranges.append(sides[1].pass_over())
                exported |= {r for r in sides[1].log[slice(*ranges[-1])] if r.startswith("b")}
    for number in (0, 1):
        sides[number].copy(sides[1 - number], 1000)
        mappings.read(number, sides[number])
    at = data.draw(st.integers(0, len(sides[0].log)))
    gone = {*sides[0].log[:at], *exported}
    left = [i for i, record in enumerate(sides[1].log) if record not in gone]
    there = mappings.translate(at, ranges)
    assert there is not None
    assert set(sides[1].log[:there]) <= gone
    if at == len(sides[0].log):
        assert there == (left[0] if left else len(sides[1].log))


@pytest.mark.parametrize(
    ("at", "offset"), [(499, 499), (500, 520), (519, 520), (520, 520), (530, 530), (None, None)]
)
def test_a_reader_of_a_copy_returns_behind_what_was_exported(at, offset):
    translator = object.__new__(GroupTranslator)
    translator.left_out = {("t", 0): [(500, 520)]}
    translator._back = SimpleNamespace(translate=lambda *_: Translated(at, exact=True))  # type: ignore[assignment]
    translator._opposite = SimpleNamespace(  # type: ignore[assignment]
        original=lambda _: None, is_copy=lambda *_: True, is_mapped=lambda *_: True
    )
    translator._ledger = SimpleNamespace(table=SimpleNamespace(topics={}))  # type: ignore[assignment]
    translator._settings = SimpleNamespace(  # type: ignore[assignment]
        original=lambda name: name.removeprefix("A."),
        wants_topic=lambda _: True,
        rename=lambda name: f"B.{name}",
    )
    assert translator.translate("A.t", 0, 7) == ("t", Translated(offset, exact=True))
