"""`ElasticsearchServer`: a genuine Elasticsearch node on the loopback interface, with its own data and port.

    found = find(Path.home() / ".cache/klamm-elasticsearch")
    if isinstance(found, Installation):
        with ElasticsearchServer(found) as server:
            ...server.url...

It downloads nothing: `find` looks for an installation (a directory with `server/` in it, or an unpacked archive of
Elasticsearch) and for a Java that is new enough, and says why there is none. A test can stop, kill and start the node again on
the same data and port. The node ends with the process that started it. Elasticsearch refuses to run as root, so root runs it as
user `nobody` (65534).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from klamm.testing.elasticsearch_setup import Credentials, Tls, answers, write_config
from klamm_base.errors import KlammError

START_S: Final = 300.0
STOP_S: Final = 120.0
"""A busy machine takes many times the usual 15 s and 1 s. If the server's process ends, we notice at once."""
NOBODY: Final = 65534
LAUNCHER_MEMORY: Final = ("-Xms4m", "-Xmx64m", "-XX:+UseSerialGC")
_NOT_THE_SERVERS: Final = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JAVA_HOME", "ES_JAVA_HOME", "CLI_JAVA_OPTS")


class ElasticsearchFailed(KlammError):
    """The server did not start or stop as it should. Carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An unpacked Elasticsearch and the Java home that runs it."""

    home: Path
    version: str
    java_home: Path


def find(directory: Path) -> Installation | str:
    """Returns the installation in `directory`, or a sentence that says why none can be used."""
    for home in (directory / "server", directory):
        for jar in home.glob("lib/elasticsearch-[0-9]*.jar"):
            version = jar.stem.removeprefix("elasticsearch-")
            needed = 17 if version.startswith("8.") else 21
            java_home = find_java(needed)
            if java_home is None:
                return f"Elasticsearch {version} needs a JDK of version {needed} or later; none on PATH or in JAVA_HOME"
            return Installation(home, version, java_home)
    return f"Elasticsearch is not installed in {directory}"


