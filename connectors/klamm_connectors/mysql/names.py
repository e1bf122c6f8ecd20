"""Names in statements. Pure: no I/O."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Returns a name in backticks."""
    return "`" + name.replace("`", "``") + "`"
