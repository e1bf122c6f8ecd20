"""The server-side assignors: properties of their results, and the same results as Kafka's for random groups."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kafka_oracle

from klamm_broker.coordinator import java_order
from klamm_broker.coordinator.consumer import range_assignor, uniform_assignor
from klamm_broker.coordinator.consumer.assignment import GroupSpec, MemberSpec, combined

JAVA_SOURCE = Path(__file__).parents[1] / "support" / "AssignorOracle.java"
ASSIGNORS = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}


def random_group(rng: random.Random, last: dict | None = None, spec: GroupSpec | None = None) -> GroupSpec:
    """Returns a group of random shape; with `spec` and `last`, a change of that one that goes on from that assignment."""
    counts = dict(spec.partition_counts) if spec else {}
    for _ in range(rng.randint(0 if spec else 1, 4)):
        counts[rng.randbytes(16)] = rng.choice([1, 2, 3, 7, 12, 40])
    topic_ids = list(counts)
    if spec and rng.random() < 0.3:
        grown = rng.choice(topic_ids)
        counts[grown] += rng.randint(1, 5)
    homogeneous = rng.random() < 0.5
    common = tuple(rng.sample(topic_ids, rng.randint(1, len(topic_ids))))
    old = list(spec.members) if spec else []
    kept = rng.sample(old, rng.randint(0, len(old)))
    names = [*kept, *(f"m{rng.randrange(1 << 40):x}" for _ in range(rng.randint(0 if kept else 1, 9)))]
    members = {}
    for name in java_order.strings(names):
        some = tuple(rng.sample(topic_ids, rng.randint(0, len(topic_ids))))
        members[name] = MemberSpec(
            topic_ids=common if homogeneous else some,
            instance_id=f"i{rng.randrange(50)}{name}" if rng.random() < 0.3 else None,
            assignment=(last or {}).get(name, {}) if name in kept else {},
        )
    return GroupSpec(
        members=members,
        homogeneous=homogeneous,
        partition_counts=counts,
        assigned=combined(m.assignment for m in members.values()),
    )


def line_of(assignor: str, group: GroupSpec) -> str:
    """Returns the text that AssignorOracle.java reads."""
    topics = list(group.partition_counts)
    words = [assignor, str(group.homogeneous).lower(), str(len(topics))]
    for topic_id in topics:
        words += [*map(str, struct.unpack(">qq", topic_id)), str(group.partition_counts[topic_id])]
    for name, member in group.members.items():
        subscribed = ",".join(str(topics.index(t)) for t in member.topic_ids)
        owned = ",".join(f"{topics.index(t)}:{p}" for t, ps in member.assignment.items() for p in sorted(ps))
        words += [name, member.instance_id or "-", subscribed or "-", owned or "-"]
    return " ".join(words)


def answer_of(group: GroupSpec, result: dict) -> str:
    topics = list(group.partition_counts)
    lines = []
    for name in sorted(result):
        items = sorted(f"{topics.index(t)}:{p}" for t, ps in result[name].items() for p in ps)
        lines.append(f"{name}={','.join(items)}")
    return " ".join(lines)


@settings(deadline=None)
@given(st.integers(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_with_a_subscriber_goes_to_exactly_one(seed, name):
    rng = random.Random(seed)
    group, last = None, {}
    for _ in range(3):
        group = random_group(rng, last, group)
        last = ASSIGNORS[name](group)
        for topic_id, count in group.partition_counts.items():
            subscribers = {m for m, it in group.members.items() if topic_id in it.topic_ids}
            owners = [(p, m) for m, parts in last.items() for p in parts.get(topic_id, ())]
            assert sorted(p for p, _ in owners) == (list(range(count)) if subscribers else [])
            assert {m for _, m in owners} <= subscribers


@settings(deadline=None)
@given(st.integers())
def test_uniform_is_balanced_and_keeps_what_it_can_when_all_subscribe_to_the_same(seed):
    rng = random.Random(seed)
    first = random_group(rng)
    topic_ids = next(iter(first.members.values())).topic_ids or tuple(first.partition_counts)
    last: dict = {}
    members = {name: MemberSpec(topic_ids=topic_ids) for name in first.members}
    for _ in range(2):
        group = GroupSpec(
            members=members,
            homogeneous=True,
            partition_counts=first.partition_counts,
            assigned=combined(m.assignment for m in members.values()),
        )
        result = uniform_assignor.assign(group)
        sizes = [sum(map(len, parts.values())) for parts in result.values()]
        assert max(sizes) - min(sizes) <= 1
        assert not last or result == last, "nothing changed, so nothing moves"
        last = result
        members = {n: MemberSpec(topic_ids=topic_ids, assignment=result[n]) for n in members}


@pytest.mark.usefixtures("apache_kafka")
def test_the_same_results_as_kafkas():
    oracle = kafka_oracle.require()
    rng = random.Random(848)
    groups: list[tuple[str, GroupSpec, dict]] = []
    for name, assign in ASSIGNORS.items():
        for _ in range(500):
            group, last = None, {}
            for _ in range(3):
                group = random_group(rng, last, group)
                last = assign(group)
                groups.append((name, group, last))
    text = "".join(line_of(name, group) + "\n" for name, group, _ in groups)
    result = oracle.run(str(JAVA_SOURCE), stdin=text)
    assert result.returncode == 0, result.stderr
    answers = result.stdout.splitlines()
    assert len(answers) == len(groups)
    for (name, group, ours), theirs in zip(groups, answers, strict=True):
        assert answer_of(group, ours) == theirs, line_of(name, group)
