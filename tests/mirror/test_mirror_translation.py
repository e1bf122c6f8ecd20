"""Translation of offsets: whatever the syncs, no record is skipped that was not read."""

from __future__ import annotations

import itertools
import math
import random

from hypothesis import given
from hypothesis import strategies as st
from support.drawing import choices

from klamm_mirror.offsets.translation import SYNCS_MAX, CheckpointStore, OffsetSyncStore, offsets_to_sync
from klamm_mirror.topics.formats import Checkpoint, OffsetSync


def store_of(*syncs: tuple[int, int]) -> OffsetSyncStore:
    store = OffsetSyncStore()
    for upstream, downstream in syncs:
        store.apply(OffsetSync("t", 0, upstream, downstream))
    return store


@st.composite
def histories(draw):
    """Returns a partition as it was copied: (upstream, downstream) of every record, and which of them got a sync.

    Offsets have holes on both sides (compaction, transaction markers), and a copier that was killed copies
    a part again.
    """
    up, down, copies = draw(st.integers(0, 50)), draw(st.integers(0, 50)), []
    count = draw(st.integers(1, 120))
    ups, downs = choices(draw, [1, 1, 1, 1, 2, 5, 400], count), choices(draw, [1, 1, 1, 2, 9], count)
    for step_up, step_down in zip(ups, downs, strict=True):
        up += step_up
        down += step_down
        copies.append((up, down))
    if draw(st.booleans()):
        again = copies[draw(st.integers(0, len(copies) - 1)) :]
        copies += [(u, down + 1 + i) for i, (u, _) in enumerate(again)]
    synced = [
        c for c, is_synced in zip(copies, choices(draw, [False, True], len(copies)), strict=True) if is_synced
    ]
    return copies, synced


@given(histories(), st.data())
def test_translation_never_skips_a_record_that_was_not_read(history, data):
    copies, synced = history
    store = store_of(*synced)
    offset = data.draw(st.integers(0, copies[-1][0] + 5))
    translated = store.translate("t", 0, offset)
    if translated is None:
        return
    # The last copy of each record counts: whoever goes on at `translated` must still meet it.
    last_copy = dict(copies)
    assert all(down >= translated for up, down in last_copy.items() if up >= offset)
    # Never ahead of what was replicated
    assert translated <= max(down for _, down in synced) + 1


@given(histories(), st.data())
def test_translation_backwards_never_skips_a_record_that_was_not_read(history, data):
    """A reader of the copy that goes back to the original: what it has not met in the copy, it must meet there."""
    copies, synced = history
    store = store_of(*((down, up) for up, down in synced))
    offset = data.draw(st.integers(0, copies[-1][1] + 5))
    translated = store.translate("t", 0, offset)
    if translated is None:
        return
    read = {up for up, down in copies if down < offset}
    assert all(up >= translated for up, _ in copies if up not in read)


@given(histories(), st.data())
def test_translation_is_monotonic_in_the_offset(history, data):
    _, synced = history
    store = store_of(*synced)
    offsets = sorted(data.draw(st.lists(st.integers(0, 3000), min_size=2, max_size=20)))
    found = [t for o in offsets if (t := store.translate("t", 0, o)) is not None]
    assert found == sorted(found)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=400))
def test_at_most_64_syncs_stay_and_the_gaps_grow_with_the_distance(steps):
    store, upstream, all_offsets = OffsetSyncStore(), 0, []
    for step in steps:
        upstream += step
        all_offsets.append(upstream)
        store.apply(OffsetSync("t", 0, upstream, upstream))
    kept = [u for u, _ in store.syncs("t", 0)]
    assert len(kept) <= SYNCS_MAX
    assert kept[0] == all_offsets[0]
    assert kept[-1] == all_offsets[-1]
    position = {u: i for i, u in enumerate(all_offsets)}
    for older, newer in itertools.pairwise(kept):
        adjacent = position[newer] - position[older] == 1
        assert adjacent or newer - older <= all_offsets[-1] - older


def test_precision_on_a_long_topic():
    """A billion records with a sync every hundred: a group is taken back by a third of its lag at most."""
    store, rng = OffsetSyncStore(), random.Random(5)
    newest = 0
    for _ in range(30_000):
        newest += rng.randint(80, 100) * 333
        store.apply(OffsetSync("t", 0, newest, newest))
    for exponent in range(5, 30):
        offset = newest - 2**exponent
        if offset > 0:
            translated = store.translate("t", 0, offset)
            assert translated is not None
            assert offset - translated <= max(100 * 333, (newest - translated) / 3)


def test_an_offset_with_a_sync_is_exact_and_others_follow_the_sync():
    store = store_of((10, 5), (20, 15))
    assert store.translate("t", 0, 9) is None
    assert [store.translate("t", 0, o) for o in (10, 11, 19, 20, 21, 99)] == [5, 6, 6, 15, 16, 16]
    assert store.translate("t", 1, 10) is None
    assert store.translate("other", 0, 10) is None


def test_a_source_that_began_again_makes_what_was_known_void():
    store = store_of((100, 100), (200, 200), (3, 201))
    assert store.syncs("t", 0) == [(3, 201)]
    assert store.translate("t", 0, 150) == 202
    assert store.translate("t", 0, 2) is None


def test_a_target_that_lost_its_records_makes_what_was_known_void():
    store = store_of((100, 100), (200, 200), (300, 7))
    assert store.translate("t", 0, 250) is None
    assert store.translate("t", 0, 300) == 7


def test_checkpoints_never_rewind_but_for_a_group_that_did():
    store = CheckpointStore()
    store.remember(Checkpoint("g", "a.t", 0, 100, 90), 0)
    assert not store.is_news(Checkpoint("g", "a.t", 0, 100, 90))
    assert not store.is_news(Checkpoint("g", "a.t", 0, 120, 80))
    assert store.is_news(Checkpoint("g", "a.t", 0, 120, 91))
    assert store.is_news(Checkpoint("g", "a.t", 0, 50, 40))
    assert store.is_news(Checkpoint("g", "a.t", 1, 1, 1))
    assert store.is_news(Checkpoint("h", "a.t", 0, 1, 1))
    store.forget(["g"])
    assert store.is_news(Checkpoint("g", "a.t", 0, 100, 90))


def test_checkpoints_from_before_a_topic_was_made_anew_are_forgotten():
    store = CheckpointStore()
    old, new, other = (Checkpoint("g", topic, 0, 100, 90) for topic in ("deleted", "anew", "other"))
    for at, checkpoint in ((10, old), (10, new), (10, other), (21, new)):
        store.remember(checkpoint, at)
    since = {("deleted", 0): math.inf, ("anew", 0): 20.0}
    assert store.forget_outdated(lambda place: since.get(place, -math.inf)) == [old]
    since["anew", 0] = 21.0
    assert store.forget_outdated(lambda place: since.get(place, -math.inf)) == [new]
    assert store.of_group("g") == {("other", 0): other}
    assert store.is_news(Checkpoint("g", "anew", 0, 100, 0))


def test_a_group_at_the_target_is_never_taken_back():
    checkpoints = {("a.t", p): Checkpoint("g", "a.t", p, 100, 90) for p in range(4)}
    committed = {("a.t", 0): 90, ("a.t", 1): 91, ("a.t", 2): 89, ("a.u", 0): 5}
    assert sorted(offsets_to_sync(checkpoints, committed)) == [("a.t", 2), ("a.t", 3)]
