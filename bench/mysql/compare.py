"""The MySQL source and the SQL sink against the bare libraries and MariaDB's own tool, alternating in one run.

    python -m bench.mysql.compare [--runs 3] [--rows 100000]

One MariaDB, one table of --rows rows written in transactions of a thousand. Rows/s and CPU seconds per million rows of
this process (of the tool, for mariadb-binlog; the server's work is in nobody's figure):

- snapshot: the source task, beside a PyMySQL cursor that drops what it reads;
- binlog: the source task, beside mysql-replication that decodes rows and drops them, one that reads events and leaves
  the rows alone, and `mariadb-binlog --verbose` on the same file;
- sink: the sink task with upserts of 1000 records, beside executemany of the same statement in PyMySQL.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import XidEvent
from pymysqlreplication.row_event import WriteRowsEvent
from support.mariadb import MariaDB, missing

from klamm_connectors.mysql.task import MySqlSourceTask
from klamm_connectors.sql.task import SqlSinkTask
from klamm_plugins.records import SinkRecord
from klamm_plugins.testing import MemorySinkContext, MemorySourceContext

TABLE = "id INT PRIMARY KEY, name VARCHAR(50), price DECIMAL(12,2), at DATETIME(3), note TEXT"
SELECT = "seq, CONCAT('name ', seq), seq / 7, '2024-01-01' + INTERVAL seq SECOND, REPEAT('x', 60)"
Measured = tuple[float, float]
"""Rows/s, CPU seconds per million rows."""


def measured(rows: int, run: Callable[[], int], who: int = resource.RUSAGE_SELF) -> Measured:
    before, begin = resource.getrusage(who), time.monotonic()
    found = run()
    seconds, after = time.monotonic() - begin, resource.getrusage(who)
    if found != rows:
        raise RuntimeError(f"{found} rows instead of {rows}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return rows / seconds, cpu / rows * 1e6


def source(server: MariaDB, rows: int, mode: str, ready: Callable[[], None]) -> Measured:
    props = {
        "name": "bench",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "root",
        "topic.prefix": "p",
        "table.include.list": "d[.]t",
        "event.format": "row",
        "snapshot.mode": mode,
    }
    task = MySqlSourceTask()
    task.initialize(MemorySourceContext(props))
    task.start(props)
    if mode == "no_data":
        task.poll()
    ready()

    def run() -> int:
        found = 0
        while found < rows:
            found += len(task.poll() or ())
        return found

    try:
        return measured(rows, run)
    finally:
        task.stop()


def cursor(server: MariaDB, rows: int) -> Measured:
    def run() -> int:
        with server.connect("d") as connection, connection.cursor(SSCursor) as reading:
            reading.execute("SELECT * FROM t")
            found = 0
            while part := reading.fetchmany(2000):
                found += len(part)
            return found

    return measured(rows, run)


def library(server: MariaDB, rows: int, gtid: str, *, decode: bool) -> Measured:
    def run() -> int:
        stream = BinLogStreamReader(
            {"host": "127.0.0.1", "port": server.port, "user": "root"},
            server_id=4711,
            is_mariadb=True,
            auto_position=gtid,
            only_events=[WriteRowsEvent, XidEvent],
            enable_logging=False,
            blocking=True,  # else the server resets the connection at the end, and what was on its way is gone
        )
        found = commits = 0
        while commits < rows // 1000:
            event = stream.fetchone()
            if isinstance(event, XidEvent):
                commits += 1
            elif decode:
                found += len(event.rows)
        stream.close()
        return found if decode else rows

    return measured(rows, run)


def tool(server: MariaDB, rows: int, file: str, pos: int) -> Measured:
    command = ["mariadb-binlog", "--no-defaults", "--base64-output=DECODE-ROWS", "--verbose", f"--start-position={pos}", str(server.data / file)]  # fmt: skip

    def run() -> int:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return rows

    return measured(rows, run, resource.RUSAGE_CHILDREN)


def values(number: int) -> dict[str, object]:
    return {"name": f"name {number}", "price": number / 7, "note": "x" * 60}


def sink(server: MariaDB, rows: int) -> Measured:
    props = {
        "connection.url": f"mysql://root@127.0.0.1:{server.port}/d",
        "table.name.format": "s",
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
    }
    task = SqlSinkTask()
    task.initialize(MemorySinkContext(props))
    task.start(props)
    batches = [
        [SinkRecord("s", 0, None, i, None, values(i), i) for i in range(at, at + 1000)]
        for at in range(0, rows, 1000)
    ]

    def run() -> int:
        for batch in batches:
            task.put(batch)
        return sum(map(len, batches))

    try:
        return measured(rows, run)
    finally:
        task.stop()


def executemany(server: MariaDB, rows: int) -> Measured:
    statement = (
        "INSERT INTO s (name, price, note, id) VALUES (%s, %s, %s, %s) ON DUPLICATE KEY UPDATE name = VALUES(name), "
        "price = VALUES(price), note = VALUES(note)"
    )
    batches = [[(*values(i).values(), i) for i in range(at, at + 1000)] for at in range(0, rows, 1000)]

    def run() -> int:
        with server.connect("d", autocommit=False) as connection, connection.cursor() as writing:
            for batch in batches:
                writing.executemany(statement, batch)
                connection.commit()
        return sum(map(len, batches))

    return measured(rows, run)


def one_run(server: MariaDB, rows: int, *, turned: bool) -> dict[str, Measured]:
    server.sql("CREATE OR REPLACE TABLE d.t (" + TABLE + ")")
    server.sql("FLUSH BINARY LOGS")
    ((gtid,),) = server.sql("SELECT @@gtid_binlog_pos")
    ((file, pos, *_),) = server.sql("SHOW MASTER STATUS")

    def load() -> None:
        for at in range(1, rows, 1000):
            server.sql(f"INSERT INTO d.t SELECT {SELECT} FROM d.seq_{at}_to_{at + 999}", database="d")

    found = {"binlog: source": source(server, rows, "no_data", load)}
    steps: list[tuple[str, Callable[[], Measured]]] = [
        ("binlog: mysql-replication, rows decoded", lambda: library(server, rows, gtid, decode=True)),
        ("binlog: mysql-replication, rows left alone", lambda: library(server, rows, gtid, decode=False)),
        ("binlog: mariadb-binlog", lambda: tool(server, rows, file, pos)),
        ("snapshot: source", lambda: source(server, rows, "initial", lambda: None)),
        ("snapshot: PyMySQL cursor", lambda: cursor(server, rows)),
        ("sink: task", lambda: sink(server, rows)),
        ("sink: PyMySQL executemany", lambda: executemany(server, rows)),
    ]
    for name, step in steps[::-1] if turned else steps:
        if name.startswith("sink"):
            server.sql(
                "CREATE OR REPLACE TABLE d.s (id INT PRIMARY KEY, name VARCHAR(50), price DOUBLE, note TEXT)"
            )
        found[name] = step()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000, help="a multiple of 1000")
    args = parser.parse_args()
    if reason := missing():
        print(f"no measurement: {reason}", file=sys.stderr)
        return 1
    with MariaDB() as server:
        server.sql("CREATE DATABASE d")
        runs = [one_run(server, args.rows, turned=number % 2 == 1) for number in range(args.runs)]
    print(f"{'':46}{'rows/s':>10}{'CPU s/M rows':>14}   ours / this")
    ours = {name.split(":")[0]: name for name in ("binlog: source", "snapshot: source", "sink: task")}
    for name in sorted(runs[0]):
        rate, cpu = (statistics.median(run[name][i] for run in runs) for i in (0, 1))
        mine = statistics.median(run[ours[name.split(":")[0]]][0] for run in runs)
        print(f"{name:46}{rate:10.0f}{cpu:14.2f}   {mine / rate:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
