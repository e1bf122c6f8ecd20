"""Apache Kafka's MirrorMaker 2 in dedicated mode, as a peer: `with MirrorMaker(directory, properties): …`.

Needs the oracle (see `kafka_oracle`); tests that use it take the fixture `apache_kafka`. It starts in about ten
seconds. Wait for what it writes, not for the process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support import kafka_oracle

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
SINGLE_BROKERS = {
    f"{topic}.replication.factor": "1"
    for topic in (
        "checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "config.storage", "offset.storage",
        "status.storage",
    )
} | {"replication.factor": "1", "offset.storage.partitions": "1", "status.storage.partitions": "1"}  # fmt: skip


class MirrorMaker:
    """One process for a file. `log` holds its warnings and errors."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        oracle = kafka_oracle.require()
        file, self._log = directory / "mm2.properties", directory / "mm2.log"
        settings = SINGLE_BROKERS | {"plugin.discovery": "service_load"} | dict(properties)
        file.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self._command = oracle.command(
            MAIN, str(file), heap="-Xmx512M", log4j=kafka_oracle.write_log4j(directory)
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MirrorMaker:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None
