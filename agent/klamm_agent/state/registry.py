"""The agent's state directory: registry of acknowledged positions, ledger of gaps, status, the cluster, and the lock.

`registry.json` and `status.json` are replaced as a whole, the registry with an fsync, so a reader or a crash sees the
old or the new file. `gaps.jsonl` only grows.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from klamm_agent.files.tracked import Checkpoint, Gap, Print
from klamm_base.errors import ConfigError, KlammError
from klamm_base.files import exposed, make_private_folder, write_atomically
from klamm_kafka.client import parse_bootstrap

log = logging.getLogger(__name__)

REGISTRY: Final = "registry.json"
STATUS: Final = "status.json"
CLUSTER: Final = "cluster.json"
GAPS: Final = "gaps.jsonl"
LOCK: Final = "lock"
_VERSION: Final = 1


class StateError(KlammError):
    """The state directory cannot be used."""


class StateDir:
    """The state directory, held by one agent at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.streams: dict[str, Any] = {}
        self.policy: list[dict[str, Any]] = []
        self.fingerprint: str | None = None
        self.kept_cluster: tuple[str, str] | None = None
        """The result of `cluster`, or what was saved last; None before both."""
        self.knows_cluster = False
        """True when `cluster.json` has it: the disk may be full."""
        try:
            make_private_folder(path)
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise StateError(f"state_dir {path} cannot be used: {e.strerror}") from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise StateError(
                f"state_dir {path} is in use by another agent (pid {holder or 'unknown'}): each needs its own"
            ) from None
        try:
            os.pwrite(
                self._lock, f"{os.getpid():<19}\n".encode(), 0
            )  # overwrites the old one, which works on a full disk too
        except OSError as e:
            os.close(self._lock)
            raise StateError(f"state_dir {path} cannot be used: {e.strerror}") from e

        if (said := exposed(path)) is not None:
            log.warning("%s", said)

    @property
    def path(self) -> Path:
        return self._path

    def close(self) -> None:
        os.close(self._lock)

    def load(self) -> list[Checkpoint] | None:
        """Returns the checkpoints of the last run; None when there was none. Sets `streams` (checkpoints of inputs that are no files) and
        `policy` (counts of what the configuration left out), and `fingerprint` (of the file; None when there is none).
        """
        path = self._path / REGISTRY
        self.fingerprint = None
        try:
            data = path.read_bytes()
            document = json.loads(data)
            self.fingerprint = _fingerprint(data)
            if document["version"] != _VERSION:
                raise StateError(f"{path} is of version {document['version']}; this agent reads {_VERSION}")
            self.streams = dict(document.get("streams", {}))
            self.policy = list(document.get("policy", []))
            return [checkpoint_of(f) for f in document["files"]]
        except FileNotFoundError:
            return None
        except OSError as e:
            raise StateError(f"{path} cannot be read: {e.strerror}") from e
        except (ValueError, LookupError, TypeError) as e:
            raise StateError(
                f"{path} is damaged ({e}): move it away to read all files from their beginning again"
            ) from e

    def save(
        self,
        checkpoints: Iterable[Checkpoint],
        streams: dict[str, Any] | None = None,
        policy: list[dict[str, Any]] | None = None,
        *,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Replaces the registry. `announce` gets the fingerprint of the new one before. Raises StateError."""
        document: dict[str, Any] = {"version": _VERSION, "files": [entry_of(c) for c in checkpoints]}
        if streams:
            document["streams"] = streams
        if policy:
            document["policy"] = policy
        text = json.dumps(document, separators=(",", ":"))
        fingerprint = _fingerprint(text.encode())
        announce(fingerprint)
        self._replace(REGISTRY, text, durable=True)
        self.fingerprint = fingerprint

    def cluster(self) -> tuple[str, str] | None:
        """Returns the id of the cluster that lines went to last, and the bootstrap servers of then; None when there is none. Raises StateError."""
        if self.kept_cluster is not None:
            return self.kept_cluster
        path = self._path / CLUSTER
        try:
            document = json.loads(path.read_bytes())
            found = document["cluster_id"], document["bootstrap_servers"]
            if not all(isinstance(text, str) and text for text in found):
                raise ValueError
            parse_bootstrap(found[1])
        except FileNotFoundError:
            return None
        except OSError as e:
            raise StateError(f"{path} cannot be read: {e.strerror}") from e
        except (ValueError, LookupError, TypeError, ConfigError) as e:
            raise StateError(
                f"{path} is damaged, so it is not known which cluster is to have the lines: set cluster_id in agent.toml"
            ) from e
        self.kept_cluster, self.knows_cluster = found, True
        return self.kept_cluster

    def save_cluster(self, cluster_id: str, bootstrap: str) -> None:
        """Replaces what `cluster` returns. Raises StateError."""
        self.kept_cluster, self.knows_cluster = (cluster_id, bootstrap), False
        text = json.dumps({"cluster_id": cluster_id, "bootstrap_servers": bootstrap})
        self._replace(CLUSTER, text, durable=True)
        self.knows_cluster = True

    def write_status(self, status: dict[str, Any]) -> None:
        self._replace(STATUS, json.dumps(status), durable=False, keep_mode=True)  # monitoring may read it

    def add_gaps(self, gaps: Iterable[Gap], at: str) -> None:
        """Appends to the ledger; `at` is the time in ISO form."""
        lines = [
            json.dumps({
                "at": at, "path": g.path, "dev": g.inode[0], "inode": g.inode[1],
                "from": g.start, "to": g.end, "reason": g.reason,
                **({"lines": g.lines} if g.lines else {}), **({"policy": True} if g.policy else {}),
            }) + "\n"
            for g in gaps
        ]  # fmt: skip
        try:
            fd = os.open(self._path / GAPS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                _append(fd, "".join(lines).encode())
            finally:
                os.close(fd)
        except OSError as e:
            raise StateError(f"{self._path / GAPS} cannot be written: {e.strerror}") from e

    def _replace(self, name: str, text: str, *, durable: bool, keep_mode: bool = False) -> None:
        path = self._path / name
        try:
            write_atomically(path, text.encode(), sync=durable, keep_mode=keep_mode)
        except OSError as e:
            raise StateError(f"{path} cannot be written: {e.strerror}") from e


def _append(fd: int, data: bytes) -> None:
    """Appends all of `data`, or nothing: a disk that becomes full takes a part without an error."""
    before = os.fstat(fd).st_size
    try:
        written = 0
        while written < len(data):
            written += os.write(fd, data[written:])
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, before)
        raise


def _fingerprint(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def entry_of(c: Checkpoint) -> dict[str, Any]:
    """Returns a checkpoint as the registry has it."""
    # A path need not be UTF-8: JSON writes surrogates as escapes
    entry = {
        "path": c.path, "dev": c.inode[0], "inode": c.inode[1], "offset": c.offset,
        "head": [c.head.length, c.head.digest], "tail": [c.tail.length, c.tail.digest],
    }  # fmt: skip
    if c.inside:
        entry["inside"] = True
    if c.generation:
        entry["generation"] = c.generation
    if c.size > c.offset:
        entry["size"] = c.size
    if c.packed is not None:
        entry |= {"packed": c.packed, "total": c.total}
    return entry


def checkpoint_of(entry: dict[str, Any]) -> Checkpoint:
    """Returns the checkpoint of an entry of the registry."""
    return Checkpoint(
        path=str(entry["path"]),
        inode=(int(entry["dev"]), int(entry["inode"])),
        offset=int(entry["offset"]),
        head=Print(int(entry["head"][0]), str(entry["head"][1])),
        tail=Print(int(entry["tail"][0]), str(entry["tail"][1])),
        inside=bool(entry.get("inside", False)),
        packed=int(entry["packed"]) if "packed" in entry else None,
        total=int(entry.get("total", -1)),
        size=int(entry.get("size", -1)),
        generation=int(entry.get("generation", 0)),
    )
