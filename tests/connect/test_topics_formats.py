"""Records of the internal topics: byte for byte what Kafka's worker wrote, in the partitions where it wrote it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from support.stores import java_partition

from klamm.connect.model import State, TaskId
from klamm.connect.topics.config_topic import (
    ActiveTopic,
    ConfigState,
    OffsetState,
    RestartRequest,
    Status,
    StatusState,
    TargetState,
    connector_record,
    delete_records,
    logger_record,
    offset_record,
    restart_record,
    session_key_record,
    status_record,
    target_state_record,
    task_records,
    topic_record,
)

FIXTURES = Path(__file__).parents[1] / "fixtures/connect-rest"


def recorded(topic: str) -> list[tuple[int, str, bytes | None]]:
    """Returns (partition, key, value) in log order."""
    rows = [json.loads(line) for line in (FIXTURES / f"topic-{topic}.jsonl").read_text().splitlines()]
    return [(p, key, None if v is None else v.encode()) for p, _offset, key, v in rows]


def test_topics_everything_that_kafka_wrote_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    """Session keys, restarts and log levels included, and written again as they were."""
    state = ConfigState()
    commands = 0
    for _, key, value in recorded("configs"):
        if key == "session-key" and value is not None:  # the recording does without the key itself
            value = value.replace(b"<base64 of the session key>", base64.b64encode(b"k" * 32))  # noqa: PLW2901
        state.apply(key, value)
        for command in state.take_commands():
            commands += 1
            made = restart_record(command) if isinstance(command, RestartRequest) else logger_record(command)
            assert made == (key, value)
        if key == "session-key":
            assert state.session_key is not None
            assert session_key_record(state.session_key) == (key, value)
    assert commands > 1
    assert state.session_key is not None
    assert caplog.text == ""


def _config_records() -> list[tuple[str, bytes]]:
    found = [(k, v) for _, k, v in recorded("configs") if v is not None]
    return [r for r in found if r[0].startswith(("connector-", "task-", "commit-", "target-state-"))]


@pytest.mark.parametrize(("key", "value"), _config_records())
def test_topics_config_records_are_written_as_kafka_does(key: str, value: bytes) -> None:
    data = json.loads(value)
    if key.startswith("connector-"):
        written = connector_record(key.removeprefix("connector-"), data["properties"])
    elif key.startswith("target-state-"):
        written = target_state_record(key.removeprefix("target-state-"), TargetState(data["state.v2"]))
    elif key.startswith("task-"):
        written = task_records(key.removeprefix("task-").removesuffix("-0"), [data["properties"]])[0]
    else:
        written = task_records(key.removeprefix("commit-"), [{}] * data["tasks"])[-1]
    assert written == (key, value)


def test_topics_status_records_are_written_as_kafka_does() -> None:
    for _, key, value in recorded("status"):
        if value is None:
            continue
        data = json.loads(value)
        if "topic" in data:
            t = data["topic"]
            topic = ActiveTopic(
                topic=t["name"],
                connector=t["connector"],
                task=t["task"],
                discovered_ms=t["discoverTimestamp"],
            )
            assert topic_record(topic) == (key, value)
            continue
        name = key.removeprefix("status-")
        target = (
            name.removeprefix("connector-")
            if name.startswith("connector-")
            else TaskId(name.removeprefix("task-")[:-2], int(name[-1]))
        )
        assert status_record(target, Status(**data | {"state": State(data["state"])})) == (key, value)


def test_topics_offset_records_are_written_as_kafka_does() -> None:
    for _, key, value in recorded("offsets"):
        name, partition = json.loads(key)
        assert offset_record(name, partition, None if value is None else json.loads(value)) == (key, value)


def test_topics_status_keys_land_where_javas_partitioner_puts_them() -> None:
    """The fixture's partitions are Java's; the log test checks that ours are murmur2's too."""
    for partition, key, _ in recorded("status"):
        assert java_partition(key.encode(), 5) == partition


def test_topics_read_kafkas_config_topic() -> None:
    state = ConfigState()
    for _, key, value in recorded("configs"):
        state.apply(key, value)
    assert state.connectors == ["sl/ash"]
    assert [t["task.class"] for t in state.tasks("sl/ash")] == [
        "org.apache.kafka.connect.file.FileStreamSourceTask"
    ]
    assert state.target("sl/ash") is TargetState.STARTED


def test_topics_read_kafkas_offset_topic() -> None:
    state = OffsetState()
    for _, key, value in recorded("offsets"):
        state.apply(key, value)
    assert state.of_connector("src") == []
    assert state.get("src2", {"filename": "$WORK/in.txt"}) == {"position": 150}


def test_topics_read_kafkas_status_topic() -> None:
    state = StatusState("127.0.0.1:8083")
    for _, key, value in recorded("status"):
        state.apply(key, value)
    assert state.connectors() == {"sl/ash"}
    status = state.get(TaskId("sl/ash", 0))
    assert status is not None
    assert (status.state, status.worker_id, status.generation) == (State.RUNNING, "127.0.0.1:21083", 10)
    assert [t.topic for t in state.topics("sl/ash")] == ["rest-slash"]


