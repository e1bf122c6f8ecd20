"""A Spark session with our formats, and the environment of its Java and Python workers."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from klamm_base.errors import KlammError
from klamm_spark.fork_server import ForkServer, is_left
from klamm_spark.java import need_java
from klamm_spark.secrets import is_secret

JAVA_ENDS_S: Final = 5.0
JAVA_GONE_S: Final = 1.0
"""The end of Java is seen at most this long after a broken connection."""
ANSWER_S: Final = 60
"""A Python process waits so long for Java's answer at its start. Spark's default of 15 s is too short on a busy
machine.
"""
_RUNNERS: Final = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": str(ANSWER_S),
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Spark sets these itself for the reader of every stream, in one map that all queries of a format share. If
they are new, the map grows while another query's tasks are serialized, which then fail
(java.io.OptionalDataException).
"""

_HUGE: Final = "-XX:-DontCompileHugeMethods"
"""Without this, Java compiles no method of more than 8,000 bytes. The method that Spark makes of a log job's
columns has twice that, and would be interpreted for ever.
"""
_TRIM: Final = "-XX:TrimNativeHeapInterval=2000"
"""Gives back what Java's compiler leaves, 100 MB and more, ms. Java before 17.0.9 does not know it, and Spark tells Java to ignore
what it does not know.
"""
_ARENAS: Final = ("MALLOC_ARENA_MAX", "2")
"""Java's compiler and librdkafka have many threads that allocate. By default glibc gives each of them a part of memory of its
own, and keeps what they free.
"""
LOCAL_FILES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""For checkpoints of this machine. Otherwise Spark asks the program readlink about links, eight times for each
file, with a new process each time. A rename on a local file system is atomic anyway.
"""

_SOCKET_DIRS_MOST: Final = 45
"""The longest folder to put the folder for sockets into. On macOS a socket's path may have 103 characters; behind this folder there are 15
for ours and 43 for the socket's name.
"""
_SOCKET_DIR: Final = "klamm."
_fork_servers: Final[list[ForkServer]] = []
_claims: Final[list[int]] = []
"""Descriptors of the folders for sockets, with a lock that ends with this process."""


class JavaEndedError(KlammError):
    """Java ended while the session was in use. Another start continues from the checkpoint."""

    def __init__(self, code: int) -> None:
        """Makes the error. `code` is negative for a signal, as in subprocess."""
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += ", by somebody, or by the system for want of memory (spark.driver.memory is the bound of Java's heap)"
        else:
            how = f"exit code {code}"
        super().__init__(
            f"Spark's Java process ended while the job ran ({how}); the next start goes on from the checkpoint"
        )


@functools.cache
def _socket_folder() -> tempfile.TemporaryDirectory[str] | None:
    """Makes a folder that no other user can enter, and that goes with this process. Returns None where there is no place for one."""
    for where in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108
        if len(where) > _SOCKET_DIRS_MOST:
            continue
        with contextlib.suppress(OSError):
            folder = tempfile.TemporaryDirectory(prefix=_SOCKET_DIR, dir=where)
            _claims.append(_claimed(folder.name))
            for other in Path(where).glob(f"{_SOCKET_DIR}*"):
                _remove_left(other)
            return folder
    return None


def _claimed(folder: str | Path) -> int:
    """Locks a folder for as long as this process lives. Raises OSError when another process has it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove_left(folder: Path) -> None:
    """Removes a folder for sockets whose process was killed."""
    with contextlib.suppress(OSError):
        names = list(folder.iterdir())
        if folder.lstat().st_uid != os.getuid() or not names or not all(is_left(n) for n in names):
            return
        fd = _claimed(folder)
        try:
            shutil.rmtree(folder)
        finally:
            os.close(fd)


def local_sockets() -> dict[str, str]:
    """Returns settings with which Java and the Python processes of this machine talk over Unix domain sockets.

    Over TCP, Java's second small message to a process waits for the receipt of the first one, which the system delays for
    40 ms: once in each task of a batch. TCP is what is left where a path would be too long for a socket.
    """
    folder = _socket_folder()
    if folder is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder.name,
    }


def defaults(master: str) -> dict[str, str]:
    """Returns settings that a job may override. A local session listens on loopback only and has no web page."""
    common = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": f"{ANSWER_S}s",
        # A query without a trigger of its own asks for new records this often; Spark's default is 10 ms.
        "spark.sql.streaming.pollingDelay": "100ms",
        # Outputs take turns (`outputs.start_output`). By default the tasks of the batch that began first come first, whoever waits.
        "spark.scheduler.mode": "FAIR",
        # Options that Spark must not show in plans and logs.
        "spark.sql.redaction.options.regex": "(?i)url|password|secret|token|jaas|api_key|hosts|\\.key",
    }
    if not master.startswith("local"):
        return common
    return (
        common
        | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",  # the default of 200 is for a cluster; every one costs a task a batch
            # Every batch describes its plan for the web page, which is off: a tenth of the planning in the long form.
            "spark.sql.ui.explainMode": "simple",
        }
    )


