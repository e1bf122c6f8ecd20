"""Workers and tasks whose login a broker refuses: one line that says all, and on it goes once the login is right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.connect_worker import STRING, WorkerProcess, free_port, wait_for, worker_properties
from support.secure_kafka import SCRAM

from klamm.testing import EmbeddedBroker

Start = Callable[..., WorkerProcess]

pytestmark = pytest.mark.usefixtures("processes")


def login(password: str) -> str:
    return f'{SCRAM} required username="worker" password="{password}";'


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a worker that logs in with a password by SCRAM; `broker` is what it logs in to."""
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"
    config = {"listeners": listeners, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        started = []

        def make(password: str) -> WorkerProcess:
            security = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": login(password),
            }
            started.append(WorkerProcess(worker_properties(f"127.0.0.1:{port}", "g", **security), tmp_path))
            return started[-1]

        make.broker = broker  # type: ignore[attr-defined]
        yield make
        for worker in started:
            worker.end()


def give_password(broker: Any, password: str) -> None:
    change = UserScramCredentialUpsertion(
        "worker", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode()
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.alter_user_scram_credentials([change])["worker"].result(30)


def refusals(worker: WorkerProcess) -> list[str]:
    return [line for line in worker.log.splitlines() if "uthentication failed" in line]


def test_a_worker_says_it_once_and_goes_on_when_the_password_is_right(start: Start) -> None:
    worker = start("new-secret")
    wait_for(lambda: "it refuses the login" in worker.log, lambda: worker.log)
    time.sleep(3)  # six more attempts
    (line,) = refusals(worker)
    assert "SCRAM-SHA-256 as 'worker': Authentication failed" in line
    assert line.endswith("check name and password in sasl.jaas.config")
    give_password(start.broker, "new-secret")  # type: ignore[attr-defined]
    worker.wait_ready()
    assert worker.stop() == 0, worker.log
    assert "new-secret" not in worker.log


def test_a_task_says_it_once(start: Start, tmp_path: Path) -> None:
    give_password(start.broker, "right-secret")  # type: ignore[attr-defined]
    worker = start("right-secret").wait_ready()
    (tmp_path / "in.txt").write_text("a\n")
    made = worker.create(
        "src", connector__class="FileStreamSource", file=str(tmp_path / "in.txt"), topic="t",
        key__converter=STRING, value__converter=STRING, producer__override__sasl__jaas__config=login("wrong-secret"),
    )  # fmt: skip
    assert made.status == 201, made.body
    wait_for(lambda: refusals(worker), lambda: worker.log)
    time.sleep(3)
    (line,) = refusals(worker)
    assert "[src-0]" in line
    assert "SCRAM-SHA-256 as 'worker': Authentication failed" in line
    assert "secret" not in worker.log
