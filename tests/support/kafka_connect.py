"""Apache Kafka's own distributed Connect worker for tests, with the interface of our `WorkerProcess`.

Needs the oracle (see `kafka_oracle`); it starts in about five seconds, and its tests take the fixture `apache_kafka`.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from support import kafka_oracle
from support.connect_worker import WorkerProcess, wait_for
from support.kafka_broker import free_port

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"


class KafkaConnectWorker(WorkerProcess):
    """Apache's worker: `log` holds its warnings and errors."""

    def __init__(self, properties: dict[str, str], directory: Path) -> None:
        oracle = kafka_oracle.require()
        self.port = free_port()
        given = {
            **properties,
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
        }
        plugins = oracle.home / "plugins"
        if plugins.is_dir():  # else the file connectors lie among the libraries
            given["plugin.path"] = ",".join(filter(None, [str(plugins), properties.get("plugin.path")]))
        path = directory / f"connect-{time.monotonic_ns()}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        self._log_path = path.with_suffix(".log")
        self._err = self._log_path.open("wb")
        log4j = kafka_oracle.write_log4j(directory)
        self.process = subprocess.Popen(
            oracle.command(WORKER, str(path), heap="-Xmx512M", log4j=log4j),
            stdout=subprocess.PIPE,
            stderr=self._err,
        )

    def wait_ready(self, timeout_s: float = 60) -> WorkerProcess:
        """Wait until it has joined its group and answers requests."""
        wait_for(self._healthy, lambda: f"Apache's worker is not ready:\n{self.log}", timeout_s)
        return self

    def _healthy(self) -> bool:
        assert self.process.poll() is None, f"Apache's worker ended:\n{self.log}"
        try:
            return self.request("GET", "/health").status == 200
        except OSError:
            return False