def prepare_environment(master: str, python_path: Iterable[str] = ()) -> None:
    """Sets JAVA_HOME and the workers' environment. Raises JavaError without a Java."""
    os.environ.update(need_java().environment())
    if master.startswith("local") or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault(*_ARENAS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    extra = [str(Path(p).resolve()) for p in python_path]
    for path in extra:
        if path not in sys.path:
            sys.path.insert(0, path)
    # Workers are processes of the Java side: they must find the modules that this process finds.
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in [*extra, *inherited] if p)


def open_session(
    name: str,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    *,
    held: Iterable[int] = (),
) -> SparkSession:
    """Starts (or gets) the process's session and registers our formats. Takes five to ten seconds.

    Java inherits the file descriptors `held`.
    """
    prepare_environment(master)
    sockets: dict[str, str] = {}
    if master.startswith("local"):
        sockets = local_sockets()
        _share_imports()
    wanted = {
        "spark.app.name": name,
        "spark.master": master,
        **defaults(master),
        **sockets,
        **(settings or {}),
    }
    wanted |= java_options(wanted)
    _start_java(wanted, tuple(held))
    before = signal.getsignal(signal.SIGINT)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    with contextlib.suppress(ValueError):  # not the main thread: Spark has set no handler either
        signal.signal(signal.SIGINT, before)
    spark.sparkContext.setLogLevel("WARN")
    for key, value in _RUNNERS.items():
        spark.sparkContext.environment.setdefault(key, value)
    register_formats(spark)
    return spark


def _share_imports() -> None:
    """Starts the fork server of this machine's Python processes, if there can be one. Java inherits its environment."""
    folder = _socket_folder()
    if SparkContext._gateway is None and folder is not None and not _fork_servers:  # noqa: SLF001
        with contextlib.suppress(OSError):
            _fork_servers.append(server := ForkServer(Path(folder.name)))
            os.environ.update(server.environment)


def java_options(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that Spark puts before `extraJavaOptions`, of the job or of spark-defaults.conf: the latter
    come last, and win.
    """
    keys = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")
    return {key: f"{_HUGE} {_TRIM} {given.get(key, '')}".strip() for key in keys}


def _start_java(settings: Mapping[str, str], held: tuple[int, ...]) -> None:
    """Starts Java with the settings on its command line, except secrets, which it gets when it runs."""
    if SparkContext._gateway is not None:  # noqa: SLF001
        return
    shown = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if not is_secret(key, value):
            shown.set(key, value)
    gateway = launch_gateway(shown, {"pass_fds": held})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def close_session(spark: SparkSession) -> None:
    """Stops the session and its Java, which then removes its temporary files."""
    with contextlib.suppress(Exception):  # Java may be gone
        spark.stop()
    java = _java()
    if java is not None:
        assert java.stdin is not None
        with contextlib.suppress(OSError):
            java.stdin.close()
        java_ended(JAVA_ENDS_S)
        java.kill()
    while _fork_servers:
        server = _fork_servers.pop()
        for name in server.environment:
            os.environ.pop(name, None)
        server.stop()


def java_ended(within_s: float) -> bool:
    """Returns whether Java has ended, or ends in this time."""
    java = _java()
    if java is None:
        return True
    try:
        java.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def ended_by_java(error: Exception) -> JavaEndedError | None:
    """Returns the meaning of a session's error when Java is gone: Python's own error only says that nobody answers."""
    java = _java()
    silent = isinstance(error, OSError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )
    if java is None or not silent or not java_ended(JAVA_GONE_S):
        return None
    assert java.returncode is not None
    return JavaEndedError(java.returncode)


def kill_java() -> None:
    """Kills Java, for an end that cannot wait. Unfinished work runs again from the checkpoint."""
    java = _java()
    if java is not None:
        java.kill()


def _java() -> subprocess.Popen[bytes] | None:
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    return getattr(gateway, "proc", None)


def register_formats(spark: SparkSession) -> None:
    """Makes `klamm`, `klamm-elasticsearch` and `klamm-sql` known to a session."""
    from klamm_spark.datasource.source import KlammDataSource
    from klamm_spark.elasticsearch import ElasticsearchDataSource
    from klamm_spark.sql import SqlDataSource

    for source in (KlammDataSource, ElasticsearchDataSource, SqlDataSource):
        spark.dataSource.register(source)
