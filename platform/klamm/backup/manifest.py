"""Manifests as files: a line of JSON that `list` shows, and the state as compressed JSON, encrypted if the folder is. Pure.

A manifest names the one before it with that file's SHA-256. So the chain shows a manifest that was changed, or taken out from between
two others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from klamm.backup.errors import DamagedError
from klamm.backup.keys import FolderKey
from klamm.backup.model import State, as_json, from_json

FORMAT: Final = 1
FOLDER: Final = "manifests"
DATA: Final = "data"
STATE_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a manifest. `records` and `size` are those of all its chunks, `added` the bytes that are new in it."""

    format: int
    id: str
    cluster_id: str
    taken_ms: int
    topics: int
    partitions: int
    records: int
    size: int
    added: int
    state_bytes: int
    key_id: str = ""
    previous: str = ""
    previous_sha256: str = ""
    sha256: str = ""

    def line(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that was read. `digest` is the SHA-256 of the file."""

    header: Header
    digest: str
    body: bytes

    @property
    def id(self) -> str:
        return self.header.id

    def state(self, key: FolderKey | None) -> State:
        """Return the state. With a key only that vouches for it. Raises DamagedError."""
        from cramjam import zstd

        body = self.body
        place = replace(self.header, sha256="").line()
        try:
            if self.header.key_id:
                if key is None:
                    raise DamagedError(f"manifest {self.id}: it is encrypted, but the folder has no key")
                body = key.decrypt(body, place)
            elif key is not None:
                raise DamagedError(
                    f"manifest {self.id}: it is not encrypted, but the folder is, so anybody may have written it"
                    " (`klamm backup restore --allow-plain` takes it)"
                )
            if self.header.state_bytes > STATE_BYTES_MAX:
                raise DamagedError(f"manifest {self.id}: a state of {self.header.state_bytes} bytes")
            text = bytearray(self.header.state_bytes)
            zstd.decompress_into(body, text)
            return from_json(json.loads(text), State, f"manifest {self.id}")
        except (ValueError, RuntimeError) as e:
            raise DamagedError(f"manifest {self.id}: {e}") from None


def new_id(now_ms: int, former: str) -> str:
    """Return the id of a backup: its time, later than the former one's even if the clock went back."""
    if former:
        now_ms = max(now_ms, id_ms(former) + 1)
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.") + f"{now_ms % 1000:03d}Z"


def id_ms(name: str) -> int:
    """Return the time of a backup's id. Raises ValueError."""
    found = datetime.strptime(name, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)


def is_id(name: str) -> bool:
    """Return whether a file's name is that of a manifest."""
    try:
        id_ms(name)
    except ValueError:
        return False
    return True


def encode(state: State, name: str, *, previous: Manifest | None, added: int, key: FolderKey | None) -> bytes:
    """Return a manifest's file."""
    from cramjam import zstd

    text = json.dumps(as_json(state), separators=(",", ":")).encode()
    body = bytes(zstd.compress(text, level=3))
    header = Header(
        format=FORMAT, id=name, cluster_id=state.cluster_id, taken_ms=state.taken_ms,
        topics=len(state.topics), partitions=sum(len(t.partitions) for t in state.topics),
        records=state.records, size=state.size, added=added, state_bytes=len(text),
        key_id="" if key is None else key.id,
        previous="" if previous is None else previous.id,
        previous_sha256="" if previous is None else previous.digest,
    )  # fmt: skip
    if key is not None:
        body = key.encrypt(body, header.line())
    digest = hashlib.sha256(header.line() + b"\n" + body).hexdigest()
    return replace(header, sha256=digest).line() + b"\n" + body


def decode(data: bytes, name: str) -> Manifest:
    """Return a manifest of its file. Raises DamagedError."""
    line, newline, body = data.partition(b"\n")
    try:
        told = json.loads(line)
    except ValueError:
        raise DamagedError(f"manifest {name}: its first line is no JSON") from None
    if not newline or not isinstance(told, dict):
        raise DamagedError(f"manifest {name}: it is cut")
    if told.get("format") != FORMAT:
        raise DamagedError(f"manifest {name}: format {told.get('format')}, which this release does not know")
    header = from_json(told, Header, f"manifest {name}")
    actual = hashlib.sha256(replace(header, sha256="").line() + b"\n" + body).hexdigest()
    if actual != header.sha256:
        raise DamagedError(f"manifest {name}: its SHA-256 is {actual}, it says {header.sha256}")
    if header.id != name:
        raise DamagedError(f"manifest {name}: it says that it is {header.id}")
    return Manifest(header=header, digest=hashlib.sha256(data).hexdigest(), body=body)


def check_chain(manifests: Sequence[Manifest]) -> None:
    """Raise DamagedError where a manifest is not the one that the next one followed. The first may follow one that was pruned."""
    for former, later in pairwise(manifests):
        if (later.header.previous, later.header.previous_sha256) != (former.id, former.digest):
            raise DamagedError(
                f"manifest {later.id} follows {later.header.previous or 'none'}, but {former.id} is before it: "
                "a manifest was changed or taken away"
            )
