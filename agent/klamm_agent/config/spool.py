"""[spool]: the settings for keeping batches on disk while they cannot be delivered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klamm_agent.config.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """The settings of [spool]. `when`: broker_away or always. `drop` says what gives way when `max_bytes` are full: block (nothing;
    reading stops), oldest or newest.
    """

    path: Path
    max_bytes: int = 1024 * 1024 * 1024
    when: str = "broker_away"
    fsync: bool = True
    drop: str = "block"


def read_spool(v: Values, document: dict[str, Any], state_dir: Path) -> SpoolSettings | None:
    """Reads [spool]; None without the table. Raises ConfigError."""
    if "spool" not in document:
        return None
    table = v.table(document, "spool")
    v.known(table, "spool", ("path", "max_bytes", "when", "fsync", "drop"))
    return SpoolSettings(
        path=v.base / v.text(table, "spool", "path") if "path" in table else state_dir / "spool",
        max_bytes=v.number(table, "spool", "max_bytes", 1024 * 1024 * 1024, least=1024 * 1024, most=1 << 50),
        when=v.choice(table, "spool", "when", "broker_away", ("broker_away", "always")),
        fsync=v.flag(table, "spool", "fsync", default=True),
        drop=v.choice(table, "spool", "drop", "block", ("block", "oldest", "newest")),
    )
