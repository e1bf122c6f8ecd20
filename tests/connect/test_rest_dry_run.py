"""POST /connectors/NAME/dry-run: sample records through converters, transforms and predicates, each step shown."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.connect_worker import JSON, STRING, WorkerProcess, worker_properties

SINK = {
    "connector.class": "FileStreamSink",
    "topics": "orders",
    "file": "/nowhere",
    "key.converter": STRING,
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "transforms": "drop,mask,route",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "card",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "$1-v2",
    "transforms.route.predicate": "isOld",
    "transforms.route.negate": "true",
    "transforms.drop.type": "Filter",
    "transforms.drop.predicate": "isTombstone",
    "predicates": "isOld,isTombstone",
    "predicates.isOld.type": "TopicNameMatches",
    "predicates.isOld.pattern": "old-.*",
    "predicates.isTombstone.type": "RecordIsTombstone",
}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secrets") / "secrets.properties"
    path.write_text("mask=top-secret\nnumber=90817263\n")
    return path


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    more = {"config.providers": "file", "config.providers.file.class": provider}
    running = WorkerProcess(
        worker_properties(bootstrap, f"dry-{uuid.uuid4().hex[:8]}", **more), tmp_path_factory.mktemp("dry")
    )
    running.wait_ready()
    yield running
    running.end()


def run(worker: WorkerProcess, config: dict[str, str], *records: Any) -> list[Any]:
    answer = worker.request("POST", "/connectors/dry/dry-run", {"config": config, "records": list(records)})
    assert answer.status == 200, answer.body
    assert answer.json["connector"] == "dry"
    return answer.json["results"]


def test_each_step_of_a_sinks_way(worker: WorkerProcess) -> None:
    record = {"key": "k1", "value": {"card": "4242", "n": 1}, "headers": {"trace": "a1"}, "timestamp": 7}
    [result] = run(worker, SINK, record)
    assert result["outcome"] == "delivered"
    assert [(s["step"], s["applied"], s["changed"]) for s in result["steps"]] == [
        ("converter", True, True),
        ("drop", False, False),
        ("mask", True, True),
        ("route", True, True),
    ]
    first, kept, masked, routed = (step["record"] for step in result["steps"])
    assert (first["topic"], first["key"], first["value"], first["timestamp"]) == (
        "orders",
        "k1",
        record["value"],
        7,
    )
    assert first["headers"] == [{"name": "trace", "value": "a1"}]
    assert first["key_schema"]["type"] == "string"
    assert masked["value"] == {"card": "", "n": 1}
    assert (kept["topic"], routed["topic"]) == ("orders", "orders-v2")


def test_records_that_are_dropped_or_cannot_be_read(worker: WorkerProcess) -> None:
    dropped, old, bad = run(
        worker,
        SINK,
        {"value": None, "key": "gone"},
        {"topic": "old-orders", "value": '{"card": "1"}'},
        {"value": "{not json"},
    )
    assert (dropped["outcome"], dropped["steps"][-1]["record"]) == ("dropped", None)
    assert old["outcome"] == "delivered"
    assert [s["step"] for s in old["steps"] if not s["applied"]] == ["drop", "route"]
    assert old["steps"][-1]["record"]["topic"] == "old-orders"
    assert bad["outcome"] == "failed"
    [step] = bad["steps"]
    assert (step["step"], step["record"]) == ("converter", None)
    assert step["error"].startswith("value: DataError: ")


def test_a_sources_records_end_as_bytes(worker: WorkerProcess) -> None:
    config = {
        "connector.class": "FileStreamSource",
        "file": "/nowhere",
        "topic": "lines",
        "key.converter": STRING,
        "value.converter": JSON,
        "transforms": "hoist",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
    }
    schema = {"type": "string", "optional": False}
    [result] = run(worker, config, {"value": "hello", "value_schema": schema})
    assert [s["step"] for s in result["steps"]] == ["hoist", "converter"]
    assert result["steps"][0]["record"]["value"] == {"line": "hello"}
    written = json.loads(result["steps"][1]["record"]["value"])
    assert written["payload"] == {"line": "hello"}
    assert written["schema"]["type"] == "struct"


def test_references_have_their_values_and_are_shown_to_nobody(worker: WorkerProcess, secrets: Path) -> None:
    mask = {"transforms.mask.replacement": f"${{file:{secrets}:mask}}"}
    [result] = run(worker, SINK | mask, {"value": {"card": "4242"}})
    assert result["steps"][2]["record"]["value"] == {"card": "[hidden]"}


def test_a_value_that_became_a_number_is_shown_to_nobody(worker: WorkerProcess, secrets: Path) -> None:
    stages = {
        "transforms": "add,cast",
        "transforms.add.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.add.static.field": "pin",
        "transforms.add.static.value": f"${{file:{secrets}:number}}",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "pin:int64",
    }
    [result] = run(worker, SINK | stages, {"value": {"n": 7}})
    shown = [step["record"]["value"] for step in result["steps"]]
    assert shown == [{"n": 7}, {"n": 7, "pin": "[hidden]"}, {"n": 7, "pin": "[hidden]"}]


def test_a_dry_run_writes_nothing_and_uses_the_connectors_own_config(worker: WorkerProcess) -> None:
    assert worker.request("POST", "/connectors/own/dry-run", {"records": [{"value": 1}]}).status == 404
    body = {"name": "own", "config": SINK, "initial_state": "STOPPED"}
    assert worker.request("POST", "/connectors", body).status == 201
    answer = worker.request("POST", "/connectors/own/dry-run", {"records": [{"value": {"card": "1"}}]})
    assert (answer.status, answer.json["type"]) == (200, "sink")
    assert answer.json["results"][0]["steps"][2]["record"]["value"] == {"card": ""}
    assert worker.get("/connectors/own/offsets") == {"offsets": []}


WRONG = [
    ([], "The body must be"),
    ({"records": []}, 'Field "records" must be a list'),
    ({"records": [{}], "more": 1}, "Unrecognized field 'more'"),
    ({"records": [{"valu": 1}]}, r"records[0] has an unrecognized field 'valu'"),
    ({"records": [{"partition": "0"}]}, "records[0].partition must be an integer, not a string"),
    ({"records": [{}], "config": {"topics": "x"}}, "contains no connector type"),
    ({"records": [{}], "config": SINK | {"transforms.mask.fields": ""}}, "fields"),
]


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_what_cannot_be_tried_is_said(worker: WorkerProcess, body: Any, message: str) -> None:
    answer = worker.request("POST", "/connectors/dry/dry-run", body)
    assert answer.status == 400, answer.body
    assert message in answer.message
