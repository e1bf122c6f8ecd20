"""The workers' messages in JoinGroup and SyncGroup: every message comes back, and it is Java's."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kafka_oracle

from klamm.connect.group.protocol import (
    ExtendedAssignment,
    MalformedGroupData,
    ProtocolName,
    WorkerState,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)
from klamm.connect.model import TaskId

ORACLE = Path(__file__).parents[1] / "support" / "ConnectGroupOracle.java"

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
task_ids = st.builds(TaskId, names, st.integers(0, 2**31 - 1))
lists = st.lists(names, unique=True, max_size=4).map(tuple)
task_lists = st.lists(task_ids, unique=True, max_size=6).map(tuple)
assignments = st.builds(
    ExtendedAssignment,
    version=st.just(2),
    error=st.sampled_from([0, 1]),
    leader=names,
    leader_url=names,
    offset=st.integers(-1, 2**63 - 1),
    connectors=lists,
    tasks=task_lists,
    revoked_connectors=lists,
    revoked_tasks=task_lists,
    delay_ms=st.integers(0, 2**31 - 1),
)
states = st.builds(
    WorkerState,
    url=names,
    offset=st.integers(-1, 2**63 - 1),
    assignment=st.none() | assignments,
    loads=st.dictionaries(names, st.floats(0, 1e9), max_size=4),
)


def ordered(assignment: ExtendedAssignment) -> ExtendedAssignment:
    """Tasks are grouped by connector in the bytes: their order is not kept."""
    return replace(
        assignment,
        tasks=tuple(sorted(assignment.tasks)),
        revoked_tasks=tuple(sorted(assignment.revoked_tasks)),
    )


@given(assignment=assignments, protocol=st.sampled_from(ProtocolName))
def test_group_protocol_assignments_come_back(assignment: ExtendedAssignment, protocol: ProtocolName) -> None:
    expected = replace(assignment, version=protocol.version)
    if protocol is ProtocolName.EAGER:
        expected = replace(expected, revoked_connectors=(), revoked_tasks=(), delay_ms=0)
    assert ordered(decode_assignment(encode_assignment(assignment, protocol))) == ordered(expected)


@given(state=states, protocol=st.sampled_from(ProtocolName))
def test_group_protocol_metadata_comes_back(state: WorkerState, protocol: ProtocolName) -> None:
    found = decode_metadata(encode_metadata(state, protocol))
    if protocol is ProtocolName.EAGER:
        assert found == WorkerState(url=state.url, offset=state.offset)
        return
    assert (found.url, found.offset, found.loads) == (state.url, state.offset, state.loads)
    if state.assignment is None:
        assert found.assignment is None
    else:
        assert found.assignment is not None
        assert ordered(found.assignment) == ordered(replace(state.assignment, version=protocol.version))


@given(state=states, data=st.data())
def test_group_protocol_what_is_cut_short_is_named(state: WorkerState, data: st.DataObject) -> None:
    whole = encode_metadata(replace(state, loads={}), ProtocolName.SESSIONED)
    cut = data.draw(st.integers(0, len(whole) - 1))
    end = 2 + 2 + len(state.url.encode()) + 8
    if cut == end:  # Kafka's readers, too, take a message that ends behind the offset
        assert decode_metadata(whole[:cut]) == WorkerState(url=state.url, offset=state.offset)
        return
    with pytest.raises(MalformedGroupData, match="bytes at"):
        decode_metadata(whole[:cut])


@given(junk=st.binary(max_size=200))
def test_group_protocol_junk_is_refused_or_read(junk: bytes) -> None:
    for decode in (decode_metadata, decode_assignment):
        try:
            decode(junk)
        except MalformedGroupData:
            continue


@pytest.mark.parametrize(
    "extra",
    [
        b"klamm",
        b"klamm\x01{",
        b'klamm\x01{"loads":[]}',
        b'klamm\x01{"loads":{"a-0":"x","b-0":-1}}',
        b"\x00\x01",
        b"klamm\x01[1]",
    ],
)
def test_group_protocol_what_newer_workers_add_is_passed_over(extra: bytes) -> None:
    state = WorkerState(url="u", offset=3)
    assert decode_metadata(encode_metadata(state, ProtocolName.SESSIONED) + extra) == state


def test_group_protocol_eager_bytes_as_published() -> None:
    """The layout of Kafka's documentation, by hand."""
    url = b"http://a:8083"
    expected = struct.pack(">hh", 0, len(url)) + url + struct.pack(">q", 7)
    assert encode_metadata(WorkerState(url=url.decode(), offset=7), ProtocolName.EAGER) == expected
    assignment = ExtendedAssignment(
        version=0,
        leader="m",
        leader_url="u",
        offset=7,
        connectors=("c",),
        tasks=(TaskId("c", 0), TaskId("d", 2)),
    )
    assert encode_assignment(assignment, ProtocolName.EAGER) == (
        struct.pack(">hh", 0, 0)
        + b"\x00\x01m\x00\x01u"
        + struct.pack(">q", 7)
        + struct.pack(">i", 2)
        + b"\x00\x01c"
        + struct.pack(">iii", 2, -1, 0)
        + b"\x00\x01d"
        + struct.pack(">ii", 1, 2)
    )


