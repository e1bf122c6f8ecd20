"""A stranger's package, installed while the worker runs: its source and sink are POSTed and move real records."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

from support.broker import wait_until
from support.connect_worker import WorkerProcess, worker_properties

EXAMPLE = Path(__file__).parents[2] / "examples/plugin"
SOURCE = "klamm_example.datagen.DatagenSourceConnector"
RECORDS = 200


def install(target: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
        "--no-build-isolation", "--no-index", "--target", str(target), str(EXAMPLE),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rows(database: Path) -> int:
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database)) as connection:
        try:
            return int(connection.execute("SELECT COUNT(*) FROM records").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the sink has not made its table yet


def test_a_package_installed_a_moment_ago_runs_without_a_restart(bootstrap, tmp_path):
    site, database, topic = tmp_path / "site", tmp_path / "out.db", f"stranger-{uuid.uuid4().hex[:8]}"
    site.mkdir()
    group = f"stranger-{uuid.uuid4().hex[:8]}"
    worker = WorkerProcess(worker_properties(bootstrap, group), tmp_path, python_path=str(site))
    try:
        worker.wait_ready()
        assert SOURCE not in [p["class"] for p in worker.get("/connector-plugins")]
        unknown = worker.create("datagen", connector__class="DatagenSource", topic=topic)
        assert unknown.status == 400

        install(site)
        source = worker.create(
            "datagen",
            connector__class="DatagenSource",
            tasks__max="1",
            topic=topic,
            rate="2000",
            count=str(RECORDS),
        )
        assert source.status == 201, source.json
        sink = worker.create(
            "to-sqlite", connector__class="SqliteSink", tasks__max="1", topics=topic, database=str(database)
        )
        assert sink.status == 201, sink.json
        worker.wait_state("datagen", "RUNNING", "RUNNING")
        wait_until(lambda: rows(database) == RECORDS, f"{RECORDS} rows in the sink's table", timeout_s=60)
        assert SOURCE in [p["class"] for p in worker.get("/connector-plugins")]
    finally:
        worker.end()
