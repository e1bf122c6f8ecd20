"""Kafka's recorded REST session, replayed against a worker: same requests in the same order, same answers.

Answers are compared after normalisation (versions, worker ids, ports, documentation, traces, the order of what
Java keeps in hash maps). Where we mean to differ, `DIFFERENT` says how and why; docs/differences.md says it to
users. Nothing is left out without standing in one of the tables.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from support.connect_worker import Response, WorkerProcess, wait_for, worker_properties

from klamm_base.version import __version__

FIXTURE = Path(__file__).parents[1] / "fixtures/connect-rest/responses.jsonl"
RECORDED = [json.loads(line) for line in FIXTURE.read_text().splitlines()]


class Different(NamedTuple):
    """Our answer instead of the recorded one: its status, a pattern of its body, and the reason."""

    status: int
    pattern: str
    why: str


BAD_BODY = "Kafka answers 500 with Java's parser message to a body that it cannot use"
SLASH = "Jetty refuses %2F, so Kafka's users cannot reach a connector with a slash in its name"
PLUGINS = "our plugins are others: no MirrorMaker connectors, but converters of Confluent's"
LOGGERS = "loggers are Python's"
STDIN = "our file connectors need a file: a task in a process of its own has no standard input"
SECRETS = "values are left out: without its class nobody knows which of them are secrets"
VALIDATE_500 = "Kafka wraps the 400 of validate into a 500"
OFFSETS_500 = "Kafka answers 500 when the plugin refuses offsets"

UNKNOWN = "an unknown class is one sentence that says what may be meant, and where all are listed"
DIFFERENT: dict[str, Different] = {
    "001-root": Different(200, r'"commit": ?"unknown"', "the build has no commit id"),
    "011-create-initial-state-bad": Different(
        400, "initial_state.*RUNNING, PAUSED, STOPPED.*ASLEEP", BAD_BODY
    ),
    "012-create-no-class": Different(400, r"config \{tasks.max, name\} contains no connector type", SECRETS),
    "014-create-invalid-config": Different(
        400, r"3 error.*tasks.max: Value must be at least 1.*Name a file.*\\\"topic\\\" which has no", STDIN
    ),
    "015-create-invalid-config-topic": Different(
        400, r"2 error.*Name a file.*\\\"topic\\\" which has no", STDIN
    ),
    "018-create-bad-converter": Different(
        400, r"no\.such\.Converter could not be found; `klamm connector plugins --all` lists all", UNKNOWN
    ),
    "024-create-no-config": Different(400, "config.*is missing", BAD_BODY),
    "025-create-unknown-field": Different(400, "Unrecognized field 'extra'", BAD_BODY),
    "026-create-bad-json": Different(400, r"not JSON.*line 1, column 2", BAD_BODY),
    "027-create-empty-body": Different(400, "no body", BAD_BODY),
    "028-create-json-array": Different(400, "not an array", BAD_BODY),
    "038-get-slash-name": Different(200, '"name": ?"sl/ash"', SLASH),
    "041-delete-sl-ash": Different(204, "^$", SLASH),
    "064-put-config-invalid": Different(400, r"2 error.*Name a file.*\\\"topic\\\" which has no", STDIN),
    "065-put-config-bad-json": Different(400, r"not JSON.*line 1, column 2", BAD_BODY),
    "098-offsets-patch-bad-partition": Different(400, "filename", OFFSETS_500),
    "099-offsets-patch-bad-offset": Different(400, "position", OFFSETS_500),
    "118-plugins": Different(200, "FileStreamSinkConnector.*FileStreamSourceConnector", PLUGINS),
    "119-plugins-all": Different(
        200, "FileStreamSinkConnector.*FileStreamSourceConnector.*converter", PLUGINS
    ),
    "127-validate-errors": Different(
        200, r'"error_count":5.*Not a number of type INT.*non-null.*Name a file', STDIN
    ),
    "130-validate-no-class": Different(400, r"config \{topic\} contains no connector type", VALIDATE_500),
    "131-validate-missing-plugin": Different(400, "^.*Failed to find any class.*NoSuch", VALIDATE_500),
    "132-validate-bad-json": Different(400, r"not JSON.*line 1, column 2", BAD_BODY),
    "133-loggers": Different(200, r'"root": ?\{"level"', LOGGERS),
    "134-logger-get": Different(404, "Logger org.apache.kafka.connect.runtime.Worker not found.", LOGGERS),
    "138-logger-put-prefix": Different(200, r'\["org.apache.kafka.connect.file"\]', LOGGERS),
    "140-logger-put-bad-scope": Different(
        200, r'\["org.apache.kafka.connect.file"\]', "Kafka changes nothing"
    ),
    "152-list-end": Different(200, r"^\[\]$", SLASH),
}

Wait = Callable[[WorkerProcess], None]


def _running(*names: str) -> Wait:
    def wait(worker: WorkerProcess) -> None:
        for name in names:
            worker.wait_state(name, "RUNNING", "RUNNING")

    return wait


def _state(name: str, *states: str) -> Wait:
    return lambda worker: worker.wait_state(name, *states)


def _has(path: str, ok: Callable[[Any], bool]) -> Wait:
    return lambda worker: wait_for(lambda: ok(worker.get(path)), lambda: f"{worker.get(path)}\n{worker.log}")


def _all(*waits: Wait) -> Wait:
    def wait(worker: WorkerProcess) -> None:
        for each in waits:
            each(worker)

    return wait


# What the recorder waited for before a request, so that both answer from the same state.
BEFORE: dict[str, Wait] = {
    "008-create-duplicate": _running("src"),
    "010-create-initial-state-stopped": _running("snk"),
    "033-list": _all(_running("num", "sl%2Fash", "src", "snk"), _state("stp", "STOPPED")),
    "056-get-topics": _has("/connectors/src/topics", lambda b: b["src"]["topics"]),
    "057-get-topics-sink": _has("/connectors/snk/topics", lambda b: b["snk"]["topics"]),
    "062-put-config-new": _running("src"),
    "063-put-config-change": _running("src2"),
    "067-patch-config": _running("src2"),
    "068-patch-config-null-removes": _running("src2"),
    "072-offsets-source-after-flush": _has("/connectors/src/offsets", lambda b: b["offsets"]),
    "073-offsets-sink": _has(
        "/connectors/snk/offsets", lambda b: b["offsets"] and b["offsets"][0]["offset"]["kafka_offset"] == 20
    ),
    "077-pause": _running("src"),
    "078-status-paused": _state("src", "PAUSED", "PAUSED"),
    "081-pause-missing": _running("src"),
    "085-restart-include-tasks": _running("src"),
    "086-restart-only-failed": _running("src"),
    "090-restart-task": _running("src"),
    "091-restart-task-missing": _running("src"),
    "093-status-stopped": _state("src", "STOPPED"),
    "108-offsets-sink-patch": _state("snk", "STOPPED"),
    "114-status-failed": _state("fail", "RUNNING", "FAILED"),
}
# The recorded answer is of a moment that cannot be met on purpose.
MOMENT = {
    "060-topics-after-reset": "whether the task has written since the reset",
    "071-offsets-source": "before the first commit of offsets, which is faster here",
}

# Children find the task's class by themselves; `progress` and `restart` are ours.
DROP = {"documentation", "progress", "restart", "task.class"}


def normal(value: Any, key: str = "") -> Any:
    """Returns the answer without what may differ between two correct workers."""
    match value:
        case dict():
            return {k: normal(v, k) for k, v in value.items() if k not in DROP}
        case list():
            items = [normal(v, key) for v in value]
            return sorted(items, key=str) if items and all(isinstance(i, str) for i in items) else items
        case str() if key == "worker_id":
            return re.sub(r":\d+$", ":PORT", value)
        case str() if key == "trace":
            return "TRACE"
        case str() if value in {"4.3.1", __version__}:
            return "VERSION"
        case str() if key == "message":
            return re.sub(r"(which name matches [^\s,;]+)[,;] .*", r"\1", value)
        case int() if key == "last_modified":
            return "TIME"
    return value


# Confluent's converters, Debezium's transforms, and plugins of our own: choices in validate answers that Apache Kafka has not.
OURS = re.compile(r"^(io\.confluent|io\.debezium|klamm_plugins)\.")


def shown(body: Any) -> Any:
    """Leaves out the choices that are only ours."""
    for row in body.get("configs", []) if isinstance(body, dict) else []:
        row["value"]["recommended_values"] = [
            v for v in row["value"]["recommended_values"] if not OURS.search(v)
        ]
    return body


def check(entry: dict[str, Any], ours: Response) -> None:
    theirs, name = entry["response"], entry["name"]
    if name in DIFFERENT:
        different = DIFFERENT[name]
        assert ours.status == different.status, (name, ours.status, ours.body)
        assert re.search(different.pattern, ours.body.decode(), re.DOTALL), (name, ours.body)
        return
    assert ours.status == theirs["status"], (name, ours.status, ours.body)
    if entry["request"]["method"] == "OPTIONS":
        assert set(ours.body.decode().split(", ")) == set(theirs["text"].split(", "))
        return
    theirs_body = normal(theirs.get("body", theirs.get("text")))
    assert shown(normal(ours.content)) == theirs_body, ours.body.decode()
    location = dict(map(tuple, theirs["headers"])).get("Location")
    if location is not None:
        assert ours.headers["Location"].partition("/connectors/")[2] == location.partition("/connectors/")[2]
    if ours.body and theirs["status"] < 500:
        assert ours.headers["Content-Type"].startswith("application/json")


def _forget_group(bootstrap: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # nothing comes of what one that is gone was asked

    def forgotten() -> bool:
        try:
            admin.delete_consumer_groups([group])[group].result(30)
        except KafkaException as e:
            return bool(e.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        return True

    wait_for(forgotten, lambda: f"{group} still has members")


def test_rest_replay_of_kafkas_session(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"line {i}\n" for i in range(20)))
    tag = uuid.uuid4().hex[:8]  # the broker may have seen another run
    _forget_group(bootstrap, "connect-snk")  # another test's sink of this name
    worker = WorkerProcess(worker_properties(bootstrap, f"conformance-{tag}"), tmp_path)
    wrong, compared = [], 0
    try:
        worker.wait_ready()
        for entry in RECORDED:
            text = json.dumps(entry["request"])
            request = json.loads(text.replace("$WORK", str(tmp_path)).replace('"rest-', f'"{tag}-'))
            BEFORE.get(entry["name"], lambda _worker: None)(worker)
            answer = worker.request(
                request["method"],
                request["path"],
                request.get("body"),
                raw=request.get("raw_body"),
                headers=request["headers"],
            )
            answer.body = answer.body.replace(str(tmp_path).encode(), b"$WORK").replace(
                f'"{tag}-'.encode(), b'"rest-'
            )
            if entry["name"] in MOMENT:
                continue
            compared += entry["name"] not in DIFFERENT
            try:
                check(entry, answer)
            except AssertionError as e:
                wrong.append(f"{entry['name']}: {e}")
    finally:
        code = worker.stop()
    assert not wrong, "\n\n".join(wrong)
    assert code == 0, worker.log
    assert compared == len(RECORDED) - len(DIFFERENT) - len(MOMENT)
    print(f"{compared} answers equal, {len(DIFFERENT)} differ on purpose, {len(MOMENT)} depend on the moment")


def test_rest_tables_name_recorded_answers() -> None:
    names = {entry["name"] for entry in RECORDED}
    assert names >= DIFFERENT.keys() | BEFORE.keys() | MOMENT.keys()
    assert not DIFFERENT.keys() & MOMENT.keys()
