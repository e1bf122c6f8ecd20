"""The part of a table that its records show. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm_connectors.mysql.column_rules import Mapped


@dataclass(frozen=True, slots=True)
class View:
    """The captured columns, those whose values a rule changes, and the columns of the key."""

    captured: frozenset[str]
    key: tuple[str, ...]
    mapped: Mapping[str, Mapped] = field(default_factory=dict)
