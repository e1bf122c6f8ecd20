"""Apache Kafka's MirrorMaker 2 in dedicated mode, as a peer: `with MirrorMaker(directory, properties): …`.

Needs the oracle (see `kafka_oracle`); tests that use it take the fixture `apache_kafka`. It starts in about ten
seconds. Wait for what it writes, not for the process.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support import kafka_oracle
from support.kafka_broker import free_port

JMX = "org.apache.kafka.tools.JmxTool"
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
SINGLE_BROKERS = {
    f"{topic}.replication.factor": "1"
    for topic in (
        "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "config.storage", "offset.storage",
        "status.storage",
    )
} | {"replication.factor": "1", "offset.storage.partitions": "1", "status.storage.partitions": "1"}  # fmt: skip


class MirrorMaker:
    """One process for a `file`, which may be started and stopped several times. `log` holds its warnings and errors."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        oracle = kafka_oracle.require()
        self.file, self._log = directory / "mm2.properties", directory / "mm2.log"
        # A killed process of the same flows, of another test on the same brokers, leaves work that others wait with.
        at_once = {
            f"{alias.strip()}.scheduled.rebalance.max.delay.ms": "0"
            for alias in properties["clusters"].split(",")
        }
        settings = SINGLE_BROKERS | {"plugin.discovery": "service_load"} | at_once | dict(properties)
        self.file.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        log4j = kafka_oracle.write_log4j(directory)
        java, *rest = oracle.command(MAIN, str(self.file), heap="-Xmx512M", log4j=log4j)
        self._jmx = f"127.0.0.1:{(port := free_port())}"
        flags = (
            ("port", port),
            ("rmi.port", port),
            ("authenticate", "false"),
            ("ssl", "false"),
            ("host", "127.0.0.1"),
        )
        flags_jmx = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in flags]
        self._command = [java, "-Djava.rmi.server.hostname=127.0.0.1", *flags_jmx, *rest]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MirrorMaker:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it and waits for its end: SIGTERM in good order, SIGKILL not."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def metrics(self, domain: str) -> dict[str, float]:
        """The attributes of the beans in a domain: `domain:type=T,tag=value:attribute` and their numbers."""
        url = f"service:jmx:rmi:///jndi/rmi://{self._jmx}/jmxrmi"
        said = kafka_oracle.require().run(
            JMX,
            "--jmx-url",
            url,
            "--object-name",
            f"{domain}:*",
            "--one-time",
            "--report-format",
            "properties",
        )
        pairs = (line.rpartition("=") for line in said.stdout.splitlines() if line.startswith(f"{domain}:"))
        return {name: float(value) for name, _, value in pairs}

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None
