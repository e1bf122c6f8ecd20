"""The two brokers under measurement, each a process that can be started, watched and stopped."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil

# As after pip, which compiles: where this is set, each start of a program would compile again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

KAFKA_HOME = Path(os.environ.get("KAFKA_HOME", Path.home() / ".cache/kafka-oracle"))
CERTIFICATE = Path(__file__).parents[1] / "tests/fixtures/stores/server.pem"
"""Key and certificate of the brokers\' TLS listeners, of the tests."""
JVM_FLAGS = [  # the flags and heap of Kafka's own start script
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for_metadata(port: int, process: subprocess.Popen[bytes], *, timeout_s: float = 60) -> None:
    """Return once the broker answers Metadata (API 3, version 4, no topics) naming at least one broker."""
    body = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i", 0) + b"\0"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker left with exit code {process.returncode} before it served")
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as s:
                s.settimeout(5)
                s.sendall(struct.pack(">i", len(body)) + body)
                _size, _correlation, _throttle, brokers = struct.unpack(">iiii", _read(s, 16))
                if brokers >= 1:
                    return
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(f"no Metadata answer on port {port} within {timeout_s} s")


def _read(s: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = s.recv(65536)
        if not part:
            raise OSError("closed")
        data += part
    return data[:n]


class Server(ABC):
    """One broker process. `name` is what the tables call it."""

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = self.advertised_port = free_port()
        self.tls_port: int | None = None  # set before the start: a listener with TLS beside the other
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def tls_bootstrap(self) -> str:
        """The address of the listener with TLS, for clients that trust `CERTIFICATE`'s authority."""
        return f"SSL://127.0.0.1:{self.tls_port}"

    def tls_listener(self) -> list[str]:
        return [] if self.tls_port is None else [self.tls_bootstrap]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing
        """Do what must be done once before the first start."""

    def start(self) -> float:
        """Start; seconds from exec to the first Metadata answer."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prepare()
        with (self.directory / "log.txt").open("ab") as log:
            begin = time.monotonic()
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for_metadata(self.port, self.process)
        return time.monotonic() - begin

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_s(self) -> float:
        """User and system seconds of the process and its children so far."""
        assert self.process is not None
        process = psutil.Process(self.process.pid)
        times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
        return float(sum(t.user + t.system for t in times))

    def rss_mb(self) -> float:
        assert self.process is not None
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6


class Klamm(Server):
    name = "klamm"

    def command(self) -> list[str]:
        klamm = Path(sys.executable).with_name("klamm")
        return [
            str(klamm), "broker", "start",
            "--override", f"listeners={','.join([f'PLAINTEXT://127.0.0.1:{self.port}', *self.tls_listener()])}",
            "--override", f"advertised.listeners={','.join([f'PLAINTEXT://127.0.0.1:{self.advertised_port}', *self.tls_listener()])}",
            "--override", f"ssl.keystore.location={CERTIFICATE}",
            "--override", f"log.dirs={self.directory / 'data'}",
            "--override", "num.partitions=4", "--override", "group.initial.rebalance.delay.ms=0",
        ]  # fmt: skip


class Kafka(Server):
    name = "kafka"

    @staticmethod
    def missing() -> str | None:
        """Why the peer cannot run here, or None."""
        if shutil.which("java") is None:
            return "no java on PATH"
        if not list((KAFKA_HOME / "libs").glob("kafka_2.13-*.jar")):
            return f"no Kafka jars in {KAFKA_HOME}: run tests/peers/fetch_kafka.sh"
        return None

    def _java(self, *args: str) -> list[str]:
        return [
            "java", *JVM_FLAGS, f"-Dlog4j2.configurationFile={KAFKA_HOME / 'conf/log4j2.properties'}",
            "-cp", f"{KAFKA_HOME}/libs/*", *args,
        ]  # fmt: skip

    def prepare(self) -> None:
        controller = f"127.0.0.1:{free_port()}"
        others = ",".join([*self.tls_listener(), f"CONTROLLER://{controller}"])
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},{others}"
        advertised = f"PLAINTEXT://127.0.0.1:{self.advertised_port},{others}"
        config = self.directory / "server.properties"
        config.write_text(
            f"""\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={controller}
listeners={listeners}
advertised.listeners={advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={CERTIFICATE}
log.dirs={self.directory / "data"}
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
        )
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id, "-c", str(config)),
            check=True, capture_output=True,
        )  # fmt: skip

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.directory / "server.properties"))
