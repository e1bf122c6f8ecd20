"""Names of packages, wheels and requirements, as Python's packaging standards spell them. Pure.

Sources: PEP 503 (normalised names), PEP 427 (wheel file names), PEP 508 (requirements; only its first part is read).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from klamm.environments.errors import BadRequirement

_NAME_MAX: Final = 255  # bytes, of most file systems
_SEPARATORS: Final = re.compile(r"[-_.]+")
_REQUIREMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?P<extras>\[[^\]]*\])?\s*(?P<rest>.*)",
    re.DOTALL,
)
# What becomes part of paths, and of the lines that an installer reads.
_VERSION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._!+-]*[A-Za-z0-9])?", re.ASCII)
_WHEEL_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.!+]*", re.ASCII)
_SPECIFIER: Final = re.compile(r"\(?\s*((?:(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()<>=!~]+\s*,?\s*)*)\)?\s*")


class Requirement(NamedTuple):
    """`name[extras] specifier ; marker` in its parts; `url` for `name @ url`."""

    name: str
    extras: str
    specifier: str
    marker: str
    url: str | None


def canonical(name: str) -> str:
    """Returns the normalised name of a package: `Acme.Plugin_x` is `acme-plugin-x`."""
    return _SEPARATORS.sub("-", name).lower()


def requirement(text: str) -> Requirement:
    """Read a requirement. Raises BadRequirement."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):  # a second line would be an option of the installer's
        raise BadRequirement(f"{text!r} is no package requirement: it has control characters in it")
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise BadRequirement(f"{text!r} is no package requirement; write it like acme-plugin==1.2")
    name, extras, rest = canonical(match["name"]), match["extras"] or "", match["rest"]
    if rest.startswith("@"):
        url, _, marker = rest[1:].strip().partition(" ;")
        return Requirement(name, extras, "", marker.strip(), url.strip())
    specifier, _, marker = rest.partition(";")
    found = _SPECIFIER.fullmatch(specifier)
    if found is None:
        raise BadRequirement(
            f"{text!r} is no package requirement: {specifier.strip()!r} is no version specifier; "
            "write it like acme-plugin==1.2"
        )
    return Requirement(name, extras, found[1].strip(), marker.strip(), None)


def check_pin(name: str, version: str) -> None:
    """Raises BadRequirement unless these are the normalised name and the version of a package."""
    if canonical(name) != name or _REQUIREMENT.fullmatch(name) is None or requirement(name).name != name:
        raise BadRequirement(f"{name!r} is no normalised name of a package")
    if _VERSION.fullmatch(version) is None:
        raise BadRequirement(f"{version!r} is no version of a package")


class WheelName(NamedTuple):
    """The package and version in a wheel's file name, as written there but for normalised names."""

    name: str
    version: str


def wheel_name(path: Path) -> WheelName:
    """Returns the parts of a wheel's file name. Raises BadRequirement for a name that no wheel can have."""
    parts = path.name.removesuffix(".whl").split("-")
    fits = len(parts) in {5, 6} and all(map(_WHEEL_PART.fullmatch, parts))
    if path.suffix != ".whl" or not fits or len(path.name) > _NAME_MAX:
        raise BadRequirement(
            f"{path.name} is no wheel: its name must be name-version-python-abi-platform.whl"
        )
    return WheelName(canonical(parts[0]), parts[1].replace("_", "-"))
