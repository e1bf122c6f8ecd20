"""The worker's runtime as a resolver sees it: the packages that every environment lies over.

The packages that the worker's children need (Klamm and its dependencies, without extras) are there
already. Two things tell the resolver so: empty wheels of these packages, whose versions end in
`+klamm.runtime`, and constraints. The constraints first demand exactly the installed versions, so that
environments stay small. Where that does not work, they allow what Klamm's own requirements allow. So a
plugin may bring a newer version along, but never one with which Klamm could not run.
"""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from klamm.environments.names import canonical, requirement
from klamm_base.version import __version__

SUFFIX: Final = "klamm.runtime"
_OWN: Final = "klamm"
# What only the worker itself and the command line import: a plugin may bring any version of it.
_NOT_FOR_CHILDREN: Final = frozenset({"aiohttp", "google-re2", "rich", "typer"})
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: klamm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The runtime: `versions` of its packages; `ranges`, Klamm's requirements of them; `extras`, the
    requirement lines of Klamm's own extras.
    """

    versions: Mapping[str, str]
    ranges: tuple[str, ...]
    extras: tuple[str, ...]
    extra_names: tuple[str, ...]

    def write_stubs(self, directory: Path) -> None:
        """Write the empty wheels, for `--find-links`."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, version in self.versions.items():
            own = name == _OWN
            _write_stub(
                directory, name, _marked(version), self.extras if own else (), self.extra_names if own else ()
            )

    def exact(self) -> str:
        """Returns constraints that allow exactly the installed versions."""
        return "".join(f"{name}=={_marked(version)}\n" for name, version in self.versions.items())

    def allowed(self) -> str:
        """Returns constraints that allow every version with which Klamm can run."""
        return f"{_OWN}=={_marked(self.versions[_OWN])}\n" + "".join(f"{line}\n" for line in self.ranges)

    def provides(self, version: str) -> bool:
        """Returns whether a resolved version is the runtime's own."""
        return version.endswith("+" + SUFFIX)


def platform_tag() -> str:
    """Returns the interpreter and platform, on which environments depend."""
    return f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"


def current() -> Runtime:
    """Returns the runtime of this process."""
    versions: dict[str, str] = {_OWN: __version__}
    ranges: list[str] = []
    try:
        own = distribution(_OWN)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return Runtime(versions=versions, ranges=(), extras=(), extra_names=())
    waiting, seen = [own], {_OWN}
    while waiting:
        for line in waiting.pop().requires or ():
            need = requirement(line)
            if "extra" in need.marker or need.name in _NOT_FOR_CHILDREN:
                continue
            found = _installed(need.name)
            if found is None:
                continue  # its marker does not hold here
            versions[need.name] = found.version
            if need.specifier:
                ranges.append(f"{need.name}{need.specifier}")
            if need.name not in seen:
                seen.add(need.name)
                waiting.append(found)
    extras = [line for line in own.requires or () if "extra" in requirement(line).marker]
    names = own.metadata.get_all("Provides-Extra") or []
    return Runtime(
        versions=dict(sorted(versions.items())),
        ranges=tuple(sorted(set(ranges))),
        extras=tuple(extras),
        extra_names=tuple(names),
    )


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _marked(version: str) -> str:
    """Returns the version with our mark. It is the highest of its public version, and equal to it for every
    specifier.
    """
    public = version.partition("+")[0]
    return f"{public}+{SUFFIX}"


def _write_stub(
    directory: Path, name: str, version: str, requires: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    stem = f"{canonical(name).replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f"Requires-Dist: {line}" for line in requires]
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in _members(info, "\n".join(lines) + "\n"):
            archive.writestr(path, text)


def _members(info: str, metadata: str) -> Iterator[tuple[str, str]]:
    yield f"{info}/METADATA", metadata
    yield f"{info}/WHEEL", _WHEEL
    yield f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
