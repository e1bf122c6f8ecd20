"""A second node for a real Kafka: with `KafkaBroker` (broker and controller) a cluster of two brokers.

`with KafkaBroker(one) as first, SecondNode(first, two) as second: …second.address…`. The second is a broker only: it may be killed or stopped,
and the first goes on alone. `number=3` is a third.
"""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient
from support import kafka_oracle
from support.kafka_broker import KafkaBroker, free_port, wait_for


class SecondNode:
    """Node 2 of the cluster whose node 1 is `first`, which must run. `number`: a later node, of a cluster of so many."""

    def __init__(
        self, first: KafkaBroker, work: Path, settings: dict[str, str] | None = None, *, number: int = 2
    ) -> None:
        self._first = first
        self._number = number
        self._work = work
        self.address = f"127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[bytes] | None = None
        work.mkdir(parents=True, exist_ok=True)
        every = _properties(first.properties) | {
            "process.roles": "broker",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(work / "data"),
            **(settings or {}),
        }
        self._properties = work / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in every.items()))

    def __enter__(self) -> SecondNode:
        cluster = _properties(self._first.data / "meta.properties")["cluster.id"]
        oracle = self._first.oracle
        made = oracle.run(kafka_oracle.STORAGE, "format", "-t", cluster, "-c", str(self._properties))
        assert made.returncode == 0, made.stdout + made.stderr
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, and waits until it is part of the cluster."""
        command = self._first.oracle.command(
            kafka_oracle.BROKER,
            str(self._properties),
            heap="-Xmx512M",
            log4j=kafka_oracle.write_log4j(self._work),
        )
        with (self._work / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        # Each node tells clients of the brokers that it knows itself, and a client that asks another one drops those that it leaves out
        for address in (self._first.address, self.address):
            wait_for(f"{address} to know all brokers", partial(_knows, address, self._number))

    def stop(self) -> None:
        """Stops it cleanly: the others know at once that it is away."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _knows(address: str, count: int) -> bool:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})  # a new one asks this address first
    return len(admin.list_topics(timeout=5).brokers) >= count


def _properties(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
