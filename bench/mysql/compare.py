"""The MySQL source from database to topic: a task's CPU by stage, beside the bare libraries, alternating in one run.

    python -m bench.mysql.compare [--runs 3] [--rows 100000] [--write]

One MariaDB, one of Klamm's brokers, one table of --rows rows written in transactions of a thousand; for the binlog also fewer rows in
transactions of ten and of one. The task runs in a process of
its own with the runtime's loop around it (`bench.sources.task`): Debezium's envelope, JSON without schemas, one partition.

- binlog: beside it mysql-replication that decodes rows and drops them, and one that reads events and leaves the rows alone;
- snapshot: beside it a PyMySQL cursor that drops what it reads;
- envelope to JSON: JsonConverter alone, with structs and with columns, beside orjson that writes the same dicts.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import orjson
from bench import arguments, report
from bench.broker import load
from bench.connect.compare import end_offset
from bench.servers import Klamm
from bench.sinks.compare import task
from confluent_kafka import Consumer
from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import XidEvent
from pymysqlreplication.row_event import WriteRowsEvent
from support.mariadb import MariaDB, missing

from klamm_connectors.mysql.task import MySqlSourceTask
from klamm_plugins.batch import SourceBatch, SourceBatches
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.testing import MemorySourceContext

JSON = "org.apache.kafka.connect.json.JsonConverter"
TABLE = "id INT PRIMARY KEY, name VARCHAR(50), price DECIMAL(12,2), at DATETIME(3), note TEXT"
NAMED = "seq, CONCAT('name ', seq) AS name, seq / 7 AS price, '2024-01-01' + INTERVAL seq SECOND AS at, REPEAT('x', 60) AS note"
STAGES = ("reader", "connector", "converter", "producer", "loop")
Measured = dict[str, float]
"""Rows/s, CPU in µs per row, and the stages of it."""


def props(server: MariaDB, mode: str) -> dict[str, str]:
    return {
        "name": "bench",
        "connector.class": "MySqlSource",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "root",
        "topic.prefix": "p",
        "table.include.list": "d[.]t",
        "snapshot.mode": mode,
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }


def source(server: MariaDB, bootstrap: str, name: str, rows: int, offset: dict[str, Any] | None) -> Measured:
    """Runs a task until its topic has all rows."""
    config = props(server, "initial") | {"topic.prefix": name}
    topic = f"{name}.d.t"
    load.create_topic(bootstrap, 1, topic)
    watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch"})
    try:
        return task(
            bootstrap,
            name,
            config,
            rows,
            lambda: end_offset(watcher, topic) >= rows,
            "bench.sources.task",
            offset,
        )
    finally:
        watcher.close()


def measured(rows: int, run: Callable[[], int]) -> Measured:
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    found = run()
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    if found != rows:
        raise RuntimeError(f"{found} rows instead of {rows}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"rate": rows / seconds, "cpu": cpu / rows * 1e6}


def cursor(server: MariaDB, rows: int) -> Measured:
    def run() -> int:
        with server.connect("d") as connection, connection.cursor(SSCursor) as reading:
            reading.execute("SELECT * FROM t")
            found = 0
            while part := reading.fetchmany(2000):
                found += len(part)
            return found

    return measured(rows, run)


def library(server: MariaDB, rows: int, gtid: str, size: int = 1000, *, decode: bool) -> Measured:
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
        while commits < rows // size:
            event = stream.fetchone()
            if isinstance(event, XidEvent):
                commits += 1
            elif decode:
                found += len(event.rows)
        stream.close()
        return found if decode else rows

    return measured(rows, run)


def envelopes(server: MariaDB) -> SourceBatch:
    """Returns the columns of some rows."""
    task = MySqlSourceTask()
    task.initialize(MemorySourceContext(config := props(server, "initial")))
    task.start(config)
    try:
        found = task.poll()
        assert isinstance(found, SourceBatches)
        batch = found.parts[0]
        assert isinstance(batch, SourceBatch)
        return batch[:500]
    finally:
        task.stop()


def converted(batch: SourceBatch, rows: int, way: str) -> Measured:
    """Writes the same values again and again until they are as many as the rows."""
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, is_key=False)
    many, schema, columns = converter.from_connect_data_many, batch.value_schema, batch.values
    structs = list(columns)
    texts = many("t", schema, columns)
    dicts = [orjson.loads(text or b"") for text in texts]
    ways: dict[str, Callable[[], Any]] = {
        "columns": lambda: many("t", schema, columns),
        "structs": lambda: many("t", schema, structs),
        "orjson": lambda: list(map(orjson.dumps, dicts)),
    }

    def run() -> int:
        for _ in range(rows // len(batch)):
            ways[way]()
        return rows

    return measured(rows, run)


def loaded(server: MariaDB, rows: int, size: int = 1000) -> tuple[str, dict[str, Any]]:
    """Fills the table by transactions of `size` rows. Returns the place before that in the binlog, as a GTID and as an offset."""
    server.sql("CREATE OR REPLACE TABLE d.t (" + TABLE + ")")
    server.sql("FLUSH BINARY LOGS")
    ((gtid,),) = server.sql("SELECT @@gtid_binlog_pos")
    ((file, pos, *_),) = server.sql("SHOW MASTER STATUS")
    insert = f"INSERT INTO d.t SELECT seq + i * {size}, name, price, at, note FROM (SELECT {NAMED} FROM d.seq_1_to_{size}) AS s"
    loop = f"BEGIN NOT ATOMIC FOR i IN 0..{rows // size - 1} DO {insert}; END FOR; END"
    server.sql(loop, database="d")
    return gtid, {"file": file, "pos": pos, "gtids": gtid}


def small_transactions(server: MariaDB, bootstrap: str, rows: int, run: int) -> dict[str, Measured]:
    """Reads rows that were written in small transactions, and beside them the library's events."""
    found = {}
    for size, part in ((10, 5), (1, 20)):
        count = rows // part
        gtid, offset = loaded(server, count, size)
        name = f"binlog, {size} rows per transaction" if size > 1 else "binlog, 1 row per transaction"
        found[f"{name}: source to topic"] = source(server, bootstrap, f"binlog-{size}-{run}", count, offset)
        found[f"{name}: mysql-replication, rows left alone"] = library(
            server, count, gtid, size, decode=False
        )
    return found


