"""Names of packages, wheels and requirements, as Python's packaging standards spell them. Pure.

Sources: PEP 503 (normalised names), PEP 427 (wheel file names), PEP 508 (requirements; only its first part is read).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from klamm.environments.errors import BadRequirement

_SEPARATORS: Final = re.compile(r"[-_.]+")
_REQUIREMENT: Final = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?P<extras>\[[^\]]*\])?\s*(?P<rest>.*)",
    re.DOTALL,
)
_SPECIFIER: Final = re.compile(r"\(?\s*((?:(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()<>=!~]+\s*,?\s*)*)\)?\s*")


class Requirement(NamedTuple):
    """`name[extras] specifier ; marker` in its parts; `url` for `name @ url`."""

    name: str
    extras: str
    specifier: str
    marker: str
    url: str | None


def canonical(name: str) -> str:
    """The normalised name of a package: `Acme.Plugin_x` is `acme-plugin-x`."""
    return _SEPARATORS.sub("-", name).lower()


def requirement(text: str) -> Requirement:
    """Read a requirement. Raises BadRequirement."""
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


class WheelName(NamedTuple):
    """The package and version in a wheel's file name, as written there but for normalised names."""

    name: str
    version: str


def wheel_name(path: Path) -> WheelName:
    """Raises BadRequirement for a name that no wheel can have."""
    parts = path.name.removesuffix(".whl").split("-")
    if path.suffix != ".whl" or len(parts) not in {5, 6}:
        raise BadRequirement(
            f"{path.name} is no wheel: its name must be name-version-python-abi-platform.whl"
        )
    return WheelName(canonical(parts[0]), parts[1].replace("_", "-"))
