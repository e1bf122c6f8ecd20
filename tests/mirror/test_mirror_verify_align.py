"""The core of `klamm mirror verify`: records are aligned, and each that is at one side only is explained."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_kafka.wire.batch import Record
from klamm_mirror.verify.align import Aligner, Side
from klamm_mirror.verify.rows import ABORTED, AFTER_GAP, BEGINS_LATER, Row, rows_of
from klamm_mirror.verify.tally import Tally


def records(numbers: list[int], *, first: int = 0, keys: int = 0) -> list[Record]:
    """Distinct records; with `keys`, so many keys take turns."""
    return [
        Record(first + i, 1000 + n, b"%d" % (n % keys) if keys else None, b"v%d" % n)
        for i, n in enumerate(numbers)
    ]


def rows(found: list[Record], flags_of_first: int = 0) -> list[Row]:
    made = rows_of(found, stable_keys=True)
    if made:
        made[0] = made[0]._replace(flags=made[0].flags | flags_of_first)
    return made


def compare(source: list[Row], target: list[Row], *, seed: int = 0, **settings: Any) -> Aligner:
    """Compares logs that arrive in pieces of any size."""
    aligner, pieces = Aligner(**settings), random.Random(seed)
    rest = {Side.SOURCE: list(source), Side.TARGET: list(target)}
    while True:
        side = aligner.step(source_ended=not rest[Side.SOURCE], target_ended=not rest[Side.TARGET])
        if side is None:
            break
        count = pieces.randint(1, 50)
        (aligner.source if side is Side.SOURCE else aligner.target).extend(rest[side][:count])
        del rest[side][:count]
    aligner.target += rest[Side.TARGET]
    aligner.close(target_end=1 << 62)
    return aligner


def counts(tally: Tally) -> dict[str, int]:
    return {k: v for k, v in asdict(tally).items() if isinstance(v, int) and v}


def test_equal_logs_have_equal_checksums_whatever_their_offsets():
    log = list(range(500))
    tally = compare(rows(records(log)), rows(records(log, first=70))).tally
    assert counts(tally) == {"same": 500}
    assert [r.equal for r in tally.ranges] == [True]
    assert (tally.ranges[0].target_from, tally.ranges[0].target_to) == (70, 570)


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("value", {"value": b"other"}),
        ("key", {"key": b"k"}),
        ("timestamp", {"timestamp": 5}),
        ("headers", {"headers": [("h", b"1")]}),
        ("timestamp, key", {"timestamp": 5, "key": b"k"}),
    ],
)
@pytest.mark.parametrize("at", [0, 250, 499])
def test_the_first_differing_record_is_named_with_its_fields(field, changed, at):
    source, target = records(list(range(500))), records(list(range(500)), first=10)
    target[at] = target[at]._replace(**changed)
    tally = compare(rows(source), rows(target)).tally
    assert counts(tally) == {"same": 499, "different": 1}
    assert asdict(tally.first) == {"source_offset": at, "target_offset": at + 10, "field": field}
    assert not tally.ranges[0].equal


def test_null_and_empty_are_different():
    a, b = [Record(0, 1, None, b"")], [Record(0, 1, None, None)]
    assert compare(rows(a), rows(b)).tally.first.field == "value"


def test_a_mirror_that_was_killed_repeats_and_loses_nothing():
    source = records(list(range(1000)))
    target = records([*range(600), *range(200, 900), *range(850, 1000)])
    assert counts(compare(rows(source), rows(target)).tally) == {"same": 1000, "repeated": 450}


def test_lost_and_foreign_records_are_counted():
    source = records([*range(1000)])
    target = records([*range(100), *range(150, 500), 5000, 5001, *range(500, 1000)])
    tally = compare(rows(source), rows(target)).tally
    assert counts(tally) == {"same": 950, "missing": 50, "extra": 2}
    assert (tally.first.source_offset, tally.first.target_offset, tally.first.field) == (100, 100, "missing")


def test_what_is_not_copied_yet_is_behind():
    tally = compare(rows(records(list(range(100)))), rows(records(list(range(60))))).tally
    assert counts(tally) == {"same": 60, "behind": 40}
    assert tally.first.source_offset == 60


def test_records_after_the_end_of_the_comparison_do_not_matter():
    aligner = Aligner()
    aligner.source, aligner.target = rows(records(list(range(10)))), rows(records(list(range(15))))
    assert aligner.step(source_ended=True, target_ended=False) is None
    aligner.close(target_end=12)
    assert counts(aligner.tally) == {"same": 10, "extra": 2}


@pytest.mark.parametrize("ends", [(400, 0), (0, 400), (400, 300), (300, 400)])
def test_logs_whose_beginning_was_deleted(ends):
    source_from, target_from = ends
    source = rows(records(list(range(source_from, 1000)), first=source_from), AFTER_GAP if source_from else 0)
    target = rows(records(list(range(target_from, 1000)), first=target_from), AFTER_GAP if target_from else 0)
    tally = compare(source, target, window=50).tally
    assert not tally.differs
    assert tally.same == 1000 - max(ends)


def test_records_before_the_start_of_a_flow_are_explained():
    target = rows(records(list(range(700, 1000))), BEGINS_LATER)
    tally = compare(rows(records(list(range(1000)))), target).tally
    assert counts(tally) == {"same": 300, "before_start": 700}


def test_retention_may_move_the_start_meanwhile():
    source = rows(records([*range(100)])) + rows(records([*range(300, 500)], first=300), AFTER_GAP)
    tally = compare(source, rows(records(list(range(500))))).tally
    assert counts(tally) == {"same": 300, "purged_at_source": 200}


@pytest.mark.parametrize("copied", [True, False])
def test_aborted_records_may_be_there_or_not(copied):
    source = rows(records(list(range(100))))
    source[40:60] = [row._replace(flags=ABORTED) for row in source[40:60]]
    target = records([*range(100)] if copied else [*range(40), *range(60, 100)])
    what = "aborted_copied" if copied else "aborted_left_out"
    assert counts(compare(source, rows(target)).tally) == {"same": 80, what: 20}


def test_places_of_offsets_at_the_target():
    source = records([*range(100)])
    target = records([*range(50), *range(40, 50), *range(60, 100)])
    found = compare(rows(source), rows(target), marks=[0, 50, 55, 60, 99, 100, 500]).places
    assert found == {0: 0, 50: 60, 55: 60, 60: 60, 99: 99, 100: 100, 500: 100}


# ---- any log, any fault

FAULTS = st.lists(
    st.tuples(st.sampled_from(["repeat", "lose", "change", "insert"]), st.integers(0, 299)), max_size=3
)


@given(FAULTS, st.integers(0, 10_000))
@settings(max_examples=150)
def test_each_fault_is_found_and_no_other(faults, seed):
    numbers = list(range(300))
    target, lost, changed, inserted = list(numbers), set(), set(), 0
    for kind, at in faults:
        match kind:
            case "repeat":
                end = (
                    next(i for i, n in enumerate(target) if n == at or n == at + 1000)
                    if at not in lost
                    else None
                )
                if end is not None and at > 20:
                    run = [n for n in range(max(at - 20, 0), at + 1) if n not in lost and n not in changed]
                    target[end + 1 : end + 1] = run if target[end] == at else []
            case "lose":
                lost.add(at)
                target = [n for n in target if n not in {at, at + 1000}]
            case "change" if at not in lost:
                changed.add(at)
                target = [n + 1000 if n == at else n for n in target]
            case "insert":
                inserted += 1
                target.insert(at, 5000 + inserted)
    tally = compare(rows(records(numbers)), rows(records(target)), seed=seed).tally
    faulty = bool(lost or changed or inserted)
    assert tally.differs == faulty
    assert tally.same + tally.missing + tally.different + tally.behind == 300
    if not faulty:
        assert tally.repeated == len(target) - 300


@given(st.data())
@settings(max_examples=150)
def test_sides_compacted_at_different_times_are_equal_and_a_lost_latest_record_is_found(data):
    numbers, keys = list(range(200)), 7
    tombstones = data.draw(st.sets(st.integers(0, 199), max_size=10))

    def make(kept: list[int]) -> list[Row]:
        return rows_of(
            (Record(n, 1000 + n, b"%d" % (n % keys), None if n in tombstones else b"v%d" % n) for n in kept),
            stable_keys=True,
        )

    def compacted(upto: int) -> list[int]:
        """Leaves only the latest of each key of the first records, and no tombstone."""
        last = {n % keys: n for n in numbers[:upto]}
        return [n for n in numbers if n >= upto or (last[n % keys] == n and n not in tombstones)]

    source, target = (compacted(data.draw(st.integers(0, 190))) for _ in range(2))
    tally = compare(make(source), make(target), compacted=True).tally
    assert not tally.differs, (tally, source, target)
    victim = data.draw(st.sampled_from(range(200 - keys, 200)))
    if victim not in tombstones:
        found = compare(make(source), make([n for n in target if n != victim]), compacted=True).tally
        assert found.differs
        assert found.first.source_offset == victim


def test_a_tally_is_stored_as_json():
    tally = compare(rows(records(list(range(10)))), rows(records([*range(5), *range(6, 10)]))).tally
    assert Tally.of_json(tally.as_json()) == tally
