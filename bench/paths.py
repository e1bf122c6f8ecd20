"""All paths of connectors in one table: CPU per record, ours and the limit's in one run.

    python -m bench.paths [--runs 3] [--scale 1.0] [--only NAME ...] [--write]

A bench gives its figures as `report.Results`: runs by name, each with `cpu`, µs per record. A `Path` says which names are ours and
the limit. So a new bench joins by one function that returns its results, and one line in `PATHS`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File
from statistics import median

from bench import arguments, report
from bench.mysql import compare as mysql
from bench.servers import Klamm
from bench.sinks import compare as sinks
from bench.sinks import databases
from bench.sources import files
from support.mariadb import MariaDB, missing

DOCUMENTS, ROWS, LINES = 150_000, 100_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """The broker and folder of one call, how often each way runs, and by how much more or less than usual it has to do."""

    bootstrap: str
    work: File
    runs: int
    scale: float

    def count(self, usual: int) -> int:
        return int(usual * self.scale)


@dataclass(frozen=True, slots=True)
class Path:
    """A path of the table. `before` is its figure before the work on connectors' CPU, `bar` what was asked for."""

    name: str
    before: str
    bar: str
    results: Callable[[Run], report.Results]
    ours: str
    limit: str


@cache
def to_file(run: Run) -> report.Results:
    return sinks.file(run.bootstrap, run.work, run.runs, run.count(LINES))


@cache
def from_file(run: Run) -> report.Results:
    return files.compare(run.bootstrap, run.work, run.runs, run.count(LINES))


@cache
def to_elasticsearch(run: Run) -> report.Results:
    return sinks.elasticsearch(run.bootstrap, run.runs, run.count(DOCUMENTS))


@cache
def rows(run: Run) -> int:
    databases.fill_rows(run.bootstrap, run.count(ROWS))  # once for both databases
    return run.count(ROWS)


@cache
def to_mariadb(run: Run) -> report.Results:
    return databases.compare("mariadb", run.bootstrap, run.runs, rows(run))


@cache
def to_postgresql(run: Run) -> report.Results:
    return databases.compare("postgresql", run.bootstrap, run.runs, rows(run))


@cache
def from_mysql(run: Run) -> report.Results:
    count = run.count(ROWS) // 1000 * 1000
    if reason := missing():
        raise RuntimeError(reason)
    with MariaDB() as server:
        server.sql("CREATE DATABASE d")
        found = [
            mysql.one_run(server, run.bootstrap, count, number)
            | mysql.small_transactions(server, run.bootstrap, count, number)
            for number in range(run.runs)
        ]
    return {name: [each[name] for each in found] for name in found[0]}


PATHS = [
    Path("topic → Elasticsearch", "21.7", "6", to_elasticsearch, "sink", "raw bulk"),
    Path("topic → MariaDB, upserts", "18-27", "6", to_mariadb, "sink", "executemany"),
    Path("topic → PostgreSQL, upserts", "32", "5", to_postgresql, "sink", "COPY"),
    Path("topic → MariaDB, upserts and deletes", "100", "", to_mariadb, "deletes", "executemany"),
    Path("topic → PostgreSQL, upserts and deletes", "126", "", to_postgresql, "deletes", "COPY"),
    Path("binlog → topic, envelopes", "63", "25", from_mysql, "binlog: source to topic", "binlog: mysql-replication, rows left alone"),
    Path("binlog → topic, 10 rows a transaction", "51", "25", from_mysql, "binlog, 10 rows per transaction: source to topic", "binlog, 10 rows per transaction: mysql-replication, rows left alone"),
    Path("binlog → topic, 1 row a transaction", "321", "160", from_mysql, "binlog, 1 row per transaction: source to topic", "binlog, 1 row per transaction: mysql-replication, rows left alone"),
    Path("snapshot → topic, envelopes", "55", "15", from_mysql, "snapshot: source to topic", "snapshot: PyMySQL cursor that drops its rows"),
    Path("envelope → JSON", "35-57", "8", from_mysql, "envelope to JSON: columns", "envelope to JSON: orjson of the same dicts"),
    Path("file → topic", "1.4", "1", from_file, "source", "client alone"),
    Path("file → topic, JSON", "2.9", "1", from_file, "JSON", "client alone"),
    Path("topic → file", "1.4", "1", to_file, "sink", "copy"),
    Path("topic → file, JSON", "", "1", to_file, "JSON", "copy"),
]  # fmt: skip


def line(path: Path, run: Run) -> str:
    """Returns the path's line. A path whose server is not here says so."""
    try:
        found = path.results(run)
    except (SystemExit, OSError, RuntimeError) as e:
        return f"| {path.name} | {path.before} | not measured: {e} | | {path.limit} | | {path.bar} |"
    ours, limit = (median(each["cpu"] for each in found[name]) for name in (path.ours, path.limit))
    ratio = f"{ours / limit:.1f}" if limit else ""
    return f"| {path.name} | {path.before} | {ours:.2f} | {limit:.2f} | {path.limit} | {ratio} | {path.bar} |"


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of records")
    parser.add_argument("--only", nargs="*", default=[], help="words of the names of paths")
    args = parser.parse_args()
    chosen = [p for p in PATHS if not args.only or any(word in p.name for word in args.only)]
    lines = [
        "| path | before | now | limit | the limit is | now / limit | asked for |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as tmp:
        broker = Klamm(File(tmp) / "broker")
        broker.start()
        try:
            run = Run(broker.bootstrap, File(tmp), args.runs, args.scale)
            for path in chosen:
                lines.append(line(path, run))
                print(lines[-1], flush=True)
        finally:
            broker.stop()
    text = "\n".join(lines)
    print(f"\n{text}")
    if args.write:
        how = f"--runs {args.runs}" + (f" --scale {args.scale}" if args.scale != 1 else "")
        about = f"`python -m bench.paths {how}`, {report.machine()}; CPU of the task's process, µs per record, medians; ours and the limit in one run."
        report.write("bench/paths", f"## Paths of connectors\n\n{about}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
