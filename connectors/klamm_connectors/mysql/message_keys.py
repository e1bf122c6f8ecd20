"""The columns of records' keys that `message.key.columns` names in place of primary keys. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm_connectors.mysql.filters import compile_one
from klamm_plugins.errors import ConfigError

_KEY: Final = "message.key.columns"
_PART: Final = re.compile(r"\s*([^:]+):([^:,]+(?:,[^:,]+)*)\s*")


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """Expressions for `database.table.column`, in the order of the key."""

    columns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> MessageKeys:
        """Parses `TABLES:COLUMN,COLUMN;TABLES:COLUMN`. Raises ConfigError."""
        found = []
        for part in filter(str.strip, (text or "").split(";")):
            match = _PART.fullmatch(part)
            if match is None:
                raise ConfigError(
                    f"{_KEY}: {part.strip()!r} is not TABLES:COLUMN,COLUMN, where TABLES is a regular expression for "
                    "database.table; semicolons separate such parts",
                    key=_KEY,
                )
            found += [f"{match[1].strip()}.{column.strip()}" for column in match[2].split(",")]
        return cls(tuple(compile_one(_KEY, expression) for expression in found))

    def of(
        self, database: str, table: str, columns: Sequence[str], primary: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the key's columns: those that an expression matches, otherwise the primary key's."""
        found = dict.fromkeys(
            column
            for expression in self.columns
            for column in columns
            if expression.fullmatch(f"{database}.{table}.{column}")
        )
        return tuple(found) or tuple(primary)
