"""The load: a thread for each kind of work, each with things that come and go.

Each kind repeats its step until it is told to stop. A step that fails ends the thread, and the soak with it.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.mixed.parts import TOPIC, Parts

RECORD: Final = b"r" * 200
SMALL: Final = {
    "segment.bytes": str(1 << 20),
    "retention.bytes": str(4 << 20),
    "file.delete.delay.ms": "1000",
}
"""Topics whose segments roll and go all the time, and soon as often as later."""
ROTATE_LINES: Final = 20_000


class Kind(threading.Thread):
    """One kind of work: `step` is called each `every_s` with the number of the call."""

    def __init__(
        self, name: str, step: Callable[[int], object], every_s: float, stopping: threading.Event
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._step = step
        self._every_s = every_s
        self._stopping = stopping
        self.done = 0
        self.error: Exception | None = None

    def run(self) -> None:
        for n in itertools.count():
            try:
                self._step(n)
            except Exception as error:  # the soak reports it
                self.error = error
                return
            self.done += 1
            if self._stopping.wait(self._every_s):
                return


class Load:
    """All kinds of work against `parts`. Use with `with`: it ends them."""

    def __init__(self, parts: Parts, work: Path) -> None:
        self._parts = parts
        self._work = work
        self._stopping = threading.Event()
        self._client = {"bootstrap.servers": parts.bootstrap}
        self._admin = AdminClient(self._client)
        self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 5})
        self._log = (work / "logs/app.log").open("ab", buffering=0)
        self._lines = 0
        steps: list[tuple[str, Callable[[int], object], float]] = [
            ("lines of a log that rotates", self._write_lines, 0.1),
            ("plain records", self._produce, 0.1),
            ("compacted records", self._produce_compacted, 0.1),
            ("transactions, each third aborted", self._transact, 1),
            ("members of consumer groups", self._join, 3),
            ("topics made and deleted", self._make_topic, 5),
            ("connectors changed and restarted", self._change_connector, 15),
            ("pages of REST and metrics", self._ask, 1),
            ("connections that say nothing, or nonsense", self._knock, 1),
        ]
        self.kinds = [Kind(name, step, every_s, self._stopping) for name, step, every_s in steps]

    def __enter__(self) -> Load:
        topics = {"soak-plain": SMALL, "soak-txn": SMALL, TOPIC: SMALL}
        topics["soak-compacted"] = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}  # fmt: skip
        made = self._admin.create_topics(
            [NewTopic(name, 4, 1, config=config) for name, config in topics.items()]
        )
        for future in made.values():
            future.result(30)
        self._put("soak-file-sink", "FileStreamSink", topics=TOPIC, file=f"{self._work}/out.txt")
        self._put("soak-file-source", "FileStreamSource", topic="soak-copied", file=f"{self._work}/in.txt")
        for kind in self.kinds:
            kind.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopping.set()
        for kind in self.kinds:
            kind.join(60)
        self._producer.flush(30)
        self._log.close()

    def check(self) -> None:
        """Raises the error of a kind of work that has ended."""
        for kind in self.kinds:
            if kind.error is not None:
                raise AssertionError(f"{kind.name}: {kind.error!r}") from kind.error

    def _write_lines(self, n: int) -> None:
        line = b"2026-01-01T00:00:00Z INFO a line of a service that works, number %d\n"
        self._log.write(b"".join(line % (self._lines + i) for i in range(100)))
        with (self._work / "in.txt").open("ab") as copied:
            copied.write(line % n)
        self._lines += 100
        if self._lines % ROTATE_LINES == 0:
            old = self._work / "logs/app.log.1"
            self._log.close()
            (self._work / "logs/app.log").rename(old)
            self._log = (self._work / "logs/app.log").open("ab", buffering=0)
            (self._work / "out.txt").unlink(missing_ok=True)  # an open sink goes on writing into nothing

    def _produce(self, n: int) -> None:
        for i in range(50):
            self._producer.produce("soak-plain", RECORD, key=b"%d" % (i % 7))
        self._producer.poll(0)

    def _produce_compacted(self, n: int) -> None:
        for i in range(20):
            self._producer.produce("soak-compacted", RECORD, key=b"key-%d" % (i + n % 50))
        self._producer.poll(0)

    def _transact(self, n: int) -> None:
        producer = Producer({**self._client, "transactional.id": f"soak-{n % 5}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for _ in range(20):
            producer.produce("soak-txn", RECORD)
        producer.abort_transaction(60) if n % 3 == 0 else producer.commit_transaction(60)

    def _join(self, n: int) -> None:
        protocol = {"group.protocol": "consumer"} if n % 2 else {"session.timeout.ms": 6000}
        settings = {**self._client, **protocol, "group.id": f"soak-{n % 10}", "auto.offset.reset": "latest"}
        consumer = Consumer(settings)
        consumer.subscribe(["soak-plain", "soak-txn"])
        for _ in range(20):
            consumer.poll(0.1)
        consumer.close()

    def _make_topic(self, n: int) -> None:
        name = f"soak-made-{n % 20}"
        self._admin.create_topics([NewTopic(name, 3, 1)])[name].result(30)
        producer = Producer(self._client)  # one that lives on would ask for the topic, and so make it again
        for _ in range(30):
            producer.produce(name, RECORD)
        producer.flush(30)
        self._admin.delete_topics([name])[name].result(30)

    def _change_connector(self, n: int) -> None:
        name = ("soak-file-sink", "soak-file-source")[n % 2]
        if n % 4 < 2:
            self._rest("POST", f"/connectors/{name}/restart?includeTasks=true")
        else:
            self._put(
                "soak-extra",
                "FileStreamSink",
                topics="soak-plain",
                file="/dev/null",
                **{"tasks.max": f"{1 + n % 2}"},
            )
            self._rest("DELETE", "/connectors/soak-extra")

    def _ask(self, n: int) -> None:
        for path in ("/connectors?expand=info", "/connector-plugins", "/metrics"):
            self._rest("GET", path)
        states = json.loads(self._rest("GET", "/connectors?expand=status"))
        failed = [f"{name}: {state}" for name, state in states.items() if '"FAILED"' in json.dumps(state)]
        assert not failed, failed
        with urllib.request.urlopen(self._parts.metrics, timeout=30) as answer:
            answer.read()

    def _knock(self, n: int) -> None:
        host, port = self._parts.bootstrap.split(":")
        with socket.create_connection((host, int(port)), 10) as s:
            if n % 2:
                s.sendall(b"\x00\x00\x00\x08nonsense")

    def _put(self, name: str, kind: str, **config: str) -> None:
        lines = "org.apache.kafka.connect.storage.StringConverter"
        body = {"connector.class": kind, "tasks.max": "1", "value.converter": lines, **config}
        self._rest("PUT", f"/connectors/{name}/config", json.dumps(body).encode())

    def _rest(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Asks the worker; a rebalance that is under way (409) is waited for."""
        for _ in range(60):
            request = urllib.request.Request(self._parts.rest + path, body, {"Content-Type": "application/json"}, method=method)  # fmt: skip
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise AssertionError(f"{method} {path}: {error.code} {error.read()[:300]!r}") from error
            time.sleep(1)
        raise AssertionError(f"{method} {path}: a rebalance for 60 s")
