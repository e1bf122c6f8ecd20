"""A real PostgreSQL for tests, with its own files.

The fixtures `postgresql` (one server for the whole run) and `postgresql_database` (a database of its own for one test) are
known in every test folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from support.connect_worker import free_port

from klamm_base.extras import how_to_install

_START_S = 60


def missing() -> str | None:
    """Returns why there can be no server here; None when there can."""
    for program in ("initdb", "postgres"):
        if not _program(program):
            return f"{program} is not installed (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return f"psycopg is not installed: {how_to_install('postgresql')}"
    return None


def require() -> None:
    """Skip the test where there is no PostgreSQL to start."""
    reason = missing()
    if reason:
        pytest.skip(reason)


def _program(name: str) -> str | None:
    """Returns a program's path. Debian keeps those of a server outside of PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)]))


class PostgreSQL:
    """A server process. `sql` runs a statement as the superuser `klamm` (no password) and gives its rows."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.directory = Path(tempfile.mkdtemp(prefix="klamm-postgresql-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None  # no server starts as root
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)

    def start(self) -> Self:
        """Start and wait until it answers; the first time, its files are made."""
        data = self.directory / "data"
        if not data.is_dir():
            options = ("--username=klamm", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
            made = subprocess.run([str(_program("initdb")), f"--pgdata={data}", *options], capture_output=True, text=True, check=False, **self._as_user())  # fmt: skip
            assert made.returncode == 0, f"initdb: {made.stdout}\n{made.stderr}"
        command = [str(_program("postgres")), "-D", str(data), "-p", str(self.port), "-k", str(self.directory), "-c", "listen_addresses=127.0.0.1", *self._options]  # fmt: skip
        with (self.directory / "server.out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, **self._as_user())
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(Exception):
                self.sql("SELECT 1")
                return self
            assert self._process.poll() is None, f"PostgreSQL ended:\n{self.log}"
            assert time.monotonic() < deadline, f"PostgreSQL does not answer:\n{self.log}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop it; SIGINT ends all connections."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(60)
        self._process = None

    def remove(self) -> None:
        """Stop it and remove its files."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> Any:
        """Returns a connection of psycopg, autocommit on."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="klamm", dbname=database, autocommit=True
        )

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with contextlib.closing(self.connect(database)) as connection:
            found = connection.execute(statement)
            return list(found.fetchall()) if found.description else []

    @property
    def log(self) -> str:
        return (self.directory / "server.out").read_text(errors="replace")[-5000:]

    def _as_user(self) -> dict[str, Any]:
        place: dict[str, Any] = {"cwd": self.directory}
        if self._user is None:
            return place
        return place | {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_exc: object) -> None:
        self.remove()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Yields a server for the whole run. Tests must not stop it or change its settings."""
    require()
    with PostgreSQL("-c", "fsync=off") as server:
        yield server


@pytest.fixture
def postgresql_database(postgresql: PostgreSQL) -> Iterator[str]:
    """Yields the name of an empty database, dropped after the test."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    postgresql.sql(f"CREATE DATABASE {name}")
    yield name
    postgresql.sql(f"DROP DATABASE {name} WITH (FORCE)")
