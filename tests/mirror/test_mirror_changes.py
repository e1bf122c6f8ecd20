"""Positions to commit, by the partitions that changed: never fewer than a look at all of them would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_mirror.copy.changes import Changes, Uncommitted
from klamm_mirror.copy.partition import MirrorPartition
from klamm_mirror.copy.segment_writer import changed_records
from klamm_mirror.raw import Batch

ID = b"i" * 16


def batch(first: int, count: int) -> Batch:
    data = bytearray(61 + count)
    return Batch(data, first, first + count - 1, first + count, count, 0, runs=((first, count),))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["fetch", "empty", "ack", "commit", "move"]))))
def test_news_are_those_of_all_partitions(steps):
    partitions = [MirrorPartition(topic="t", partition=i, remote="A.t", topic_id=ID) for i in range(4)]
    uncommitted, changes = Uncommitted(partitions), Changes(partitions)
    committed = {p: p.committed for p in partitions}
    sent: dict[MirrorPartition, list[Batch]] = {p: [] for p in partitions}
    for p in partitions:
        p.begin(0)
    for which, step in steps:
        p = partitions[which]
        if step == "fetch":
            p.add([batch(p.position, 2)], p.position + 2)
            while (taken := p.take(0.0)) is not None:
                sent[p].append(taken)
        elif step == "empty":
            p.add([], p.position + 1)
        elif step == "ack" and sent[p]:
            b = sent[p].pop(0)
            p.acked(b, b.first, 0)
        elif step == "move" and p.idle:
            p.move(p.done, (1, 0))
            sent[p].clear()
        elif step == "commit":
            uncommitted.committed(uncommitted.news())
            committed = {p: p.committed for p in partitions}
            found = changed_records(changes.take())
            assert {r.partition for r in found} <= {("t", p.partition) for p in partitions}
            assert changed_records(partitions) == [], "nothing is left behind"
        wanted = {p: p.committed for p in partitions if p.committed != committed[p]}
        assert dict(uncommitted.news()) == wanted


def test_only_partitions_that_changed_are_looked_at():
    partitions = [MirrorPartition(topic="t", partition=i, remote="A.t") for i in range(5)]
    changes = Changes(partitions)
    assert changes.take() == partitions
    partitions[3].begin(7)
    partitions[1].begin(7)
    partitions[3].begin(8)
    assert changes.take() == [partitions[3], partitions[1]]
    assert changes.take() == []
