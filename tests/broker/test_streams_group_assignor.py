"""The assignor of Streams groups: properties of its results, and the same results as Kafka's for random groups."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kafka_oracle

from klamm_broker.coordinator.streams.sticky_assignor import MemberSpec, SubtopologySpec, assign
from klamm_broker.coordinator.streams.tasks import NO_TASKS, TaskSet, each

JAVA_SOURCE = Path(__file__).parents[1] / "support" / "StreamsAssignorOracle.java"
Group = tuple[dict[str, MemberSpec], list[SubtopologySpec], int]


def random_group(
    rng: random.Random, before: Group | None = None, last: dict[str, TaskSet] | None = None
) -> Group:
    """Returns a group of random shape; with `before` and `last`, a change of that one that goes on from that assignment."""
    if before is None:
        subtopologies = [
            SubtopologySpec(str(n), rng.choice([1, 2, 3, 7, 12, 20]), rng.random() < 0.6)
            for n in range(rng.randint(1, 4))
        ]
        standbys = rng.choice([0, 0, 1, 1, 2])
    else:
        _, subtopologies, standbys = before
        if rng.random() < 0.1:
            standbys = rng.randint(0, 3)
    old = {} if before is None else before[0]
    kept = rng.sample(sorted(old), rng.randint(0, len(old)))
    members = {name: MemberSpec(old[name].process_id, (last or {}).get(name, NO_TASKS)) for name in kept}
    processes = [f"p{rng.randrange(1 << 30):x}" for _ in range(rng.randint(1, 6))]
    processes += [m.process_id for m in members.values()]
    for _ in range(rng.randint(0 if kept else 1, 9)):
        members[f"m{rng.randrange(1 << 40):x}"] = MemberSpec(rng.choice(processes), NO_TASKS)
    return members, subtopologies, standbys


def chain(seed: int, length: int = 4) -> list[tuple[Group, dict[str, TaskSet]]]:
    """Returns a group that changes several times, with its assignments."""
    rng = random.Random(seed)
    group, last = None, None
    found = []
    for _ in range(length):
        group = random_group(rng, group, last)
        last = assign(*group)
        found.append((group, last))
    return found


@settings(deadline=None)
@given(st.integers())
def test_every_task_is_active_once_and_in_one_process_once(seed):
    for (members, subtopologies, standbys), result in chain(seed):
        active = Counter(t for it in result.values() for t in each(it.active))
        assert set(active.values()) <= {1}
        assert len(active) == sum(s.tasks for s in subtopologies)
        in_process = Counter(
            (members[name].process_id, task)
            for name, it in result.items()
            for task in (*each(it.active), *each(it.standby))
        )
        assert set(in_process.values()) <= {1}
        stateful = {s.name for s in subtopologies if s.is_stateful}
        per_task = Counter(t for it in result.values() for t in each(it.standby))
        processes = len({m.process_id for m in members.values()})
        wanted = min(standbys, processes - 1)
        assert all(per_task[t] == wanted for t in active if t.subtopology in stateful)
        assert {t.subtopology for t in per_task} <= stateful


@settings(deadline=None)
@given(st.integers())
def test_nothing_moves_when_nothing_changes(seed):
    ((members, subtopologies, _), result) = chain(seed, 1)[0]
    without_standbys = assign(members, subtopologies, 0)
    again = {name: MemberSpec(it.process_id, without_standbys[name]) for name, it in members.items()}
    assert assign(again, subtopologies, 0) == without_standbys
    assert result.keys() == members.keys()


def line_of(group: Group) -> str:
    """Returns the text that StreamsAssignorOracle.java reads."""
    members, subtopologies, standbys = group
    words = [str(standbys), str(len(subtopologies))]
    for s in subtopologies:
        words += [s.name, str(s.tasks), str(s.is_stateful).lower()]
    for name, it in members.items():
        words += [name, it.process_id, text_of(it.last.active) or "-", text_of(it.last.standby) or "-"]
    return " ".join(words)


def text_of(tasks) -> str:
    return ",".join(sorted(f"{t.subtopology}:{t.partition}" for t in each(tasks)))


@pytest.mark.usefixtures("apache_kafka")
def test_the_same_results_as_kafkas():
    oracle = kafka_oracle.require()
    cases = [step for seed in range(500) for step in chain(seed)]
    result = oracle.run(str(JAVA_SOURCE), stdin="".join(line_of(group) + "\n" for group, _ in cases))
    assert result.returncode == 0, result.stderr
    answers = result.stdout.splitlines()
    assert len(answers) == len(cases)
    for (group, ours), theirs in zip(cases, answers, strict=True):
        told = " ".join(f"{m}={text_of(it.active)}/{text_of(it.standby)}" for m, it in sorted(ours.items()))
        assert told == theirs, line_of(group)
