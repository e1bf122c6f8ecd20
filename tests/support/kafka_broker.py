"""A real Apache Kafka broker for tests: one node, broker and controller, in a directory of its own.

`with KafkaBroker(tmp_path) as kafka: …kafka.address…`. Needs the oracle (see `kafka_oracle`); tests that use it
take the fixture `apache_kafka` (it starts in about four seconds).
"""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from support import kafka_oracle
from support.broker import NO_RETENTION
from support.connect_worker import free_port

DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    **NO_RETENTION,
}


class KafkaBroker:
    """Formats its log directory (`data`) when made; may be started and stopped several times."""

    def __init__(self, work: Path, properties: Mapping[str, str] | None = None) -> None:
        self.oracle = kafka_oracle.require()
        self.work = work
        self.data = work / "data"
        self.port, controller = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}"
        settings = {
            **DEFAULTS,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": str(self.data),
            **(properties or {}),
        }
        self.properties = work / "server.properties"
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.process: subprocess.Popen[bytes] | None = None
        cluster_id = f"Klamm-{uuid.uuid4().hex[:15]}w"  # 16 bytes in base64
        result = self.oracle.run(
            kafka_oracle.STORAGE, "format", "--standalone", "-t", cluster_id, "-c", str(self.properties)
        )
        if result.returncode:
            raise RuntimeError(f"formatting {self.data} failed: {result.stdout}{result.stderr}")

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Returns what the broker has logged (warnings and errors)."""
        return (self.work / "broker.log").read_text()

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = self.oracle.command(
            kafka_oracle.BROKER,
            str(self.properties),
            heap="-Xmx512M",
            log4j=kafka_oracle.write_log4j(self.work),
        )
        with (self.work / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        wait_for("Kafka to answer", self._answers(admin), 150)  # a JVM on a busy machine

    def _answers(self, admin: AdminClient) -> Callable[[], bool]:
        def check() -> bool:
            if self.process is not None and self.process.poll() is not None:
                raise SystemExit(f"Kafka died: {self.log[-2000:]}")
            return bool(admin.list_topics(timeout=1).brokers)

        return check

    @property
    def pid(self) -> int:
        assert self.process is not None, "Kafka does not run"
        return self.process.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it and wait for its end: SIGTERM cleanly, SIGKILL not."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(60)

    def kill(self) -> None:
        """Make sure that it does not run."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until the condition holds; an exception counts as not yet."""
    deadline = time.monotonic() + seconds
    last: object = "not yet"
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except Exception as e:
            last = e
        time.sleep(0.05)
    raise TimeoutError(f"waited {seconds} s for {what}: {last}")
