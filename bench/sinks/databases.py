"""Topic to MariaDB and to PostgreSQL, upserts and deletes: the task's CPU by stage, beside the limits, alternating in one run.

    python -m bench.sinks.databases [--runs 3] [--rows 200000] [--only mariadb|postgresql] [--write]

One of Klamm's brokers, a genuine server, one partition; the task runs in a process of its own (`bench.sinks.task`) with
JsonConverter for keys and values. Rows have an integer key and five columns (BIGINT, VARCHAR, DOUBLE, BOOLEAN, TEXT), all new. Of the
records of `deletes`, each second one deletes a row that was upserted before.
The limits get the same rows as Python's objects and write them in transactions of 3000, in this process:

- executemany: the driver's, of the same upsert;
- LOAD DATA, COPY: the rows' text to a temporary table, and one INSERT … SELECT. No sink may do the former: it cuts values off.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import orjson
from bench import arguments, report
from bench.servers import Klamm
from bench.sinks.compare import ROWS, alternate, fill, table, task
from support.mariadb import MariaDB
from support.postgresql import PostgreSQL

JSON = "org.apache.kafka.connect.json.JsonConverter"
SINK = {
    "connector.class": "SqlSink",
    "topics": "rows",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "consumer.override.max.poll.records": "3000",
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
}
DELETES = {"topics": "changes", "delete.enabled": "true"}
COLUMNS = ("id", "n", "name", "price", "active", "note")
TYPES = "id BIGINT PRIMARY KEY, n BIGINT, name VARCHAR(60), price {double}, active BOOLEAN, note TEXT"
BATCH = 3000
Figures = dict[str, float]


def value(number: int) -> dict[str, Any]:
    return {"n": number * 7, "name": f"customer {number}", "price": number / 7, "active": number % 2 == 0, "note": "it's " + "x" * 60}  # fmt: skip


def rows(count: int) -> Iterator[list[tuple[Any, ...]]]:
    for begin in range(0, count, BATCH):
        yield [(n, *value(n).values()) for n in range(begin, min(begin + BATCH, count))]


def limit(count: int, write: Callable[[list[tuple[Any, ...]]], object]) -> Figures:
    """Returns the figures of `write` for all rows; making the rows is not in them."""
    cpu = seconds = 0.0
    for batch in rows(count):
        before, begin = time.process_time(), time.monotonic()
        write(batch)
        cpu += time.process_time() - before
        seconds += time.monotonic() - begin
    spent = cpu / count * 1e6
    return {row.key: 0.0 for row in ROWS} | {"rate": count / seconds, "cpu": spent, "connector": spent}


def mariadb_limits(server: MariaDB, count: int) -> dict[str, Callable[[int], Figures]]:
    changes = ", ".join(f"{name} = VALUES({name})" for name in COLUMNS[1:])

    def executemany(_run: int) -> Figures:
        fresh_mariadb(server)
        marks = ", ".join(["%s"] * len(COLUMNS))
        statement = (
            f"INSERT INTO rows_ ({', '.join(COLUMNS)}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {changes}"
        )
        with server.connect("d", autocommit=False) as connection, connection.cursor() as cursor:
            return limit(count, lambda batch: (cursor.executemany(statement, batch), connection.commit()))

    def load_data(_run: int) -> Figures:
        fresh_mariadb(server)
        text = Path(tempfile.mkdtemp(prefix="klamm-load-")) / "rows"
        with server.connect("d", autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE loaded LIKE rows_")

            def write(batch: list[tuple[Any, ...]]) -> None:
                lines = ["\t".join([str(n), str(m), name, repr(price), "1" if yes else "0", note]) for n, m, name, price, yes, note in batch]  # fmt: skip
                text.write_text("\n".join(lines))
                cursor.execute(f"LOAD DATA LOCAL INFILE '{text}' INTO TABLE loaded")
                cursor.execute(f"INSERT INTO rows_ SELECT * FROM loaded AS l ON DUPLICATE KEY UPDATE {', '.join(f'{n} = l.{n}' for n in COLUMNS[1:])}")  # fmt: skip
                cursor.execute("DELETE FROM loaded")
                connection.commit()

            return limit(count, write)

    return {"executemany": executemany, "LOAD DATA": load_data}


def postgresql_limits(server: PostgreSQL, count: int) -> dict[str, Callable[[int], Figures]]:
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS[1:])
    tail = f"ON CONFLICT (id) DO UPDATE SET {changes}"

    def executemany(_run: int) -> Figures:
        fresh_postgresql(server)
        marks = ", ".join(["%s"] * len(COLUMNS))
        with server.connect("d") as connection, connection.cursor() as cursor:
            connection.autocommit = False
            statement = f"INSERT INTO rows_ ({', '.join(COLUMNS)}) VALUES ({marks}) {tail}"
            return limit(count, lambda batch: (cursor.executemany(statement, batch), connection.commit()))

    def copy(_run: int) -> Figures:
        fresh_postgresql(server)
        with server.connect("d") as connection, connection.cursor() as cursor:
            connection.autocommit = False
            cursor.execute("CREATE TEMPORARY TABLE loaded (LIKE rows_)")

            def write(batch: list[tuple[Any, ...]]) -> None:
                text = io.StringIO()
                text.writelines(["\t".join([str(n), str(m), name, repr(price), "t" if yes else "f", note]) + "\n" for n, m, name, price, yes, note in batch])  # fmt: skip
                with cursor.copy("COPY loaded FROM STDIN") as copying:
                    copying.write(text.getvalue())
                cursor.execute(f"INSERT INTO rows_ SELECT * FROM loaded {tail}")
                cursor.execute("TRUNCATE loaded")
                connection.commit()

            return limit(count, write)

    return {"executemany": executemany, "COPY": copy}


def fresh_mariadb(server: MariaDB) -> None:
    server.sql("CREATE DATABASE IF NOT EXISTS d")
    server.sql(f"CREATE OR REPLACE TABLE d.rows_ ({TYPES.format(double='DOUBLE')})")


def fresh_postgresql(server: PostgreSQL) -> None:
    if not server.sql("SELECT 1 FROM pg_database WHERE datname = 'd'"):
        server.sql("CREATE DATABASE d")
    server.sql("DROP TABLE IF EXISTS rows_", "d")
    server.sql(f"CREATE TABLE rows_ ({TYPES.format(double='DOUBLE PRECISION')})", "d")


def fill_rows(bootstrap: str, count: int) -> None:
    fill(bootstrap, "rows", count, lambda n: orjson.dumps(value(n)), str)
    fill(bootstrap, "changes", count, lambda n: None if n % 2 else orjson.dumps(value(n)), lambda n: str(n - n % 2 * 3))  # fmt: skip


def compare(kind: str, bootstrap: str, runs: int, count: int) -> report.Results:
    server: Any = MariaDB("--skip-log-bin") if kind == "mariadb" else PostgreSQL()
    fresh = fresh_mariadb if kind == "mariadb" else fresh_postgresql
    limits = mariadb_limits if kind == "mariadb" else postgresql_limits
    with server:
        user = "root" if kind == "mariadb" else "klamm"
        target = {"connection.url": f"jdbc:{kind}://127.0.0.1:{server.port}/d", "connection.user": user, "table.name.format": "rows_"}  # fmt: skip

        def sink(name: str, last: int) -> Callable[[int], Figures]:
            def run(number: int) -> Figures:
                fresh(server)
                arrived = lambda: bool(server.sql(f"SELECT 1 FROM rows_ WHERE id = {last}", database="d"))  # noqa: E731
                more = DELETES if name == "deletes" else {}
                return task(bootstrap, f"{kind}-{name}-{number}", SINK | target | more, count, arrived)

            return run

        fresh(server)
        upserts, deletes = sink("sink", count - 1), sink("deletes", (count - 1) // 2 * 2)
        return alternate(runs, {"sink": upserts, **limits(server, count), "deletes": deletes})


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", choices=("mariadb", "postgresql"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        broker = Klamm(Path(tmp) / "broker")
        broker.start()
        try:
            fill_rows(broker.bootstrap, args.rows)
            kinds = [args.only] if args.only else ["mariadb", "postgresql"]
            parts = [
                f"### To {kind} ({args.rows} upserts)\n\n{table(compare(kind, broker.bootstrap, args.runs, args.rows))}"
                for kind in kinds
            ]
        finally:
            broker.stop()
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if args.write:
        about = f"`python -m bench.sinks.databases --runs {args.runs} --rows {args.rows}`, {report.machine()}; medians."
        report.write("bench/sinks/databases", f"## SQL sink: a task's CPU by stage\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
