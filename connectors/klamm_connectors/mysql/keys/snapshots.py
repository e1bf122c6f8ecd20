"""Keys of snapshots and of reading: when tables are read, how many rows at once, by how many connections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between
from klamm_connectors.mysql.keys.words import one_word_of, word
from klamm_plugins.errors import ConfigError

SNAPSHOT_MODES: Final = (
    "initial",
    "initial_only",
    "no_data",
    "schema_only",
    "never",
    "always",
    "when_needed",
)
_NO_HISTORY: Final = (
    "There is no schema history here that could be lost: use no_data, with which the connector goes on at its offset, or "
    "when_needed, which reads the tables again if the binlog no longer has the position"
)
_REFUSED_MODES: Final = {
    "recovery": _NO_HISTORY,
    "schema_only_recovery": _NO_HISTORY,
    "configuration_based": "The keys snapshot.mode.configuration.based.* have no effect here: use initial for data and changes, "
    "initial_only for data alone, no_data for changes alone, always for data at every start",
    "custom": f"Java's snapshotters do not run here: use one of {', '.join(SNAPSHOT_MODES)}",
}
OVERRIDES: Final = "snapshot.select.statement.overrides"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The settings of snapshots."""

    mode: str
    fetch_size: int
    lock: bool
    threads: int
    statements: Mapping[str, str]
    """Statements that read a table (`database.table`) in place of the whole table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The settings of the task's batches."""

    batch_size: int
    queue_size: int
    wait_s: float


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    return (
        d.define("snapshot.mode", Type.STRING, "initial", validator=one_word_of(*SNAPSHOT_MODES, refused=_REFUSED_MODES), importance=_HIGH, documentation="initial: read the tables when there is no offset, then the binlog. initial_only: stop after the tables. no_data (also schema_only, never): begin at the binlog's present end. always: read the tables at every start. when_needed: as initial, and again when the binlog no longer has the position.")
        .define("snapshot.fetch.size", Type.INT, 2000, validator=between(1, 1_000_000), importance=_MEDIUM, documentation="Rows of one read in a snapshot.")
        .define("snapshot.locking.mode", Type.STRING, "minimal", validator=one_word_of("minimal", "none"), importance=_LOW, documentation="minimal: a global read lock while position and snapshot are taken together, on MySQL, and on MariaDB with more than one thread (one thread needs none). none: no lock; safe only when nothing is written at that moment.")
        .define("snapshot.max.threads", Type.INT, 1, validator=between(1, 64), importance=_LOW, documentation="Connections that read tables at the same time, each table by one of them, all at the same position of the binlog.")
        .define(OVERRIDES, Type.LIST, [], importance=_MEDIUM, documentation=f"Tables (database.table, separated by commas) that a snapshot reads by a statement of your own, which {OVERRIDES}.DATABASE.TABLE has. It must return the captured columns by name.")
        .define("max.batch.size", Type.INT, 2048, validator=between(1), importance=_MEDIUM, documentation="The approximate number of records that the task hands over at once.")
        .define("max.queue.size", Type.INT, 256, validator=between(1), importance=_LOW, documentation="The most binlog events that wait for the task.")
        .define("poll.interval.ms", Type.LONG, 500, validator=between(1), importance=_LOW, documentation="The time for which the task waits for the next event before it reports none. An event ends the wait, and no wait is longer than a second, so larger values change nothing.")
    )  # fmt: skip


def read(values: Mapping[str, Any], props: Mapping[str, str]) -> Snapshots:
    """Returns the settings of snapshots. Raises ConfigError for a statement that is missing or not used."""
    return Snapshots(
        mode=word(values["snapshot.mode"]),
        fetch_size=values["snapshot.fetch.size"],
        lock=word(values["snapshot.locking.mode"]) == "minimal",
        threads=values["snapshot.max.threads"],
        statements=_statements(values[OVERRIDES], props),
    )


def read_reading(values: Mapping[str, Any]) -> Reading:
    """Returns the settings of the task's batches."""
    return Reading(
        batch_size=values["max.batch.size"],
        queue_size=values["max.queue.size"],
        wait_s=min(values["poll.interval.ms"] / 1000, 1.0),
    )


def _statements(tables: list[str], props: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for table in tables:
        key = f"{OVERRIDES}.{table}"
        if not re.fullmatch(r"[^.]+\.[^.]+", table):
            raise ConfigError(
                f"{OVERRIDES}: {table!r} is not a table's full name, such as shop.orders", key=OVERRIDES
            )
        if not props.get(key, "").strip():
            raise ConfigError(
                f"{OVERRIDES} names {table}, and {key} with its statement is missing", key=OVERRIDES
            )
        found[table] = props[key].strip().rstrip(";")
    for key in props:
        if key.startswith(f"{OVERRIDES}.") and key.removeprefix(f"{OVERRIDES}.") not in found:
            table = key.removeprefix(f"{OVERRIDES}.")
            raise ConfigError(
                f"{key} is not used, because {OVERRIDES} does not name {table}: add it there", key=key
            )
    return found
