"""The plugin packages of a worker group as its config topic tells them: Klamm's own records beside Kafka's. No I/O.

    klamm-plugins-package-NAME-VERSION   the package and its lock (`store.Record`); null: removed
    klamm-plugins-wheel-SHA256-N         the N-th part of a wheel that no index has, written before the package that needs it

Java workers log keys that they do not know and go on.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from klamm.environments.errors import BadRequirement
from klamm.environments.lock import Lock
from klamm.environments.store import Record as Package

log = logging.getLogger(__name__)

PLUGINS: Final = "klamm-plugins-"
_PACKAGE: Final = f"{PLUGINS}package-"
_WHEEL: Final = f"{PLUGINS}wheel-"
# With base64 and JSON around it a part stays under the 1 MB that a topic takes by default.
PART_BYTES: Final = 600_000
WHEEL_BYTES_MAX: Final = 32 << 20

LogRecord = tuple[str, bytes | None]


class Wheel(NamedTuple):
    """A wheel that is complete, checked against its hash."""

    file: str
    data: bytes


def package_record(package: Package) -> LogRecord:
    return _key(package.name, package.version), orjson.dumps(package.to_json())


def removal_record(package: Package) -> LogRecord:
    return _key(package.name, package.version), None


def _key(name: str, version: str) -> str:
    return f"{_PACKAGE}{name}-{version}"


def wheel_records(file: str, data: bytes) -> Iterator[LogRecord]:
    """Yields the records of a wheel in parts."""
    digest = hashlib.sha256(data).hexdigest()
    parts = range(0, len(data), PART_BYTES)
    for number, start in enumerate(parts):
        part = base64.b64encode(data[start : start + PART_BYTES]).decode()
        yield (
            f"{_WHEEL}{digest}-{number}",
            orjson.dumps({"file": file, "parts": len(parts), "data": part}),
        )


class PluginRecords:
    """The state of the records under PLUGINS, which `apply` takes in log order. `packages` by key; `parts`
    counts those of each known wheel.
    """

    def __init__(self) -> None:
        self.packages: dict[str, Package] = {}
        self.parts: dict[str, int] = {}
        self._removed: dict[str, int | None] = {}
        self._pending: dict[str, dict[int, bytes]] = {}

    def apply(self, key: str, value: bytes | None) -> Wheel | None:
        """Take in the next record; returns the wheel that it completes, if any."""
        try:
            data = None if value is None else orjson.loads(value)
            if key.startswith(_PACKAGE):
                self._package(key, data)
            elif key.startswith(_WHEEL):
                return self._wheel(key.removeprefix(_WHEEL), data)
            else:
                log.error("ignoring record with unknown key %s in the config topic", key)
        except (BadRequirement, ValueError, KeyError, TypeError, AttributeError) as e:
            log.error("ignoring record %s: %s: %s", key, type(e).__name__, e)  # noqa: TRY400 - no bug of ours
        return None

    def removed(self, package: Package, began_ms: int) -> bool:
        """Returns whether the records say that this very package was removed, and not an earlier package of its
        name.

        `began_ms`: when reading began; a removal without the record that it removes was there before.
        """
        key = _key(package.name, package.version)
        if key not in self._removed:
            return False
        last_ms = self._removed[key]
        return package.installed_ms <= (began_ms if last_ms is None else last_ms)

    def needed(self, digest: str) -> bool:
        """Returns whether a package needs this wheel."""
        return any(digest in p.hashes for package in self.packages.values() for p in package.lock.packages)

    def orphans(self, without: Package, instead: Package | None = None) -> list[LogRecord]:
        """Returns the records that remove the wheels which only `without` needs, or needed where `instead`
        replaces it.
        """
        key = _key(without.name, without.version)
        kept = _digests([p.lock for k, p in self.packages.items() if k != key])
        if instead is not None:
            known = self.packages.get(key)
            without, kept = known or instead, kept | _digests([instead.lock])
        return [
            (f"{_WHEEL}{digest}-{number}", None)
            for digest in sorted(_digests([without.lock]) - kept)
            for number in range(self.parts.get(digest, 0))
        ]

    def _package(self, key: str, data: Mapping[str, Any] | None) -> None:
        if data is None:
            known = self.packages.pop(key, None)
            self._removed[key] = None if known is None else known.installed_ms
        else:
            package = Package.from_json(data)
            if key != _key(package.name, package.version):
                raise ValueError(f"its key is not that of {package.root}")
            self.packages[key] = package
            self._removed.pop(key, None)

    def _wheel(self, part: str, data: Mapping[str, Any] | None) -> Wheel | None:
        digest, _, number = part.rpartition("-")
        if data is None:
            self.parts.pop(digest, None)
            self._pending.pop(digest, None)
            return None
        count = int(data["parts"])
        if count * PART_BYTES > WHEEL_BYTES_MAX + PART_BYTES:
            raise ValueError(f"a wheel of {count} parts is too large")
        self.parts[digest] = count
        pending = self._pending.setdefault(digest, {})
        pending[int(number)] = base64.b64decode(data["data"], validate=True)
        if set(pending) != set(range(count)):
            return None
        del self._pending[digest]
        whole = b"".join(pending[i] for i in range(count))
        if hashlib.sha256(whole).hexdigest() != digest:
            raise ValueError("the wheel does not match its hash")
        return Wheel(str(data["file"]), whole)


def decoded_wheel(text: str) -> bytes:
    """Returns the bytes of a wheel in a request. Raises ValueError with a sentence."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError(f"it is not base64 ({e})") from None
    if len(data) > WHEEL_BYTES_MAX:
        raise ValueError(
            f"it has {len(data)} bytes, {WHEEL_BYTES_MAX} are allowed; put it into a package index"
        )
    return data


def _digests(locks: list[Lock]) -> set[str]:
    return {h for lock in locks for p in lock.packages if p.file is not None for h in p.hashes}