def find_java(needed: int) -> Path | None:
    """Returns the home of a Java of at least this version: from JAVA_HOME, PATH, or beside the Java on PATH."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        first = Path(on_path).resolve().parent.parent
        candidates += [first, *sorted(p for p in first.parent.iterdir() if p.is_dir())]
    return next((home for home in candidates if _java_version(home) >= needed), None)


def _java_version(home: Path) -> int:
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found and (home / "bin/java").exists() else 0


class ElasticsearchServer:
    """One node. `port=0` takes a free port at the first start and keeps it for later starts.

    `directory` holds config, data and logs. By default it is temporary, and removed at the end of the `with` block. For root, user
    `nobody` must be able to reach it, and becomes its owner. `heap_mb` is the heap's limit. `settings` are added to
    elasticsearch.yml, `java_options` to the command line of its Java. `credentials` switch security on; `tls` makes it serve HTTPS as well.
    """

    def __init__(
        self,
        installation: Installation,
        directory: Path | None = None,
        *,
        port: int = 0,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        credentials: Credentials | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._user = NOBODY if os.geteuid() == 0 else None
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="klamm-elasticsearch-")
        self.directory = (directory or Path(self._temporary.name if self._temporary else "")).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._installation = installation
        self.port = port
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._java_options = tuple(java_options)
        self.credentials = credentials
        self.tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the server itself (a launcher and a tether stand before it)."""
        return int((self.directory / "es.pid").read_text())

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """The output of the server, over all its starts."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Starts the node, and returns once it answers and is at least yellow. Raises ElasticsearchFailed."""
        if self.running:
            raise ElasticsearchFailed(f"Elasticsearch on port {self.port} is running already")
        self.port = self.port or _free_port()
        home = self._prepare()
        command = [sys.executable, "-m", "klamm.testing.tether"]
        command += [] if self._user is None else ["--user", str(self._user)]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._launcher(home), "-p", str(self.directory / "es.pid")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=home,  # the launcher of 9.4 finds the server by its working folder
                env=self._environment(home),
                start_new_session=True,
            )
        self._wait_until_ready(self._process)
        return self

    def stop(self) -> None:
        """Stops the node cleanly. Does nothing when it is not running."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ElasticsearchFailed(
                f"Elasticsearch did not stop within {STOP_S:.0f} s:\n{self._tail()}"
            ) from None
        self._forget()

    def kill(self) -> None:
        """Sends SIGKILL: the server gets no chance to write anything."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            os.kill(self.pid, signal.SIGKILL)
        process.terminate()  # the launcher, which has nothing left to stop
        process.wait(STOP_S)
        self._forget()

    def restart(self) -> Self:
        """Stops cleanly and starts again on the same data and port."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            try:
                self.kill()
            finally:
                self.remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self.remove()

    def remove(self) -> None:
        """Removes the temporary directory, if there is one. The server must be stopped."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _prepare(self) -> Path:
        """Writes the configuration and hands the directory to the server's user. Returns the server's home for that user."""
        (self.directory / "es.pid").unlink(missing_ok=True)
        for name in ("config", "data", "logs", "tmp"):
            (self.directory / name).mkdir(exist_ok=True)
        settings = {
            "http.port": str(self.port),
            "transport.port": str(_free_port()),
            **self._settings,
        }
        write_config(self._installation.home, self.directory, settings, self.credentials, self.tls)
        home = self._installation.home.resolve()
        if self._user is None:
            return home
        if not _reachable(self.directory.parent):
            raise ElasticsearchFailed(
                f"{self.directory} is not reachable for user {self._user}, whom root runs Elasticsearch as: "
                "a folder above it is private"
            )
        for folder, _, files in os.walk(self.directory):
            os.chown(folder, self._user, self._user)
            for name in files:
                os.chown(Path(folder, name), self._user, self._user)
        (self.directory / "config").chmod(0o700)
        return home if _reachable(home) else self._reachable_copy(home)

    def _reachable_copy(self, home: Path) -> Path:
        """Links or copies the server's files to a place beside its data, because root's home directory is usually private."""
        copy = self.directory / "home"
        if not copy.exists():
            shutil.copytree(home, copy, copy_function=_link_or_copy)
        return copy

    def _launcher(self, home: Path) -> list[str]:
        java = str(self._installation.java_home / "bin/java")
        if (home / "lib/tools/server-launcher").is_dir():  # 9.4 and later
            return [
                java,
                *LAUNCHER_MEMORY,
                "-cp",
                f"{home}/lib/tools/server-launcher/*",
                "org.elasticsearch.server.launcher.ServerLauncher",
            ]
        return [
            java,
            *LAUNCHER_MEMORY,
            "-Dcli.name=server",
            f"-Dcli.script={home}/bin/elasticsearch",
            "-Dcli.libs=lib/tools/server-cli",
            f"-Des.path.home={home}",
            f"-Des.path.conf={self.directory}/config",
            "-Des.distribution.type=zip",
            "-Des.java.type=ES_JAVA_HOME",
            "-cp",
            f"{home}/lib/*:{home}/lib/cli-launcher/*",
            "org.elasticsearch.launcher.CliToolLauncher",
        ]

    def _environment(self, home: Path) -> dict[str, str]:
        memory = (f"-Xms{min(128, self._heap_mb)}m", f"-Xmx{self._heap_mb}m")
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_THE_SERVERS}
        return {
            "HOSTNAME": "localhost",
            **inherited,
            "ES_HOME": str(home),
            "ES_PATH_CONF": f"{self.directory}/config",
            "ES_JAVA_HOME": str(self._installation.java_home),
            "JAVA": f"{self._installation.java_home}/bin/java",
            "JAVA_TYPE": "ES_JAVA_HOME",
            "ES_DISTRIBUTION_TYPE": "zip",
            "ES_TMPDIR": str(self.directory / "tmp"),
            "HOME": str(self.directory),
            "CLI_JAVA_OPTS": " ".join(LAUNCHER_MEMORY),
            "ES_JAVA_OPTS": " ".join((*memory, *self._java_options)),
        }

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S
        while not answers(self.url, self.credentials, self.tls):
            code = process.poll()
            if code is None and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            self.kill()
            how = f"within {START_S:.0f} s" if code is None else f"(exit code {code})"
            raise ElasticsearchFailed(f"Elasticsearch did not start {how}:\n{self._tail()}")

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _tail(self) -> str:
        return "\n".join(self.log_text.splitlines()[-20:])


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _reachable(path: Path) -> bool:
    """Returns True when everybody may go through all folders on the way and look into the last one."""
    return all(p.stat().st_mode & 0o001 for p in path.parents) and path.stat().st_mode & 0o005 == 0o005


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
        Path(target).chmod(0o644)
    return target


def main(words: Sequence[str] | None = None) -> int:
    """Runs a node by hand, until Ctrl-C or SIGTERM (`python -m klamm.testing.elasticsearch`)."""
    parser = argparse.ArgumentParser(
        prog="python -m klamm.testing.elasticsearch",
        description="Run the Elasticsearch that tests/peers/fetch_elasticsearch.sh has fetched, without security, on 127.0.0.1.",
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-elasticsearch"
    where = Path(os.environ.get("ELASTICSEARCH_HOME") or cache)
    parser.add_argument("installation", nargs="?", type=Path, default=where, help=f"default: {where}")
    parser.add_argument("--port", type=int, default=9200, help="default: 9200")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep data here; default: until the end")
    parser.add_argument("--heap-mb", type=int, default=512, help="default: 512")
    given = parser.parse_args(words)
    found = find(given.installation)
    if isinstance(found, str):
        parser.error(found)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = ElasticsearchServer(found, given.data, port=given.port, heap_mb=given.heap_mb)
    try:
        server.start()
        sys.stdout.write(f"Elasticsearch {found.version} at {server.url}; Ctrl-C ends it\n")
        sys.stdout.flush()
        while server.running:
            time.sleep(0.5)
        sys.stderr.write(f"Elasticsearch ended:\n{server.log_text[-2000:]}\n")
    except KeyboardInterrupt:
        return 0
    except ElasticsearchFailed as e:
        sys.stderr.write(f"{e}\n")
    finally:
        server.stop()
        server.remove()
    return 1


if __name__ == "__main__":
    sys.exit(main())
