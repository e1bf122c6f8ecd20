"""The proof of exactly once from the binlog: task, broker and database are killed with SIGKILL under load, and a reader of what is
committed sees every row once, in order.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time

import pytest
from support.broker import new_name
from support.connect_worker import JSON, WorkerProcess, free_port, wait_for, worker_properties
from support.exactly_once import committed_values, kill_9, task_pid
from support.mariadb import MariaDB, require

from klamm.testing import EmbeddedBroker

WORKER = {
    "exactly.once.source.support": "enabled",
    "task.restart.backoff.ms": "50",
    "task.restart.backoff.max.ms": "200",
    "task.restart.max": "1000",
    "session.timeout.ms": "6000",
}
BROKER = {
    "num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
}


class Writer:
    """Inserts rows in transactions of one, of some and of hundreds, from a thread. `written` is the next row's number."""

    def __init__(self, server: MariaDB) -> None:
        self.written = 0
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.written

    def _write(self) -> None:
        sizes = random.Random(3)
        while not self._stopping.is_set():
            try:
                with self._server.connect("d", read_timeout=20) as connection, connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT COALESCE(MAX(id) + 1, 0) FROM t"
                    )  # the last commit's answer may be lost
                    ((self.written,),) = cursor.fetchall()
                    while not self._stopping.wait(0.003):
                        count = sizes.choice((1, 1, 1, 1, 10, 10, 300))
                        first = self.written
                        rows = ",".join(f"({n}, 0)" for n in range(first, first + count))
                        cursor.execute(f"INSERT INTO t VALUES {rows}")
                        self.written += count
            except Exception:
                time.sleep(0.1)  # the server is down


@pytest.mark.usefixtures("mariadb_server", "processes")
@pytest.mark.timeout(600)
def test_every_row_is_committed_once_whatever_is_killed(tmp_path):
    require()
    rng, name = random.Random(7), new_name("p")
    with MariaDB() as server, EmbeddedBroker(tmp_path / "data", port=free_port(), config=BROKER) as broker:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        server.sql("INSERT INTO d.t VALUES (0, 0)")
        worker = WorkerProcess(worker_properties(broker.bootstrap, name, **WORKER), tmp_path).wait_ready()
        try:
            config = {
                "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                "exactly.once.support": "required",
                "database.hostname": "127.0.0.1",
                "database.port": str(server.port),
                "database.user": "root",
                "database.server.id": "9901",
                "topic.prefix": name,
                "table.include.list": "d[.]t",
                "provide.transaction.metadata": "true",
                "key.converter": JSON,
                "value.converter": JSON,
                "value.converter.schemas.enable": "false",
            }
            answer = worker.request("POST", "/connectors", {"name": name, "config": config})
            assert answer.status == 201, answer.body
            worker.wait_state(name, "RUNNING", "RUNNING")

            def committed() -> list[dict]:
                return [json.loads(value) for value in committed_values(broker.bootstrap, f"{name}.d.t")]

            def has(count: int) -> None:
                wait_for(
                    lambda: len(committed()) >= count,
                    lambda: f"{worker.state(name)} {worker.log[-4000:]}",
                    150,
                )

            has(1)  # the snapshot is done
            writer = Writer(server)
            for victim in ("task", "server", "task", "broker", "task", "task"):
                time.sleep(rng.uniform(0.2, 1.0))  # load between two kills
                if victim == "task":
                    wait_for(
                        lambda: kill_9(task_pid(worker.process.pid, f"{name}-0")), lambda: worker.log[-4000:]
                    )
                    continue
                one = server if victim == "server" else broker
                one.kill()
                one.start()
            count = writer.stop()
            ((rows,),) = server.sql("SELECT COUNT(*) FROM d.t")
            assert rows >= count > 100
            has(rows)
            found = committed()
            assert [one["after"]["id"] for one in found] == list(range(rows))
            blocks = [one["transaction"] for one in found[1:]]
            assert all(block["total_order"] == block["data_collection_order"] for block in blocks)
            assert all(
                now["total_order"] == (was["total_order"] + 1 if was["id"] == now["id"] else 1)
                for was, now in itertools.pairwise(blocks)
            )
        finally:
            worker.end()
