"""Tables as the binlog describes them, each with its decoder and event maker.

A table map event precedes the rows of every statement. Its bytes describe the table completely, so they are
the key of the cache: an ALTER between two events changes the bytes and so makes another table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm_connectors.mysql.binlog_events import TableMapEvent
from klamm_connectors.mysql.charsets import Charsets
from klamm_connectors.mysql.columns import Column, Kind, Table, from_table_map, members
from klamm_connectors.mysql.events import TableEvents
from klamm_connectors.mysql.keys.capture import Capture
from klamm_connectors.mysql.rows import RowDecoder
from klamm_connectors.mysql.shape import Shape
from klamm_plugins.errors import ConnectError

Describe = Callable[[str, str], Table | None]
"""Returns the present table from information_schema, or None."""

_MAYBE_ADDRESS = frozenset({4, 16})  # sizes of BINARY that may as well be INET4, INET6 or UUID


@dataclass(frozen=True, slots=True)
class Captured:
    """The decoder and event maker for the rows of one table."""

    table: Table
    decoder: RowDecoder
    events: TableEvents
    shown: bool = True
    """False for a table of signals that is not captured."""
    signals: bool = False

    @property
    def full_name(self) -> str:
        return self.table.full_name

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.table.columns


class Catalog:
    """The tables of one binlog reader, found by table map events. For one thread."""

    def __init__(
        self,
        capture: Capture,
        shape: Shape,
        describe: Describe,
        charsets: Charsets,
        signals: str | None = None,
    ) -> None:
        self._capture = capture
        self._signals = signals
        self._shape = shape
        self._describe = describe
        self._charsets = charsets
        self._by_bytes: dict[bytes, Captured | None] = {}
        self._by_id: dict[int, Captured | None] = {}

    def see(self, event: TableMapEvent) -> None:
        """Takes a table map event."""
        try:
            self._by_id[event.table_id] = self._by_bytes[event.body]
        except KeyError:
            found = event.found
            shown = self._capture.filters.table(found.schema, found.table)
            signals = f"{found.schema}.{found.table}" == self._signals
            captured = self._make(found, shown=shown, signals=signals) if shown or signals else None
            self._by_bytes[event.body] = self._by_id[event.table_id] = captured

    def forget_ids(self) -> None:
        """Forgets table ids: a new binlog file may use the same ids for other tables."""
        self._by_id.clear()
        self._by_bytes.clear()

    def of(self, table_id: int) -> Captured | None:
        """Returns the table of a row event; None when it is not captured. Raises ConnectError when no table map came
        before.
        """
        try:
            return self._by_id[table_id]
        except KeyError:
            raise ConnectError(
                f"rows of table number {table_id}, which no event before has described"
            ) from None

    def of_table(self, table: Table) -> Captured:
        """Returns a table that information_schema described, for the snapshot."""
        events = TableEvents(table, self._capture.view(table), self._shape)
        return Captured(table, RowDecoder(table.full_name, (), self._charsets), events)

    def present(self, database: str, name: str) -> Captured | None:
        """Returns a table as it is now; None when there is none."""
        table = self._describe(database, name)
        return self.of_table(table) if table is not None else None

    def _make(self, event: Any, *, shown: bool, signals: bool) -> Captured:
        named = bool(event.columns) and bool(event.columns[0].name)
        declared = self._declared(event, named=named)
        nulls = int.from_bytes(event.null_bitmask, "little")
        columns = tuple(
            from_table_map(
                found,
                nullable=bool(nulls >> i & 1),
                declared=declared.get(found.name if named else i),
            )
            for i, found in enumerate(event.columns)
        )
        full_name = f"{event.schema}.{event.table}"
        if not named:
            _check_same(full_name, columns, declared)
        table = Table(event.schema, event.table, columns, self._key(event, columns, named=named))
        view = self._capture.view(table)
        # An incremental snapshot may read the table by any column.
        wanted = {*view.captured, *view.key} if self._signals is None else None
        decoder = RowDecoder(full_name, columns, self._charsets, wanted)
        return Captured(table, decoder, TableEvents(table, view, self._shape), shown, signals)

    def _declared(self, event: Any, *, named: bool) -> dict[str | int, Column]:
        """Returns columns of information_schema by name or by position; empty when they are not needed."""
        unclear = (
            (int(c.type) == 254 and c.max_length in _MAYBE_ADDRESS) or "" in members(c) for c in event.columns
        )
        if named and not any(unclear):
            return {}
        table = self._describe(event.schema, event.table)
        if table is None:
            if named:
                return {}
            raise ConnectError(
                f"{event.schema}.{event.table} is in the binlog but no longer in the database, so its columns have no "
                "names; set binlog_row_metadata=FULL on the server"
            )
        if named:
            return {c.name: c for c in table.columns}
        return dict(enumerate(table.columns))

    def _key(self, event: Any, columns: tuple[Column, ...], *, named: bool) -> tuple[str, ...]:
        if not named:
            table = self._describe(event.schema, event.table)
            return table.key if table is not None else ()
        metadata = event.optional_metadata
        places = list(metadata.simple_primary_key_list) or list(metadata.primary_keys_with_prefix)
        return tuple(columns[i].name for i in places)


def _check_same(full_name: str, columns: tuple[Column, ...], declared: dict[str | int, Column]) -> None:
    """Checks that the table has not changed since the event: without names in the binlog, both must agree."""
    same = len(columns) == len(declared)
    for i, column in enumerate(columns):
        now = declared.get(i)
        same = same and now is not None and _family(now) == _family(column)
    if not same:
        raise ConnectError(
            f"{full_name} was changed after these rows were written, and the binlog has no names of columns; set "
            "binlog_row_metadata=FULL on the server, then read the table again (snapshot.mode=always once)"
        )


def _family(column: Column) -> tuple[Kind, int]:
    kind = Kind.STRING if column.kind is Kind.JSON else column.kind
    return kind, column.size if kind is Kind.INT else 0
