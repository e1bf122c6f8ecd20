"""Override policies and references: what Apache's worker answers is what ours answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker import new_name
from support.connect_worker import WorkerProcess, worker_properties
from support.kafka_connect import KafkaConnectWorker

pytestmark = pytest.mark.usefixtures("apache_kafka")
PATH = "/connector-plugins/FileStreamSource/config/validate"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workers")
    (folder / "s.properties").write_text("tasks=2\nword=many\n")
    return folder


@pytest.fixture(scope="module", params=["Principal", "None", "Allowlist"])
def workers(request, bootstrap, folder):
    policy = {
        "connector.client.config.override.policy": request.param,
        "connector.client.config.override.allowlist": "linger.ms,client.id",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    found: list[WorkerProcess] = []
    try:
        found.append(WorkerProcess(worker_properties(bootstrap, new_name(), **policy), folder))
        found.append(KafkaConnectWorker(worker_properties(bootstrap, new_name(), **policy), folder))
        yield [worker.wait_ready(60) for worker in found]
    finally:
        for worker in found:
            worker.end()


def rows(worker: WorkerProcess, config: dict[str, str]) -> dict[str, dict]:
    answer = worker.request("PUT", PATH, config)
    assert answer.status == 200, answer.body
    return {row["value"]["name"]: row["value"] for row in answer.json["configs"]}


def test_what_a_policy_refuses_is_the_same_with_the_same_words(workers, folder):
    config = {"connector.class": "FileStreamSource", "name": "x", "topic": "t", "file": "/dev/null"}
    config |= {
        "producer.override.acks": "1",
        "producer.override.linger.ms": "5",
        "producer.override.client.id": "me",
        "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.ssl.key.password": "hunter2!",
        "producer.override.not.a.setting": "x",
    }
    ours, theirs = (rows(worker, config) for worker in workers)
    names = {name for name in theirs if ".override." in name}
    assert (
        names == {name for name in ours if ".override." in name} == {n for n in config if ".override." in n}
    )
    assert {n: ours[n]["errors"] for n in names} == {n: theirs[n]["errors"] for n in names}
    assert {n: ours[n]["value"] for n in names} == {n: theirs[n]["value"] for n in names}


def test_references_are_validated_by_their_values_in_both(workers, folder):
    config = {"connector.class": "FileStreamSource", "name": "x", "topic": "t"}
    for key, errors in (("tasks", 0), ("word", 2)):
        config["tasks.max"] = f"${{file:{folder}/s.properties:{key}}}"
        ours, theirs = (rows(worker, config)["tasks.max"]["errors"] for worker in workers)
        assert len(ours) == len(theirs) == errors
