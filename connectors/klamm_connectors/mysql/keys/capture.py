"""Keys that choose what is captured: databases, tables, columns and servers; and how columns are hidden."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_connectors.mysql.column_rules import ColumnRules
from klamm_connectors.mysql.columns import Table
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.gtid_sources import GtidSources
from klamm_connectors.mysql.message_keys import MessageKeys
from klamm_connectors.mysql.view import View
from klamm_plugins.errors import ConfigError

log = logging.getLogger(__name__)

_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The chosen databases, tables, columns and servers."""

    filters: Filters
    rules: ColumnRules
    keys: MessageKeys
    sources: GtidSources | None
    filter_rows_by_source: bool

    def view(self, table: Table) -> View:
        """Returns the part of a table that its records show."""
        names = [column.name for column in table.columns]
        shown = frozenset(n for n in names if self.filters.column(table.database, table.name, n))
        found = (
            (c.name, self.rules.of(table.database, table.name, c)) for c in table.columns if c.name in shown
        )
        key = self.keys.of(table.database, table.name, names, table.key)
        mapped = {name: one for name, one in found if one is not None}
        for name in key:
            if name in mapped and "masked" in mapped[name].parameters:
                log.warning(
                    "%s.%s is masked in the values of records, and in clear in their keys; message.key.columns names other "
                    "columns for the key", table.full_name, name,
                )  # fmt: skip
        return View(captured=shown, key=key, mapped=mapped)

    def reads(self, gtid: str) -> bool:
        """Returns False for a transaction whose rows are left out."""
        return self.sources is None or not self.filter_rows_by_source or self.sources.reads(gtid)


def define(d: ConfigDef) -> ConfigDef:
    """Adds the keys."""
    lists = {
        "database.include.list": "Databases to capture: regular expressions that match whole names, separated by commas. Empty: all but the system's.",
        "database.exclude.list": "Databases to leave out.",
        "table.include.list": "Tables to capture, as database.table. Empty: all.",
        "table.exclude.list": "Tables to leave out.",
        "column.include.list": "Columns of the values, as database.table.column. Empty: all. Columns of the key are in the key in any case.",
        "column.exclude.list": "Columns to leave out of the values.",
        "gtid.source.includes": "Servers whose transactions are read: regular expressions for their UUIDs (MariaDB: DOMAIN-SERVER), separated by commas. Empty: all.",
        "gtid.source.excludes": "Servers whose transactions are left out.",
    }
    for name, text in lists.items():
        d.define(name, Type.LIST, [], importance=_HIGH if "table" in name else _MEDIUM, documentation=text)
    return d.define("gtid.source.filter.dml.events", Type.BOOLEAN, True, importance=_MEDIUM, documentation="Whether gtid.source.includes and gtid.source.excludes leave rows out. false: they only choose what counts of the position when the binlog is opened.")  # fmt: skip


def read(values: Mapping[str, Any], props: Mapping[str, str]) -> Capture:
    """Returns the settings. Raises ConfigError for keys that exclude each other."""
    for kind in ("database", "table", "column"):
        if values[f"{kind}.include.list"] and values[f"{kind}.exclude.list"]:
            raise ConfigError(
                f"{kind}.include.list and {kind}.exclude.list are both set: use one of them",
                key=f"{kind}.exclude.list",
            )
    return Capture(
        filters=Filters(values),
        rules=ColumnRules.from_properties(props),
        keys=MessageKeys.parse(values["message.key.columns"]),
        sources=GtidSources.from_lists(values["gtid.source.includes"], values["gtid.source.excludes"]),
        filter_rows_by_source=values["gtid.source.filter.dml.events"],
    )
