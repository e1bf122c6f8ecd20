"""The lock of a set of packages: their exact versions, with hashes, so that every worker builds the same.
Pure.

A lock is data: JSON in the store and in the config topic, and a requirements file for the installer and
for people.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from klamm.environments.errors import BadRequirement, Unresolvable
from klamm.environments.names import check_pin

_ID_CHARS: Final = 16
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.!+-]{0,254}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One distribution. `hashes` are sha256 in hex, of all files that may be installed for it. `file` is the
    name of a wheel that came from a file and that no index has; it has one hash, under which the store
    keeps it.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    file: str | None = None

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "version": self.version, "hashes": list(self.hashes)}
        return data if self.file is None else data | {"file": self.file}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads a package. Raises BadRequirement for values that no package can have, because they go into paths
        and lines for installers.
        """
        found = cls(
            name=str(data["name"]),
            version=str(data["version"]),
            hashes=tuple(str(h) for h in data["hashes"]),
            file=data.get("file"),
        )
        check_pin(found.name, found.version)
        if not found.hashes or not all(map(_SHA256.fullmatch, found.hashes)):
            raise BadRequirement(f"{found.pin}: hashes must be sha256 in hex, one at least")
        if found.file is not None and _FILE.fullmatch(found.file) is None:
            raise BadRequirement(f"{found.pin}: {found.file!r} is no name of a wheel or source archive")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A resolved set. `roots` are the packages that were asked for, as `name==version`, sorted."""

    roots: tuple[str, ...]
    packages: tuple[LockedPackage, ...]

    @property
    def key(self) -> str:
        """The set's name: its roots."""
        return "+".join(self.roots)

    def id(self, platform: str) -> str:
        """Returns the name of this lock's environment on a platform (`runtime.platform_tag`)."""
        text = json.dumps([platform, self.to_json()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_ID_CHARS]

    def to_json(self) -> dict[str, Any]:
        return {"roots": list(self.roots), "packages": [p.to_json() for p in self.packages]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        packages = tuple(LockedPackage.from_json(p) for p in data["packages"])
        return cls(roots=tuple(str(r) for r in data["roots"]), packages=packages)

    def requirements(self, wheels: Path | None = None) -> str:
        """Returns the lock as a requirements file. Wheels from files are URLs below `wheels`, or names without it."""
        lines = []
        for each in sorted(self.packages, key=lambda p: p.name):
            what = each.pin
            if each.file is not None and wheels is not None:
                what = f"{each.name} @ {wheel_path(wheels, each).as_uri()}"
            lines.append(" \\\n    ".join([what, *(f"--hash=sha256:{h}" for h in each.hashes)]))
        return "".join(line + "\n" for line in lines)


def wheel_path(wheels: Path, package: LockedPackage) -> Path:
    """Returns the path under which the store keeps the wheel of a package that came from a file."""
    assert package.file is not None, "has a file"
    return wheels / package.hashes[0] / package.file


def merged(locks: Sequence[Lock]) -> Lock | None:
    """Returns the union of locks; None when they hold different versions of a package, so that a resolver must
    look.
    """
    packages: dict[str, LockedPackage] = {}
    for each in (p for lock in locks for p in lock.packages):
        known = packages.setdefault(each.name, each)
        if known != each:
            return None
    return Lock(roots=roots_of(locks), packages=_sorted(packages.values()))


def roots_of(locks: Iterable[Lock]) -> tuple[str, ...]:
    return tuple(sorted({root for lock in locks for root in lock.roots}))


def make_lock(roots: Sequence[str], packages: Iterable[LockedPackage]) -> Lock:
    """Returns a lock of the packages that a resolver found. Raises Unresolvable when a root is missing."""
    found = {p.name: p for p in packages}
    pins = []
    for root in roots:
        if root not in found:
            raise Unresolvable(f"{root} is a part of Klamm's runtime; it is no plugin package")
        pins.append(found[root].pin)
    return Lock(roots=tuple(sorted(pins)), packages=_sorted(found.values()))


def _sorted(packages: Iterable[LockedPackage]) -> tuple[LockedPackage, ...]:
    return tuple(sorted(packages, key=lambda p: p.name))
