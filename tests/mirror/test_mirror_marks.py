"""Marks of records' origins: their bytes, their topic, and what happens where they cannot be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from support.broker import wait_until
from support.circles import Circle, end, topic_at
from support.mirroring import produce, read

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.batch import Record
from klamm_mirror.origins import Origin
from klamm_mirror.provenance import tracker as provenance
from klamm_mirror.provenance.marks import MalformedMark, Mark
from klamm_mirror.settings.policy import PROVENANCE_TOPIC, find_policy


@given(st.integers(0, 2**63 - 1), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_a_mark_is_read_as_it_was_written(producer_id, cluster, alias, flow):
    mark = Mark(producer_id, Origin(cluster, alias), flow)
    record = mark.encode(5)
    assert Mark.decode(record) == mark
    assert json.loads(record.value or b"").keys() == {"version", "cluster", "alias", "flow"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"1", b'{"version": 1, "cluster": "c", "alias": "A"}', "version 1, only 0 is known"),
        (b"x", b'{"version": 0, "cluster": "c", "alias": "A"}', "key b'x'"),
        (b"1", b'{"version": 0}', "cluster"),
        (b"1", b"[]", "value b'\\[\\]'"),
        (None, None, "value None"),
    ],
)
def test_what_is_no_mark_is_named(key, value, said):
    with pytest.raises(MalformedMark, match=said):
        Mark.decode(Record(key=key, value=value))


@pytest.mark.parametrize("separator", [".", "-"])
def test_the_topic_of_marks_is_never_mirrored(separator):
    for name in ("DefaultReplicationPolicy", "IdentityReplicationPolicy"):
        assert find_policy(name)(separator=separator).is_internal_topic(PROVENANCE_TOPIC)


@pytest.fixture
def pair(processes, tmp_path) -> Iterator[dict[str, str]]:
    """Two clusters whose topics of marks a test may spoil."""
    with EmbeddedBroker(tmp_path / "a") as a, EmbeddedBroker(tmp_path / "b") as b:
        yield {"A": a.bootstrap, "B": b.bootstrap}


def write(servers: str, topic: str, count: int) -> None:
    produce(servers, topic, [(None, b"%d" % i, [], 1_700_000_000_000 + i) for i in range(count)])


def marks(servers: str) -> list[Mark]:
    rows = read(servers, PROVENANCE_TOPIC, None)
    return [Mark.decode(Record(key=key, value=value)) for key, value, _, _ in rows]


def test_a_producer_that_the_target_forgot_is_followed_by_a_marked_one(pair):
    topic = topic_at(pair)
    write(pair["A"], topic, 50)
    with Circle(pair, ["AB"], topic) as there:
        there.settle()
        (partition,) = there.running["AB"].tasks[0]._partitions
        partition._sequence += 7  # as if the target had lost what it knew
        write(pair["A"], topic, 40)
        there.settle()
    assert end(pair["B"], topic) == 90
    assert [(m.origin.alias, m.flow) for m in marks(pair["B"])] == [("A", "A->B")] * 2
    with Circle(pair, ["BA"], topic) as back:
        back.settle()
        assert back.left_out("BA", "of_target") >= 2
    assert end(pair["A"], topic) == 90


def test_marks_that_somebody_deletes_are_written_again(pair, monkeypatch):
    monkeypatch.setattr(provenance, "LOOK_S", 0.1)
    topic = topic_at(pair)
    write(pair["A"], topic, 20)
    with Circle(pair, ["AB"], topic) as there:
        there.settle()
        before = marks(pair["B"])
        admin = AdminClient({"bootstrap.servers": pair["B"]})
        admin.delete_topics([PROVENANCE_TOPIC])[PROVENANCE_TOPIC].result(60)
        wait_until(lambda: PROVENANCE_TOPIC in admin.list_topics(timeout=30).topics, "the topic is back")
        wait_until(lambda: end(pair["B"], PROVENANCE_TOPIC) > 0, "with its marks")
        assert marks(pair["B"]) == before
    with Circle(pair, ["BA"], topic) as back:
        back.settle()
    assert end(pair["A"], topic) == 20