def one_run(server: MariaDB, bootstrap: str, rows: int, run: int) -> dict[str, Measured]:
    gtid, offset = loaded(server, rows)
    batch = envelopes(server)
    steps: dict[str, Callable[[], Measured]] = {
        "binlog: source to topic": lambda: source(server, bootstrap, f"binlog-{run}", rows, offset),
        "binlog: mysql-replication, rows decoded": lambda: library(server, rows, gtid, decode=True),
        "binlog: mysql-replication, rows left alone": lambda: library(server, rows, gtid, decode=False),
        "snapshot: source to topic": lambda: source(server, bootstrap, f"snapshot-{run}", rows, None),
        "snapshot: PyMySQL cursor that drops its rows": lambda: cursor(server, rows),
        "envelope to JSON: columns": lambda: converted(batch, rows, "columns"),
        "envelope to JSON: structs": lambda: converted(batch, rows, "structs"),
        "envelope to JSON: orjson of the same dicts": lambda: converted(batch, rows, "orjson"),
    }
    found = {}
    for name in list(steps)[:: -1 if run % 2 else 1]:
        found[name] = steps[name]()
        said = ", ".join(f"{k}={v:.2f}" for k, v in found[name].items())
        print(f"run {run + 1} {name}: {said}", flush=True)
    return {name: found[name] for name in steps}


def table(runs: list[dict[str, Measured]]) -> str:
    """Returns medians, with the least and the most CPU of all runs."""
    lines = ["| | rows/s | CPU, µs per row | least to most | of it: " + ", ".join(STAGES) + " |", "|---|---|---|---|---|"]  # fmt: skip
    for name in runs[0]:
        cpus = [run[name]["cpu"] for run in runs]
        rate = statistics.median(run[name]["rate"] for run in runs)
        stages = [statistics.median(run[name][s] for run in runs) for s in STAGES if s in runs[0][name]]
        lines.append(
            f"| {name} | {rate:,.0f} | {statistics.median(cpus):.1f} | {min(cpus):.1f} to {max(cpus):.1f} | "
            + ", ".join(f"{s:.1f}" for s in stages)
            + " |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--rows",
        type=int,
        default=100_000,
        help="a multiple of 1000; a fifth of it by transactions of 10, a twentieth by transactions of 1",
    )
    args = parser.parse_args()
    if reason := missing():
        print(f"no measurement: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp, MariaDB() as server:
        server.sql("CREATE DATABASE d")
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        try:
            runs = [
                one_run(server, broker.bootstrap, args.rows, number)
                | small_transactions(server, broker.bootstrap, args.rows, number)
                for number in range(args.runs)
            ]
        finally:
            broker.stop()
    text = table(runs)
    print(f"\n{text}")
    if args.write:
        about = f"`python -m bench.mysql.compare --runs {args.runs} --rows {args.rows}`, {report.machine()}; medians."
        report.write("bench/mysql", f"## MySQL source\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
