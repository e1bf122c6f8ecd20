"""A worker with config providers and an override policy, over REST."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.broker import new_name
from support.connect_worker import STRING, WorkerProcess, wait_for, worker_properties
from support.runtime import SINK, install_plugins
from support.runtime_broker import read_all

SECRET = "hunter2-of-rest"
AWKWARD = "Pa\"ss\\Wörd'Zz9q"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "s.properties").write_text(
        f"password={SECRET}\ntasks=2\nfile={folder}/in.txt\nbatch={SECRET}\n"
    )
    (folder / "in.txt").write_text("one\n")
    (folder / "quote").write_text(AWKWARD)
    return folder


@pytest.fixture(scope="module")
def worker(bootstrap, folder):
    properties = {
        "config.providers": "file,dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(folder),
        "connector.client.config.override.policy": "Allowlist",
        "connector.client.config.override.allowlist": "linger.ms, compression.type,interceptor.classes",
        "producer.interceptor.classes": "com.example.Interceptor",
        "producer.compression.zstd.level": "3",
    }
    python_path = install_plugins(folder / "plugins")
    process = WorkerProcess(
        worker_properties(bootstrap, new_name(), **properties), folder, python_path=python_path
    )
    try:
        yield process.wait_ready()
    finally:
        process.end()


def test_rest_a_connector_with_references_runs_and_only_they_are_shown(worker, folder):
    name, reference = new_name(), f"${{file:{folder}/s.properties:"
    config = {
        "connector__class": "FileStreamSource",
        "topic": name,
        "file": reference + "file}",
        "tasks__max": reference + "tasks}",
        "some__password": reference + "password}",
    }
    answer = worker.create(name, **config)
    assert answer.status == 201, answer.body
    worker.wait_state(name, "RUNNING", "RUNNING")
    shown = worker.get(f"/connectors/{name}")
    tasks = worker.get(f"/connectors/{name}/tasks")
    assert shown["config"]["file"] == config["file"]
    assert tasks[0]["config"]["file"] == config["file"]
    assert SECRET not in str([shown, tasks]) + worker.log
    wait_for(lambda: worker.get(f"/connectors/{name}/offsets")["offsets"], lambda: worker.log)


def test_rest_a_secret_that_python_escapes_is_in_no_trace(worker, folder, bootstrap):
    """The path of a file that cannot be opened: its error shows it as repr() does."""
    name = new_name()
    config = {
        "connector__class": "FileStreamSink",
        "file": f"/nosuchdir/${{dir:{folder}:quote}}",
        "topics": name,
    }
    assert worker.create(name, **config).status == 201

    def trace():
        tasks = worker.get(f"/connectors/{name}/status").get("tasks")  # none while it is not known
        return tasks[0].get("trace") or "" if tasks else ""

    wait_for(lambda: "cannot be opened" in trace(), lambda: worker.log)
    assert "No such file or directory: '/nosuchdir/[hidden]'" in trace()

    def told() -> list[bytes]:
        return [record.value() or b"" for record in read_all(bootstrap, worker.topic("status"))]

    # It is written a moment after it is shown.
    wait_for(lambda: any(b"/nosuchdir/[hidden]" in value for value in told()), lambda: worker.log)
    assert worker.request("DELETE", f"/connectors/{name}").status == 204
    for secret in ("Zz9q", "W\\u00f6rd"):
        assert secret.encode() not in b"".join(told())
        assert secret not in worker.log


def test_rest_validation_looks_at_values_and_shows_references(worker, folder):
    reference = f"${{file:{folder}/s.properties:password}}"
    config = {"connector.class": "FileStreamSource", "name": "x", "topic": reference}
    config["tasks.max"] = reference
    path = "/connector-plugins/FileStreamSource/config/validate"
    answer = worker.request("PUT", path, config).json
    rows = {r["value"]["name"]: r["value"] for r in answer["configs"]}
    assert rows["tasks.max"]["errors"][:1] == [
        "Invalid value [hidden] for configuration tasks.max: Not a number of type INT"
    ]
    assert rows["topic"]["value"] == reference
    refused = worker.request("POST", "/connectors", {"name": "x", "config": config})
    assert refused.status == 400
    assert SECRET not in str(answer) + str(refused.body)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${file:%s/s.properties:absent}", "no such value"),
        ("${file:/etc/passwd:root}", "is not allowed to be accessed"),
    ],
)
def test_rest_a_reference_without_a_value_is_a_bad_request(worker, folder, value, said):
    text = value.replace("%s", str(folder))
    answer = worker.create(new_name(), connector__class="FileStreamSource", topic="t", file=text)
    assert answer.status == 400
    assert said in answer.json["message"]
    assert answer.json["message"].startswith("file: ")


def test_rest_overrides_outside_of_the_policy_are_errors(worker):
    config = {"connector.class": "FileStreamSource", "name": "x", "topic": "t"}
    config |= {
        "producer.override.acks": "1",
        "producer.override.linger.ms": "soon",
        "consumer.override.linger.ms": "5",
    }
    answer = worker.request("PUT", "/connector-plugins/FileStreamSource/config/validate", config).json
    found = {
        r["value"]["name"]: r["value"]["errors"]
        for r in answer["configs"]
        if ".override." in r["value"]["name"]
    }
    assert found["producer.override.acks"] == [
        "The 'Allowlist' policy does not allow 'acks' to be overridden in the connector configuration."
    ]
    assert "Invalid value soon for configuration linger.ms" in found["producer.override.linger.ms"][0]
    assert found["consumer.override.linger.ms"] == []
    assert sum(map(len, found.values())) == 2
    assert worker.request("POST", "/connectors", {"name": "x", "config": config}).status == 400


def test_rest_what_has_no_counterpart_is_warned_of_once(worker, folder):
    name = new_name()
    override = {"producer__override__interceptor__classes": "com.example.Own"}
    worker.create(
        name, connector__class="FileStreamSource", topic=name, file=str(folder / "in.txt"), **override
    )
    worker.wait_state(name, "RUNNING", "RUNNING")
    worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")
    worker.wait_state(name, "RUNNING", "RUNNING")

    def said() -> list[str]:
        return [line for line in worker.log.splitlines() if "has no effect" in line]

    for what in (
        "producer.interceptor.classes has no effect: Java classes cannot run here",
        "producer.compression.zstd.level has no effect: compression.type is none",
        f"connector {name}: producer.override.interceptor.classes has no effect: Java classes cannot run here",
    ):
        # What a task's process says is in the log a moment after it runs.
        wait_for(lambda what=what: any(line.endswith(what) for line in said()), lambda: worker.log)
        assert len([line for line in said() if line.endswith(what)]) == 1, said()


def test_rest_a_dry_run_uses_values_and_shows_none(worker, folder):
    config = {
        "connector.class": "FileStreamSink",
        "topics": "t",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "stamp",
        "transforms.stamp.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.stamp.static.field": "who",
        "transforms.stamp.static.value": f"it is ${{file:{folder}/s.properties:password}}",
    }
    body = {"config": config, "records": [{"value": {"n": 1}}]}
    answer = worker.request("POST", f"/connectors/{new_name()}/dry-run", body)
    assert answer.status == 200, answer.body
    (result,) = answer.json["results"]
    assert result["steps"][-1]["record"]["value"] == {"n": 1, "who": "it is [hidden]"}
    assert SECRET not in str(answer.body)


def test_rest_headers_of_dead_letters_show_no_secret(worker, bootstrap, folder):
    """The plugin's error repeats the record's value, which is the one that its setting refers to."""
    name = new_name()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, SECRET.encode())
    assert producer.flush(60) == 0
    answer = worker.create(
        name,
        connector__class=SINK,
        topics=name,
        topic=name,
        file=str(folder / "out.json"),
        value__converter=STRING,
        report=f"${{file:{folder}/s.properties:password}}",
        errors__tolerance="all",
        errors__log__enable="true",
        errors__deadletterqueue__topic__name=f"{name}-dlq",
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
    )
    assert answer.status == 201, answer.body
    wait_for(lambda: read_all(bootstrap, f"{name}-dlq"), lambda: worker.log)
    (dead,) = read_all(bootstrap, f"{name}-dlq")
    headers = dict(dead.headers())
    assert headers["__connect.errors.exception.message"] == b"[hidden] cannot be written"
    assert SECRET.encode() not in b"".join(headers.values())
    wait_for(lambda: "[hidden] cannot be written" in worker.log, lambda: worker.log)
    assert SECRET not in worker.log
