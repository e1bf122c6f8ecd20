"""Transforms in a real worker: lines become structs on their way into topics, and lines again on their way out."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.connect_worker import (
    JSON,
    STRING,
    WorkerProcess,
    feed,
    lines_out,
    wait_for,
    worker_properties,
)
from support.runtime_broker import read_all

KAFKA = "org.apache.kafka.connect.transforms."


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    properties = worker_properties(bootstrap, f"w{uuid.uuid4().hex[:8]}")
    worker = WorkerProcess(properties, tmp_path_factory.mktemp("worker"))
    try:
        yield worker.wait_ready()
    finally:
        worker.end()


def settings(**stages: dict[str, str]) -> dict[str, str]:
    """Returns `transforms` and their keys; a stage of the name `p_…` is a predicate."""
    config: dict[str, str] = {}
    for key, chosen in (
        ("transforms", {k: v for k, v in stages.items() if not k.startswith("p_")}),
        ("predicates", {k: v for k, v in stages.items() if k.startswith("p_")}),
    ):
        if chosen:
            config[key] = ",".join(chosen)
        config |= {f"{key}__{alias}__{k}": v for alias, own in chosen.items() for k, v in own.items()}
    return config


def test_records_pass_the_transforms_of_source_and_sink(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path, name: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{name}-odd", 1)])[f"{name}-odd"].result(60)
    feed(tmp_path, 0, 20)
    source = worker.create(
        f"{name}-src",
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic=f"{name}-raw",
        key__converter=STRING,
        **settings(
            hoist={"type": f"{KAFKA}HoistField$Value", "field": "line"},
            stamp={
                "type": f"{KAFKA}InsertField$Value",
                "static__field": "from",
                "static__value": "test",
                "topic__field": "was",
            },
            key={"type": f"{KAFKA}ValueToKey", "fields": "line"},
            only={"type": f"{KAFKA}ExtractField$Key", "field": "line"},
            route={"type": "RegexRouter", "regex": ".*-raw", "replacement": f"{name}-odd"},
        ),
    )
    assert source.status == 201, source.body
    wait_for(
        lambda: len(read_all(bootstrap, f"{name}-odd")) == 20,
        lambda: f"{read_all(bootstrap, f'{name}-odd')}\n{worker.log}",
    )
    messages = read_all(bootstrap, f"{name}-odd")
    assert sorted(m.key() for m in messages) == sorted(f"line {i}".encode() for i in range(20))
    first = json.loads(next(m.value() for m in messages if m.key() == b"line 0"))
    assert first["payload"] == {"line": "line 0", "from": "test", "was": f"{name}-raw"}
    assert [f["field"] for f in first["schema"]["fields"]] == ["line", "was", "from"]

    sink = worker.create(
        f"{name}-snk",
        connector__class="FileStreamSink",
        file=str(tmp_path / "out.txt"),
        topics=f"{name}-odd",
        key__converter=STRING,
        **settings(
            route={"type": "RegexRouter", "regex": ".*", "replacement": "somewhere"},
            drop={"type": "Filter", "predicate": "p_where", "negate": "true"},
            line={"type": f"{KAFKA}ExtractField$Value", "field": "line"},
            p_where={"type": f"{KAFKA}predicates.TopicNameMatches", "pattern": "some.*"},
        ),
    )
    assert sink.status == 201, sink.body
    wait_for(lambda: len(lines_out(tmp_path)) == 20, lambda: f"{lines_out(tmp_path)}\n{worker.log}")
    assert sorted(lines_out(tmp_path)) == sorted(f"line {i}" for i in range(20))
    offsets = worker.get(f"/connectors/{name}-snk/offsets")
    wait_for(
        lambda: any(
            o["offset"]["kafka_offset"] == 20
            for o in worker.get(f"/connectors/{name}-snk/offsets")["offsets"]
        ),
        lambda: str(offsets),
    )


def test_what_a_filter_drops_is_done_with(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path, name: str
) -> None:
    """The offsets of dropped records are committed, in a source as in a sink, also where all are dropped."""
    feed(tmp_path, 0, 10)
    answer = worker.create(
        f"{name}-src",
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic=f"{name}-none",
        **settings(drop={"type": "Filter"}),
    )
    assert answer.status == 201, answer.body

    def position() -> int:
        found = worker.get(f"/connectors/{name}-src/offsets")["offsets"]
        return found[0]["offset"]["position"] if found else -1

    size = (tmp_path / "in.txt").stat().st_size
    wait_for(lambda: position() == size, lambda: f"{position()} of {size}\n{worker.log}")
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
    assert f"{name}-none" not in topics


def test_a_record_that_a_transform_refuses_fails_the_task_or_is_left_out(
    worker: WorkerProcess, bootstrap: str, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.txt").write_text("1\ntwo\n3\n")
    config = {
        "connector__class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": f"{name}-numbers",
        "value__converter": JSON,
        "value__converter__schemas__enable": "false",
        **settings(number={"type": f"{KAFKA}Cast$Value", "spec": "int32"}),
    }
    assert worker.create(f"{name}-strict", **config).status == 201
    worker.wait_state(f"{name}-strict", "RUNNING", "FAILED")
    trace = worker.get(f"/connectors/{name}-strict/status")["tasks"][0]["trace"]
    assert "Error in stage TRANSFORMATION" in trace
    assert "Value (two) was out of range for requested data type" in trace

    assert worker.create(f"{name}-lax", errors__tolerance="all", **config).status == 201
    wait_for(
        lambda: [m.value() for m in read_all(bootstrap, f"{name}-numbers")][-2:] == [b"1", b"3"],
        lambda: worker.log,
    )

    def skipped() -> int | None:
        (task,) = worker.get(f"/connectors/{name}-lax/status")["tasks"]
        return task.get("progress", {}).get("details", {}).get("skipped")

    wait_for(lambda: skipped() == 1, lambda: f"{skipped()}\n{worker.log}")


def test_a_chain_that_cannot_be_made_is_refused(worker: WorkerProcess, tmp_path: Path, name: str) -> None:
    answer = worker.create(
        name,
        connector__class="FileStreamSource",
        file=str(tmp_path / "in.txt"),
        topic=name,
        **settings(
            a={"type": f"{KAFKA}Cast$Value"}, b={"type": "no.Such"}, c={"type": f"{KAFKA}InsertField$Value"}
        ),
    )
    assert answer.status == 400
    for text in (
        "contains the following 3 error(s)",
        'Missing required configuration "transforms.a.spec" which has no default value.',
        "Class no.Such could not be found; `klamm connector plugins --all` lists all",
        "No field insertion configured",
    ):
        assert text in answer.message
