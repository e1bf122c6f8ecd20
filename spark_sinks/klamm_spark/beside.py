"""Files that Klamm keeps beside a job's checkpoint, and the checkpoint's own files.

Local directories are read and written directly; others (s3a://…, hdfs://…) through Spark's file systems.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from klamm_base.files import make_private_folder, write_atomically

log = logging.getLogger(__name__)

PLAN: Final = "klamm-plan.json"
"""The form of the queries that wrote the checkpoint, by output."""
STATUS: Final = "klamm-status.json"
"""The job's last status, for `klamm spark status`."""
SCHEMA: Final = "klamm-schema.json"
"""The schema of the arriving values, by topic: for `schema = "infer"` and for drift."""
POSITION: Final = "klamm-position.json"
"""The place from which batch reads continue."""
_FILE: Final = re.compile(r"file:(?://)?(/.*)")
OURS: Final = (PLAN, STATUS, SCHEMA, POSITION)


class Files(Protocol):
    """A directory. Names may have slashes. A missing file reads as None, a missing directory has no names. All
    methods raise OSError.
    """

    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, data: bytes) -> None: ...
    def names(self, folder: str) -> list[str]: ...


class LocalFiles:
    """A directory of this machine. A file is replaced as a whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, name: str) -> bytes | None:
        try:
            return (self.directory / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        target = self.directory / name
        make_private_folder(target.parent)
        write_atomically(target, data, sync=durable, shared=True)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(p.name for p in (self.directory / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


_RENAMING: Final = frozenset({"hdfs", "viewfs", "file"})
"""File systems that replace a file by one rename. Object stores copy to rename, but show no file before it is
closed.
"""


class HadoopFiles:
    """A directory that Spark reaches. `spark` is a session."""

    def __init__(self, spark: Any, base: str) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001
        self._path = self._jvm.org.apache.hadoop.fs.Path
        self._base = base.rstrip("/")
        self._settings = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        self._system = self._path(self._base).getFileSystem(self._settings)
        self._replacing: Any = None

    def read(self, name: str) -> bytes | None:
        path = self._path(f"{self._base}/{name}")
        with _refusals(path):
            if not self._system.exists(path):
                return None
            with closing(self._system.open(path)) as stream:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def write(self, name: str, data: bytes) -> None:
        """Replaces a file: a reader finds the former content or this one, even after a kill."""
        path, content = self._path(f"{self._base}/{name}"), bytearray(data)
        with _refusals(path):
            if self._system.getUri().getScheme() not in _RENAMING:
                with closing(self._system.create(path, True)) as stream:
                    stream.write(content)
                return
            self._system.mkdirs(path.getParent())
            stream = self._replacer().createAtomic(path, True)
            try:
                stream.write(content)
            except BaseException:
                stream.cancel()
                raise
            stream.close()

    def names(self, folder: str) -> list[str]:
        path = self._path(f"{self._base}/{folder}")
        with _refusals(path):
            if not self._system.exists(path):
                return []
            return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def _replacer(self) -> Any:
        """Returns Spark's writer of offsets, which renames. It has a connection of its own, so there is only one."""
        if self._replacing is None:
            spark_files = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
            self._replacing = spark_files.CheckpointFileManager.create(self._path(self._base), self._settings)
        return self._replacing


@contextmanager
def _refusals(path: Any) -> Iterator[None]:
    """Turns Java's errors into OSError."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as e:
        said = str(getattr(e, "java_exception", None) or e).partition("\n")[0]
        raise OSError(f"{path.toString()}: {said}") from e


def local_place(checkpoint: str) -> Path | None:
    """Returns the directory of a checkpoint of this machine; None for another file system's."""
    if (found := _FILE.fullmatch(checkpoint)) is not None:
        return Path(found[1])
    return None if "://" in checkpoint else Path(checkpoint).expanduser().resolve()


def files_of(checkpoint: str, spark: Any = None) -> Files:
    """Returns the directory of a checkpoint. Raises ValueError for a remote one without a session."""
    place = local_place(checkpoint)
    if place is not None:
        return LocalFiles(place)
    if spark is None:
        raise ValueError(f"{checkpoint} is reached through Spark only")
    return HadoopFiles(spark, checkpoint)


def read_json(files: Files, name: str) -> dict[str, Any]:
    """Reads a JSON file. Returns an empty dict for a missing file, and, with a warning, for an unreadable one."""
    data = files.read(name)
    if data is None:
        return {}
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    log.warning("%s beside the checkpoint is damaged; the job continues as if it were missing", name)
    return {}


def write_json(files: Files, name: str, data: dict[str, Any]) -> None:
    files.write(name, json.dumps(data, indent=1, default=str).encode())


def last_number(names: list[str]) -> int | None:
    """Returns the highest of the names that are numbers: `offsets/7`, `_spark_metadata/9.compact`."""
    numbers = [int(head) for n in names if (head := n.removesuffix(".compact")).isdecimal()]
    return max(numbers, default=None)
