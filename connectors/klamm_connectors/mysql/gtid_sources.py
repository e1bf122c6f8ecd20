"""Chooses transactions by the server that wrote them: Debezium's gtid.source.includes and excludes. Pure: no I/O.

A source is a UUID with MySQL and `DOMAIN-SERVER` with MariaDB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from klamm_connectors.mysql.filters import compile_all
from klamm_connectors.mysql.position import format_gtid_set, parse_gtid_set
from klamm_plugins.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GtidSources:
    """Expressions that match whole names of sources, ignoring case."""

    expressions: tuple[re.Pattern[str], ...]
    included: bool

    @classmethod
    def from_lists(cls, includes: Sequence[str], excludes: Sequence[str]) -> GtidSources | None:
        """Returns the sources to read; None for all. Raises ConfigError when both lists are set."""
        if includes and excludes:
            raise ConfigError(
                "gtid.source.includes and gtid.source.excludes are both set: use one of them",
                key="gtid.source.excludes",
            )
        if not includes and not excludes:
            return None
        name = "gtid.source.includes" if includes else "gtid.source.excludes"
        return cls(tuple(compile_all(name, includes or excludes)), bool(includes))

    def reads(self, gtid: str) -> bool:
        """Returns False for a transaction of a server that is left out. A transaction without a GTID is read."""
        if not gtid:
            return True
        source = gtid.partition(":")[0] if ":" in gtid else gtid.rpartition("-")[0]
        return any(e.fullmatch(source) for e in self.expressions) is self.included

    def start(self, done: str, executed: str) -> str:
        """Returns MySQL's set to open the binlog after: what was done, and all that the server has of sources left out.

        So the server need not keep transactions that nobody reads. MariaDB's state is a place in each domain, whoever
        wrote there last, and stays as it is.
        """
        if ":" not in done + executed:
            return done
        ours = {s: i for s, i in parse_gtid_set(done).items() if self.reads(f"{s}:1")}
        left_out = {s: i for s, i in parse_gtid_set(executed).items() if not self.reads(f"{s}:1")}
        return format_gtid_set(ours | left_out)