def test_topics_deleted_connector_leaves_no_tasks_to_its_successor() -> None:
    """The topic is as after compaction: the tombstone is gone, the old task configs are not."""
    old = [*task_records("a", [{"x": "old"}]), *delete_records("a")]
    state = ConfigState()
    for key, value in [r for r in old if r[1] is not None]:
        state.apply(key, value)
    state.apply(*connector_record("a", {"x": "new"}))
    assert state.tasks("a") == []


def test_topics_offset_partitions_are_the_same_in_any_key_order() -> None:
    state = OffsetState()
    state.apply('["a",{"x":1,"y":2}]', b'{"o":1}')
    state.apply('["a",{"y":2,"x":1}]', b'{"o":2}')
    assert state.of_connector("a") == [({"y": 2, "x": 1}, {"o": 2})]


def test_topics_newest_spelling_of_an_offset_counts_however_the_topic_is_read() -> None:
    old = ('["a",{"x":1,"y":2}]', b'{"o":1}', 1_000)
    new = ('["a",{"y":2,"x":1}]', b'{"o":2}', 2_000)
    for order in ([old, new], [new, old]):
        state = OffsetState()
        for record in order:
            state.apply(*record)
        assert state.get("a", {"x": 1, "y": 2}) == {"o": 2}


def test_topics_reset_offset_does_not_come_back_in_another_spelling() -> None:
    topic = {'["a",{"x":1,"y":2}]': (b'{"o":1}', 1_000), '["a",{"y":2,"x":1}]': (b'{"o":2}', 2_000)}
    state = OffsetState()
    for key, (value, at) in topic.items():
        state.apply(key, value, at)
    changes = [state.change("a", {"x": 1, "y": 2}, None), state.change("a", {"x": 1, "y": 2}, {"o": 0})]
    for records, expected in zip(changes, (None, {"o": 0}), strict=True):
        # As after compaction: what has a tombstone is not there any more.
        after = topic | {key: (value, 3_000) for key, value in records}
        state = OffsetState()
        for key, (value, at) in reversed(after.items()):
            if value is not None:
                state.apply(key, value, at)
        assert state.get("a", {"x": 1, "y": 2}) == expected
        assert len(state.of_connector("a")) == (expected is not None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector-a", b"not json"),
        ("connector-a", b'{"properties":{"x":1}}'),
        ("connector-a", b"[]"),
        ("task-a", b'{"properties":{}}'),
        ("task-a-0", None),
        ("commit-a", b'{"tasks":"1"}'),
        ("commit-a", None),
        ("target-state-a", b'{"state.v2":"ASLEEP"}'),
        ("who-knows", b"{}"),
    ],
)
def test_topics_ignore_and_log_records_that_make_no_sense(
    key: str, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    state = ConfigState()
    state.apply(*connector_record("a", {"k": "v"}))
    state.apply(key, value)
    assert state.config("a") == {"k": "v"}
    assert state.target("a") is TargetState.STARTED
    assert key in caplog.text


def test_topics_status_of_a_later_generation_is_not_overwritten_by_a_zombie() -> None:
    state = StatusState("me:1")
    mine = Status(state=State.UNASSIGNED, worker_id="me:1", generation=4)
    state.apply(*status_record("b", Status(state=State.RUNNING, worker_id="other:2", generation=90)))
    state.begin_tenure(4)
    assert state.put("b", mine) is not None, "generations of a group that was forgotten do not count"
    state.apply(*status_record("a", Status(state=State.RUNNING, worker_id="other:2", generation=5)))
    assert state.put("a", mine) is None
    shown = state.get("a")
    assert shown is not None
    assert shown.worker_id == "other:2"
    state.begin_tenure(6)
    assert state.put("a", mine) is not None


def test_topics_status_of_another_worker_counts_once_the_own_word_is_read_back() -> None:
    state = StatusState("me:1")
    other = status_record("a", Status(state=State.RUNNING, worker_id="other:2", generation=5))
    mine = state.put("a", Status(state=State.UNASSIGNED, worker_id="me:1", generation=4))
    assert mine is not None
    state.apply(*other)
    assert state.get("a") == Status(state=State.UNASSIGNED, worker_id="me:1", generation=4), "it is older"
    state.apply(*mine)
    state.apply(*other)
    found = state.get("a")
    assert found is not None
    assert found.worker_id == "other:2"


def test_topics_own_status_is_not_undone_by_what_is_read_back_late() -> None:
    state = StatusState("me:1")
    first = state.put("a", Status(state=State.RUNNING, worker_id="me:1"))
    assert first is not None
    state.put("a", Status(state=State.FAILED, worker_id="me:1", trace="why"))
    state.apply(*first)
    found = state.get("a")
    assert found is not None
    assert found.state is State.FAILED
    state.drop("a")
    state.apply(*first)
    assert state.get("a") is None
