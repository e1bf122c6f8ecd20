"""The verdict on every key of a connector whose name a plugin takes: honoured, refused, or warned of.

A class that answers to the name of another connector gets that connector's JSON. It must not ignore a key of it in silence.
So a table lists all keys of a pinned version of the original: JSON, by space and key, with type, default, verdict, the
reason, and the values that need neither refusal nor warning. A `*` in a key stands for a name that users choose.

| space | keys |
|---|---|
| `common` | those that all classes of the table have |
| others | those in which a class differs from `common` |
| `further` | written by hand: families of keys, and keys of earlier versions |

Pure, but for reading the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from typing import Final, Protocol

from klamm_base.configdef import ConfigValue
from klamm_base.properties import suggestion
from klamm_base.redaction import is_secret_name

COMMON: Final = "common"
FURTHER: Final = "further"
FAMILY: Final = "*"
_HIDDEN: Final = "…"
_SQL: Final = ".statements"


class Verdict(StrEnum):
    """The fate of a key, the best first. A key that is warned of has no effect, and that changes no results."""

    HONOURED = "honoured"
    REFUSED = "refused"
    WARNED = "warned"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict. `why` ends the sentence "KEY has no effect: " or "KEY cannot be used: "."""

    verdict: Verdict
    why: str = ""
    unknown: bool = False
    """True for a key that is in no table: it may belong to a plugin."""
    hidden: bool = False
    """True for a key that may hold a secret: one of a family whose names nobody knows, which may be a misspelt password, or SQL."""

    def said(self, key: str, value: str) -> str:
        """Returns the sentence for the user."""
        if self.verdict is Verdict.REFUSED:
            hidden = self.hidden or is_secret_name(key)
            return f"{key}={_HIDDEN if hidden else value} cannot be used: {self.why}"
        return f"{key} has no effect: {self.why}"


HONOURED: Final = Ruling(Verdict.HONOURED)
UNKNOWN: Final = Ruling(Verdict.WARNED, unknown=True)


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table."""

    type: str
    default: str
    verdict: Verdict
    why: str = ""
    fine: frozenset[str] = frozenset()

    def rule(self, value: str) -> Ruling:
        """Judges a value."""
        return HONOURED if value.strip().lower() in self.fine else Ruling(self.verdict, self.why)


Table = Mapping[str, Mapping[str, Key]]


@cache
def read_table(package: str, name: str) -> Table:
    """Returns the keys of a package's table by space and name."""
    data = json.loads(files(package).joinpath(name).read_text("utf-8"))
    return {space: {key: _key(*row) for key, row in keys.items()} for space, keys in data.items()}


def _key(kind: str, default: str, verdict: str, why: str = "", fine: Iterable[str] = ()) -> Key:
    return Key(kind, default, Verdict(verdict), why, frozenset(value.lower() for value in fine))


class OriginalKeys(Protocol):
    """The rules for the keys of a connector (see `Connector.original_keys`)."""

    @property
    def names(self) -> Collection[str]:
        """The keys to suggest for a misspelt one."""
        ...

    def rule(self, props: Mapping[str, str]) -> Iterator[tuple[str, Ruling]]:
        """Yields a ruling for each key; a key that the original does not have is `unknown`."""
        ...


class KeyTable:
    """The rules of a table, for the class with these `spaces`."""

    def __init__(self, package: str, *spaces: str, name: str = "original_keys.json") -> None:
        self._package = package
        self._name = name
        self._spaces = (COMMON, *spaces, FURTHER)

    @cached_property
    def keys(self) -> Mapping[str, Key]:
        """The rows of the class, with families."""
        table = read_table(self._package, self._name)
        return {key: row for space in self._spaces for key, row in table.get(space, {}).items()}

    @property
    def names(self) -> Collection[str]:
        return [key for key in self.keys if FAMILY not in key]

    def rule(self, props: Mapping[str, str]) -> Iterator[tuple[str, Ruling]]:
        for name, value in props.items():
            row, family = self.keys.get(name), self._family(name)
            if row is not None:
                yield name, replace(row.rule(value), hidden=name.endswith(_SQL))
            elif family is not None:
                ruling = replace(family.rule(value), hidden=True)
                meant = suggestion(name, self.names) if ruling.verdict is Verdict.REFUSED else ""
                yield name, replace(ruling, why=ruling.why + meant)
            else:
                yield name, UNKNOWN

    def _family(self, name: str) -> Key | None:
        """Returns the row of the longest family that a key belongs to."""
        found = [family for family, pattern in self._families if pattern.fullmatch(name)]
        return self.keys[max(found, key=len)] if found else None

    @cached_property
    def _families(self) -> list[tuple[str, re.Pattern[str]]]:
        return [
            (key, re.compile(".+".join(re.escape(part) for part in key.split(FAMILY))))
            for key in self.keys
            if FAMILY in key
        ]


def refusals(rules: OriginalKeys | None, props: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each key that is refused."""
    return _said(rules, props, Verdict.REFUSED)


def without_effect(rules: OriginalKeys | None, props: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each key of the original that has no effect here."""
    return _said(rules, props, Verdict.WARNED)


def taken(rules: OriginalKeys | None, props: Mapping[str, str]) -> list[str]:
    """Returns the keys that have an effect, or need no warning."""
    return [name for name, ruling in _rulings(rules, props) if ruling.verdict is Verdict.HONOURED]


def add_refusals(
    values: list[ConfigValue], rules: OriginalKeys | None, props: Mapping[str, str]
) -> list[ConfigValue]:
    """Adds the refusals to the answers of a validation, and answers for keys that have none."""
    by_name = {value.name: value for value in values}
    for name, sentence in refusals(rules, props).items():
        by_name.setdefault(name, ConfigValue(name=name)).errors.append(sentence)
    return list(by_name.values())


def _said(rules: OriginalKeys | None, props: Mapping[str, str], verdict: Verdict) -> dict[str, str]:
    return {
        name: ruling.said(name, props[name])
        for name, ruling in _rulings(rules, props)
        if ruling.verdict is verdict and not ruling.unknown
    }


def _rulings(rules: OriginalKeys | None, props: Mapping[str, str]) -> Iterable[tuple[str, Ruling]]:
    return () if rules is None else rules.rule(props)
