"""Single requests: what is wrong is said with place and remedy, plugins cannot hold REST up, secrets stay secret."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.runtime import SOURCE, install_plugins

SECRET = "hunter2-do-not-show"
FILE_SOURCE = {"connector.class": "FileStreamSource", "file": "/nowhere", "topic": "t"}


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp("requests")
    properties = worker_properties(bootstrap, f"requests-{time.monotonic_ns()}", **{"task.restart.max": "0"})
    process = WorkerProcess(properties, directory, python_path=install_plugins(directory / "plugins"))
    yield process.wait_ready()
    assert process.stop() == 0, process.log


def counting(**more: str) -> dict[str, str]:
    return {"connector.class": SOURCE, "topic": "counting", "idle": "1", "value.converter": STRING, **more}


# (method, path, raw body, status, pattern of the message)
WRONG: list[tuple[str, str, str | None, int, str]] = [
    (
        "POST",
        "/connectors",
        '{"name": "x", "config": []}',
        400,
        'Field "config" must be a JSON object of strings',
    ),
    ("POST", "/connectors/x/tasks/0/signals", '{"data": {}}', 400, 'The body must be {"type"'),
    ("POST", "/connectors/x/tasks/0/signals", '{"type": "a", "data": []}', 400, 'The body must be {"type"'),
    ("POST", "/connectors/nowhere/tasks/0/signals", '{"type": "a"}', 404, "Unknown connector: nowhere"),
    ("POST", "/connectors", '{"name": [], "config": {}}', 400, 'Field "name" must be a string, not'),
    (
        "POST",
        "/connectors",
        '{"name": "x", "config": {"a": {"b": 1}}}',
        400,
        "The value of a must be a string, not",
    ),
    ("POST", "/connectors", '{"name": "x",\n "config": {"a": }}', 400, "line 2, column 18"),
    ("POST", "/connectors", "[" * 100_000, 400, "nested too deeply"),
    ("PUT", "/connectors/x/config", '{"a": "\\ud800"}', 400, "not usable JSON: .*surrogates"),
    ("PATCH", "/connectors/x/offsets", f'{{"offsets": [{2**70}]}}', 400, "not usable JSON: .*64-bit"),
    ("PUT", "/connectors/x/config", "null", 400, "The body must be a JSON object of strings, not null"),
    ("PUT", "/connectors/x/config", "", 400, "no body"),
    ("PATCH", "/connectors/x/config", '"a"', 400, "not a string"),
    ("PATCH", "/connectors/x/offsets", "[]", 400, '"offsets": \\['),
    ("PATCH", "/connectors/x/offsets", '{"offsets": [1]}', 400, r"offsets\[0\] must be an object"),
    ("PATCH", "/connectors/x/offsets", '{"offsets": [{"part": 1}]}', 400, r"offsets\[0\].*'part'"),
    (
        "PATCH",
        "/connectors/x/offsets",
        '{"offsets": [{"partition": 1}]}',
        400,
        r"offsets\[0\].partition must be",
    ),
    ("PATCH", "/connectors/x/offsets", '{"offsets": [{"partition": {}}]}', 404, "Connector x not found"),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate", "[]", 400, "must be a JSON object"),
    ("PUT", "/admin/loggers/root", '{"level": "LOUD"}', 404, "invalid log level 'LOUD'"),
    ("GET", "/connectors/a/b/c", None, 404, "HTTP 404 Not Found"),
    ("PUT", "/connectors/x/restart", "{}", 405, "HTTP 405 Method Not Allowed"),
    ("GET", "/metric", None, 404, "HTTP 404 Not Found"),
]


@pytest.mark.parametrize(("method", "path", "raw", "status", "pattern"), WRONG)
def test_rest_says_what_is_wrong(
    worker: WorkerProcess, method: str, path: str, raw: str | None, status: int, pattern: str
) -> None:
    answer = worker.request(method, path, raw=raw)
    assert answer.status == status, answer.body
    assert answer.json == {"error_code": status, "message": answer.message}
    assert re.search(pattern, answer.message), answer.message


def test_rest_body_that_is_too_large_is_refused(worker: WorkerProcess) -> None:
    answer = worker.request("POST", "/connectors", {"name": "x", "config": {"a": "b" * (5 << 20)}})
    assert answer.status == 413


def test_rest_config_that_its_topic_does_not_take_is_refused_with_size_and_limit(
    worker: WorkerProcess,
) -> None:
    config = counting(padding="x" * 1_200_000)
    answer = worker.request("POST", "/connectors", {"name": "large", "config": config})
    assert answer.status == 400, answer.body
    said = re.fullmatch(
        r"The record connector-large is too large for the config topic \S+: (\d+) bytes \(and some 100 around "
        r"them\), where message.max.bytes of the worker's client allows 1000000",
        answer.message,
    )
    assert said, answer.message
    assert 1_200_000 < int(said[1]) < 1_201_000
    assert worker.request("GET", "/connectors/large").status == 404


def test_rest_config_that_only_the_broker_refuses_is_the_requests_fault_too(
    worker: WorkerProcess, bootstrap: str
) -> None:
    topic = worker.topic("config")
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def limit(value: str) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry("max.message.bytes", value, incremental_operation=AlterConfigOpType.SET)
            ],
        )
        admin.incremental_alter_configs([resource])[resource].result(60)

    limit("5000")
    try:
        config = counting(padding="x" * 6000)
        answer = worker.request("POST", "/connectors", {"name": "large", "config": config})
    finally:
        limit("1048588")
    assert answer.status == 400, answer.body
    assert re.search(rf": 6\d\d\d bytes .*max.message.bytes of topic {topic} allows 5000$", answer.message)
    assert worker.request("GET", "/connectors/large").status == 404
    small = worker.request("POST", "/connectors", {"name": "small", "config": counting()})
    assert small.status == 201, small.body
    assert worker.request("DELETE", "/connectors/small").status == 204


@pytest.mark.parametrize("name", ["sl/ash", "spa ce", "per%cent", "übergröße", "plus+dot.dash-", "a?b#c"])
def test_rest_names_of_any_kind(worker: WorkerProcess, name: str) -> None:
    from urllib.parse import quote

    assert worker.request("POST", "/connectors", {"name": name, "config": FILE_SOURCE}).status == 201
    path = f"/connectors/{quote(name, safe='')}"
    assert worker.get(path)["name"] == name
    worker.wait_state(quote(name, safe=""), "RUNNING", "RUNNING")
    assert worker.request("DELETE", path).status == 204
    assert worker.request("GET", path).status == 404


def test_rest_patches_at_the_same_time_all_count(worker: WorkerProcess) -> None:
    assert worker.request("PUT", "/connectors/patched/config", FILE_SOURCE).status == 201
    path = "/connectors/patched/config"
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda n: worker.request("PATCH", path, {f"extra.{n}": str(n)}).status, range(8))
        assert set(answers) == {200}
    assert worker.get(path).items() >= {f"extra.{n}": str(n) for n in range(8)}.items()
    assert worker.request("DELETE", "/connectors/patched").status == 204


def test_rest_head_and_options(worker: WorkerProcess) -> None:
    head = worker.request("HEAD", "/connectors")
    assert (head.status, head.body, head.headers["Content-Type"]) == (200, b"", "application/json")
    options = worker.request("OPTIONS", "/connectors/x/config")
    assert set(options.headers["Allow"].split(",")) == {"HEAD", "GET", "PUT", "PATCH", "OPTIONS"}


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("text/html, application/*;q=0.5", 200),
        ("*/*", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
    ],
)
def test_rest_accept(worker: WorkerProcess, accept: str, status: int) -> None:
    assert worker.request("GET", "/connectors", headers={"Accept": accept}).status == status


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("transforms", "t", 'Missing required configuration "transforms.t.type" which has no default value.'),
        ("connector.plugin.version", "9.9", "not found that matches the version range [9.9,9.9]"),
    ],
)
def test_rest_what_cannot_be_had_is_named(worker: WorkerProcess, key: str, value: str, why: str) -> None:
    answer = worker.request("POST", "/connectors", {"name": "later", "config": FILE_SOURCE | {key: value}})
    assert answer.status == 400
    assert why in answer.message


@pytest.mark.parametrize(("key", "given"), [("topics", "a,dead"), ("topics.regex", "de.*")])
def test_rest_a_sink_must_not_read_its_own_dead_letters(worker: WorkerProcess, key: str, given: str) -> None:
    config = {"connector.class": "FileStreamSink", "file": "/tmp/never", key: given}
    dead = {"errors.deadletterqueue.topic.name": "dead"}
    answer = worker.request("POST", "/connectors", {"name": "loop", "config": config | dead})
    assert answer.status == 400
    assert (
        "The dead letter topic dead must not be among the topics that the connector reads" in answer.message
    )


def test_rest_a_dead_letter_topic_that_the_cluster_cannot_make_is_an_error(worker: WorkerProcess) -> None:
    config = {
        "connector.class": "FileStreamSink", "name": "lettered", "topics": "t", "file": "/tmp/never",
        "errors.deadletterqueue.topic.name": "letters",
    }  # fmt: skip
    factor = "errors.deadletterqueue.topic.replication.factor"
    path = "/connector-plugins/FileStreamSink/config/validate"
    for given in ({}, {factor: "3"}):
        answer = worker.request("PUT", path, config | given).json
        errors = {r["value"]["name"]: r["value"]["errors"] for r in answer["configs"] if r["value"]["errors"]}
        assert (list(errors), answer["error_count"]) == ([factor], 1)
        assert errors[factor][0].startswith(
            f"Invalid value 3 for configuration {factor}: the cluster cannot make the dead letter topic letters: "
        )
    for number in ("1", "-1"):
        assert worker.request("PUT", path, config | {factor: number}).json["error_count"] == 0
    topic = config | {factor: "1", "errors.deadletterqueue.topic.name": "no topic"}
    assert (
        "dead letter topic no topic"
        in worker.request("POST", "/connectors", {"config": topic, "name": "lettered"}).message
    )


def test_rest_answers_at_once_while_a_plugin_hangs(worker: WorkerProcess) -> None:
    """Validation that never returns, and a connector whose start never returns."""
    hung = counting(behaviour="sleep", where="connector.start")
    assert worker.request("POST", "/connectors", {"name": "hung", "config": hung}).status == 201
    body = counting(behaviour="sleep", where="validate", name="v")
    url = f"/connector-plugins/{SOURCE}/config/validate"
    # Its answer comes after the supervisor's 30 s; this test does not wait for it.
    asking = threading.Thread(target=lambda: _ignore(worker, url, body), daemon=True)
    asking.start()
    wait_for(lambda: worker.state("hung")[:1] == ["UNASSIGNED"], lambda: worker.log)
    for path in ("/", "/connectors?expand=status&expand=info", "/health", "/connectors/hung/status"):
        assert worker.request("GET", path).status == 200
        assert asking.is_alive(), f"{path} was answered after a plugin that hangs"
    assert worker.request("POST", "/connectors", {"name": "ok", "config": counting()}).status == 201
    worker.wait_state("ok", "RUNNING", "RUNNING")
    for name in ("hung", "ok"):
        assert worker.request("DELETE", f"/connectors/{name}").status == 204


def _ignore(worker: WorkerProcess, url: str, body: Any) -> None:
    try:
        worker.request("PUT", url, body)
    except OSError:
        return


def test_rest_secrets_are_shown_to_nobody(worker: WorkerProcess) -> None:
    config = counting(**{"db.password": SECRET, "behaviour": "connect", "where": "task_configs"})
    assert worker.request("POST", "/connectors", {"name": "sec", "config": config}).status == 201
    wait_for(lambda: worker.state("sec")[:1] == ["FAILED"], lambda: worker.log)
    status = worker.get("/connectors/sec/status")
    assert "cannot log in with" in status["connector"]["trace"]
    validated = worker.request(
        "PUT", f"/connector-plugins/{SOURCE}/config/validate", config | {"name": "sec"}
    )
    no_class = worker.request("POST", "/connectors", {"name": "x", "config": {"db.password": SECRET}})
    bad = worker.request(
        "POST",
        "/connectors",
        {"name": "x", "config": counting(**{"db.password": SECRET, "tasks.max": "none"})},
    )
    assert no_class.status == bad.status == 400
    for text in (json.dumps(status), validated.body.decode(), no_class.message, bad.message, worker.log):
        assert SECRET not in text
    assert "[hidden]" in validated.body.decode()
    assert worker.get("/connectors/sec/config")["db.password"] == "[hidden]"
    assert worker.request("DELETE", "/connectors/sec").status == 204


def test_rest_status_says_what_the_restart_policy_decided(worker: WorkerProcess) -> None:
    config = counting(behaviour="connect", where="poll") | {"task.restart.max": "1"}
    assert worker.request("POST", "/connectors", {"name": "rp", "config": config}).status == 201
    wait_for(lambda: "FAILED" in worker.state("rp")[1:], lambda: worker.log, 60)
    said = worker.get("/connectors/rp/status")["tasks"][0]["restart"]
    assert (said["error"], said["budget"], said["left"], said["attempt"]) == ("connect", 1, 0, 0)
    assert said["why"] == "task.restart.max=1 within 3600 s is used up"
    assert "restart" not in worker.get("/connectors/rp/status")["connector"], "it has not failed"
    assert worker.request("DELETE", "/connectors/rp").status == 204


def test_rest_status_says_progress(worker: WorkerProcess, tmp_path: Path) -> None:
    config = counting(limit="250", idle="") | {"topic": "progress"}
    assert worker.request("POST", "/connectors", {"name": "p", "config": config}).status == 201

    def progress() -> dict[str, Any]:
        tasks = worker.get("/connectors/p/status").get("tasks")  # none while it is not known
        return tasks[0].get("progress", {}) if tasks else {}

    wait_for(lambda: progress().get("records") == 250, lambda: f"{progress()} {worker.log}")
    found = progress()
    assert set(found) == {"records", "last_ack_ms", "lag", "waiting_for", "details"}
    assert found["details"]["figures"]["source-record-write-total"] == 250
    assert abs(found["last_ack_ms"] - time.time() * 1000) < 60_000
    assert worker.request("PUT", "/connectors/p/offsets").status == 405
    running = worker.request("DELETE", "/connectors/p/offsets")
    assert (running.status, "STOPPED state" in running.message) == (400, True)
    assert worker.request("PUT", "/connectors/p/stop").status == 204
    refused = worker.request(
        "PATCH", "/connectors/p/offsets", {"offsets": [{"partition": {"task": "0"}, "offset": {"n": "x"}}]}
    )
    assert (refused.status, "n must be a number" in refused.message) == (400, True)
    moved = {"offsets": [{"partition": {"task": "0"}, "offset": {"n": 200}}]}
    assert worker.request("PATCH", "/connectors/p/offsets", moved).status == 200
    assert worker.get("/connectors/p/offsets") == moved
    assert worker.request("PUT", "/connectors/p/resume").status == 202
    wait_for(lambda: progress().get("records") == 50, lambda: f"{progress()} {worker.log}")
    assert worker.request("DELETE", "/connectors/p").status == 204


def test_rest_many_clients_at_once_leave_one_connector(worker: WorkerProcess) -> None:
    def create(_: int) -> int:
        return worker.request("POST", "/connectors", {"name": "race", "config": FILE_SOURCE}).status

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(create, range(5))) == [201, 409, 409, 409, 409]
    worker.wait_state("race", "RUNNING", "RUNNING")
    assert worker.request("DELETE", "/connectors/race").status == 204


def test_rest_keys_without_effect_are_named_in_answers_and_log(worker: WorkerProcess):
    config = {
        **FILE_SOURCE, "name": "typo", "batch.sise": "100", "fiel": "y", "tasks.mx": "2", "errors.tolerence": "all",
        "producer.override.lingr.ms": "5", "value.converter.schemas.enable": "false", "offset.flush.interval.ms": "1",
        "transforms": "t", "transforms.t.type": "HoistField$Value", "transforms.t.field": "f", "transforms.t.feild": "g",
        "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1",
        "topic.creation.other.partitions": "1", "topic.creation.default.cleanup.policy": "compact",
    }  # fmt: skip
    neither = "is a setting neither of this connector nor of Connect; did you mean"
    expected = [
        f"batch.sise {neither} batch.size?",
        "fiel is a setting neither of this connector nor of Connect",
        f"tasks.mx {neither} tasks.max?",
        f"errors.tolerence {neither} errors.tolerance?",
        "producer.override.lingr.ms has no effect: neither Java's clients nor librdkafka know it; did you mean linger.ms?",
        "value.converter.schemas.enable has no effect without value.converter: the worker's converter has the worker's settings",
        "offset.flush.interval.ms has no effect here: it is a setting of workers",
        "transforms.t.feild is not a setting of this transformation",
        "topic.creation.other.partitions has no effect: topic.creation.groups does not list other",
    ]
    path = "/connector-plugins/FileStreamSource/config/validate"
    validated = worker.request("PUT", path, config).json
    assert validated["error_count"] == 0
    assert validated["warnings"] == expected
    created = worker.request("POST", "/connectors", {"name": "typo", "config": config})
    assert (created.status, created.json["warnings"]) == (201, expected)
    wrong = worker.request(
        "POST",
        "/connectors",
        {"name": "wrong", "config": {**config, "errors.retry.timeout": "many", "name": "wrong"}},
    )
    assert (wrong.status, wrong.json.get("warnings")) == (400, expected), wrong.json
    assert f"connector typo: {expected[0]}" in worker.log
    assert worker.request("PUT", "/connectors/typo/config", config).json["warnings"] == expected
    assert "warnings" not in worker.request("PUT", "/connectors/typo/config?forward=true", config).json
    assert "warnings" not in worker.request("PUT", "/connectors/typo/config", FILE_SOURCE).json
    assert worker.request("DELETE", "/connectors/typo").status == 204
