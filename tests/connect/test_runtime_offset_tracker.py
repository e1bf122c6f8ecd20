"""Source offsets advance over the contiguous acknowledged prefix, whatever the order of acknowledgements."""

from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.child.offset_tracker import Committable, OffsetTracker

FILE_A, FILE_B = {"filename": "a"}, {"filename": "b"}


def reached(tracker):
    return {c.partition["filename"]: c.offset["position"] for c in tracker.committable()}


def test_a_later_run_waits_for_the_ones_before_it():
    tracker = OffsetTracker()
    runs = [tracker.submit(FILE_A, {"position": n}, 1) for n in (10, 20, 30)]
    runs[1].pending -= 1
    runs[2].pending -= 1
    assert reached(tracker) == {}
    runs[0].pending -= 1
    assert reached(tracker) == {"a": 30}


def test_source_partitions_do_not_wait_for_each_other():
    tracker = OffsetTracker()
    tracker.submit(FILE_A, {"position": 1}, 1)
    other = tracker.submit(FILE_B, {"position": 2}, 1)
    other.pending -= 1
    assert reached(tracker) == {"b": 2}
    assert tracker.pending == 1


def test_key_order_does_not_make_another_partition():
    tracker = OffsetTracker()
    tracker.submit({"x": 1, "filename": "a"}, {"position": 1}, 1)
    tracker.submit({"filename": "a", "x": 1}, {"position": 2}, 0)
    assert reached(tracker) == {}


def test_an_empty_run_advances_with_what_is_before_it():
    tracker = OffsetTracker()
    run = tracker.submit(FILE_A, {"position": 1}, 2)
    tracker.submit(FILE_A, {"position": 2}, 0)
    run.pending -= 1
    assert reached(tracker) == {}
    run.pending -= 1
    assert reached(tracker) == {"a": 2}


def test_offsets_that_could_not_be_stored_come_again_and_stored_ones_do_not():
    tracker = OffsetTracker()
    tracker.submit(FILE_A, {"position": 1}, 0)
    first = tracker.committable()
    assert [c.offset for c in tracker.committable()] == [{"position": 1}]
    tracker.submit(FILE_A, {"position": 2}, 0)
    tracker.committed(first)  # stale by now: the newer one must still be offered
    assert reached(tracker) == {"a": 2}
    tracker.committed(tracker.committable())
    assert reached(tracker) == {}


@st.composite
def histories(draw):
    """Returns runs of two partitions, and an order in which single records are acknowledged, commits in between."""
    runs = draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=12))
    acks = draw(st.permutations([i for i, (_, count) in enumerate(runs) for _ in range(count)]))
    lost = draw(st.integers(0, len(acks)))
    return runs, acks[: len(acks) - lost], draw(st.sets(st.integers(0, len(acks) + 1)))


@given(histories())
def test_the_model_of_a_contiguous_prefix(history):
    runs, acks, commits = history
    tracker = OffsetTracker()
    submitted = [tracker.submit({"filename": p}, {"position": i}, count) for i, (p, count) in enumerate(runs)]
    left = [count for _, count in runs]
    stored = {}

    def commit():
        found = tracker.committable()
        for c in found:
            assert c.offset["position"] > stored.get(c.partition["filename"], -1), "offsets never go back"
            stored[c.partition["filename"]] = c.offset["position"]
        tracker.committed(found)

    def model():
        prefix = {}
        for name in "ab":
            for i, (p, _) in enumerate(runs):
                if p == name:
                    if left[i]:
                        break
                    prefix[name] = i
        return prefix

    for step, i in enumerate(acks):
        submitted[i].pending -= 1
        left[i] -= 1
        if step in commits:
            commit()
            assert stored == model()
    commit()
    assert stored == model()
    assert tracker.pending == sum(left)


def test_a_task_that_changes_its_dicts_afterwards_does_not_move_the_offset():
    tracker = OffsetTracker()
    partition, offset = {"file": "a"}, {"n": 1}
    tracker.submit(partition, offset, 1).pending = 0
    offset["n"], partition["file"] = 2, "b"
    tracker.submit(partition, offset, 1)
    assert tracker.committable() == [Committable({"file": "a"}, {"n": 1})]