def test_group_protocol_names() -> None:
    assert [p.group_name for p in ProtocolName.SESSIONED.offered()] == ["sessioned", "compatible", "default"]
    assert [p.group_name for p in ProtocolName.COMPATIBLE.offered()] == ["compatible", "default"]
    assert [p.group_name for p in ProtocolName.EAGER.offered()] == ["default"]
    assert [ProtocolName.of_group(p.group_name) for p in ProtocolName] == list(ProtocolName)
    with pytest.raises(MalformedGroupData, match="klamm-1"):
        ProtocolName.of_group("klamm-1")


# Against Java


def _case(rng: random.Random) -> tuple[WorkerState, ExtendedAssignment]:
    def work(prefix: str) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
        connectors = rng.sample([f"{prefix}{i}" for i in range(4)], rng.randint(0, 3))
        tasks = {TaskId(f"{prefix}{rng.randint(0, 4)}", rng.randint(0, 9)) for _ in range(rng.randint(0, 5))}
        return tuple(connectors), tuple(sorted(tasks))

    (connectors, tasks), (gone, gone_tasks) = work("c"), work("größe-")
    assignment = ExtendedAssignment(
        version=2,
        error=rng.choice([0, 0, 1]),
        leader=f"connect-{rng.random()}",
        leader_url="http://leader:8083/",
        offset=rng.randint(-1, 2**40),
        connectors=connectors,
        tasks=tasks,
        revoked_connectors=gone,
        revoked_tasks=gone_tasks,
        delay_ms=rng.choice([0, 300_000]),
    )
    loads = {str(t): rng.random() for t in tasks} if rng.random() < 0.5 else {}
    running = assignment if rng.random() < 0.8 else None
    return WorkerState(
        url="http://me:8083/", offset=rng.randint(-1, 99), assignment=running, loads=loads
    ), assignment


def _fields(found: ExtendedAssignment) -> list[str]:
    def told(items: tuple[str, ...] | tuple[TaskId, ...]) -> str:
        return ",".join(sorted(map(str, items))) or "-"

    work = (found.connectors, found.tasks, found.revoked_connectors, found.revoked_tasks)
    head = [found.version, found.error, found.leader, found.leader_url, found.offset]
    return [*map(str, head), *map(told, work), str(found.delay_ms)]


NOTHING = ["1", "0", "-", "-", "-1", "-", "-", "-", "-", "0"]


@pytest.mark.usefixtures("apache_kafka")
def test_group_protocol_is_javas() -> None:
    """Java reads what we write, loads and all, and we read what Java writes: field by field, and byte by byte but for
    the order of connectors (a hash table's in Java).
    """
    rng = random.Random(415)
    cases = [(*_case(rng), protocol) for _ in range(60) for protocol in ProtocolName]
    lines = []
    for state, assignment, protocol in cases:
        lines += [
            f"metadata {protocol.version} {encode_metadata(state, protocol).hex()}",
            f"assignment {protocol.version} {encode_assignment(assignment, protocol).hex()}",
        ]
    answered = kafka_oracle.require().run(str(ORACLE), stdin="\n".join(lines) + "\n", timeout=120)
    assert answered.returncode == 0, answered.stderr
    answers = [line.split(" ") for line in answered.stdout.splitlines()]
    assert len(answers) == len(lines)
    for (state, assignment, protocol), metadata, told in zip(cases, answers[::2], answers[1::2], strict=True):
        eager = protocol is ProtocolName.EAGER
        ours = encode_metadata(replace(state, loads={}), protocol)
        running = None if eager else state.assignment
        assert metadata[:2] == [state.url, str(state.offset)]
        expected = NOTHING if running is None else _fields(replace(running, version=protocol.version))
        assert metadata[2:-1] == expected
        theirs = bytes.fromhex(metadata[-1])
        assert len(theirs) == len(ours)
        assert _as_sets(decode_metadata(theirs).assignment) == _as_sets(decode_metadata(ours).assignment)
        if running is None or len(running.connectors) < 2:
            assert theirs == ours
        read = decode_assignment(bytes.fromhex(told[-1]))
        mine = encode_assignment(assignment, protocol)
        assert told[:-1] == _fields(decode_assignment(mine))
        assert _as_sets(read) == _as_sets(decode_assignment(mine))
        if len(assignment.connectors) < 2:
            assert bytes.fromhex(told[-1]) == mine


def _as_sets(found: ExtendedAssignment | None) -> object:
    return None if found is None else sorted(map(str, _fields(found)))
