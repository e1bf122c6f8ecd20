"""A real MariaDB for tests: row binlog with full metadata, GTID, its own files; started, stopped, killed, restarted.

The fixture `mariadb` (one server for the whole run) and `mariadb_database` (a database of its own for one test) are
known in every test folder. A test that kills the server takes a `MariaDB` of its own.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from support.connect_worker import free_port

from klamm_base.extras import how_to_install

_START_S = 60
_STOP_S = 60


def missing() -> str | None:
    """Returns why there can be no server here; None when there can."""
    for program in ("mariadbd", "mariadb-install-db"):
        if not shutil.which(program, path=_path()):
            return f"{program} is not installed (Debian: apt-get install mariadb-server)"
    try:
        import pymysql  # noqa: F401
    except ImportError:
        return f"PyMySQL is not installed: {how_to_install('mysql')}"
    return None


def require() -> None:
    """Skip the test where there is no MariaDB to start."""
    reason = missing()
    if reason:
        pytest.skip(reason)


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


class MariaDB:
    """A server process. `sql` runs a statement as root (no password) and gives its rows."""

    def __init__(self, *options: str) -> None:
        self._options = options
        # Not below pytest's directories: nobody but their owner may enter those, and the server is not root.
        self.directory = Path(tempfile.mkdtemp(prefix="klamm-mariadb-"))
        self.data = self.directory / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)

    def start(self) -> Self:
        """Start and wait until it answers; the first time, its system tables are made."""
        if not (self.data / "mysql").is_dir():
            self._run("mariadb-install-db", "--auth-root-authentication-method=normal", "--skip-test-db")
        with (self.directory / "server.out").open("ab") as out:
            self._process = subprocess.Popen(self._command("mariadbd", *self._server_options()), stdout=out, stderr=out, **self._as_user())  # fmt: skip
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(Exception):
                self.sql("SELECT 1")
                return self
            assert self._process.poll() is None, f"MariaDB ended:\n{self.log}"
            assert time.monotonic() < deadline, f"MariaDB does not answer:\n{self.log}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """kill -9: nothing is flushed, connections break."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and remove its files."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, database: str | None = None, **more: Any) -> Any:
        """Returns a PyMySQL connection as root, autocommit on unless said otherwise."""
        import pymysql

        settings = {
            "autocommit": True,
            "charset": "utf8mb4",
            "connect_timeout": 60,
            "local_infile": True,
        } | more
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database, **settings)

    def sql(self, statement: str, args: Sequence[Any] | None = None, *, database: str | None = None) -> list[tuple[Any, ...]]:  # fmt: skip
        """Run one statement on a connection of its own."""
        with contextlib.closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, args)
            return list(cursor.fetchall())

    @property
    def log(self) -> str:
        texts = [p.read_text(errors="replace") for p in (self.directory / "server.out",) if p.exists()]
        return "".join(texts)[-5000:]

    def _server_options(self) -> list[str]:
        return [
            f"--socket={self.directory / 's.sock'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--server-id=1",
            f"--log-bin={self.data / 'binlog'}",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--binlog-row-metadata=FULL",
            "--gtid-strict-mode=1",
            "--innodb-flush-log-at-trx-commit=1",
            "--sync-binlog=1",
            "--innodb-buffer-pool-size=64M",
            "--character-set-server=utf8mb4",
            "--local-infile=1",
            *self._options,
        ]

    def _command(self, program: str, *options: str) -> list[str]:
        found = shutil.which(program, path=_path())
        assert found is not None, f"{program} was there a moment ago"
        # In /tmp itself, the names of MariaDB's temporary tables are those of every other server on this machine.
        return [found, "--no-defaults", f"--datadir={self.data}", f"--tmpdir={self.directory}", *options]

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _run(self, program: str, *options: str) -> None:
        done = subprocess.run(
            self._command(program, *options), capture_output=True, text=True, check=False, cwd=self.directory, **self._as_user()
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}\n{done.stderr}"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_exc: object) -> None:
        self.remove()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Yields a server for the whole run. Tests must not stop it or change its global settings."""
    require()
    with MariaDB() as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariaDB) -> Iterator[str]:
    """Yields the name of an empty database, dropped after the test."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    mariadb.sql(f"CREATE DATABASE {name}")
    yield name
    mariadb.sql(f"DROP DATABASE {name}")
