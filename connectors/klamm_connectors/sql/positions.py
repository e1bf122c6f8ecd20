"""Offsets of the records in the database: kept in a table there, moved in the transaction that writes the
records.

This makes a sink exactly-once. Invariant: a row moves from the offset that this task knows to the next one
(compare and set), or the transaction is rolled back. When two tasks believe that they own a partition (one
has not noticed its loss yet), only one of them writes each record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from klamm_plugins.batch import SinkBatch
from klamm_plugins.errors import ConnectError
from klamm_plugins.records import TopicPartition

# A partition without written records. The consumer group decides where it begins.
NOWHERE: Final = -1
_EXACT: Final = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")


class Moved(Exception):
    """Another task has written records of these partitions meanwhile."""


class Positions:
    """The rows of one connector. `table` is created when it is missing."""

    def __init__(self, engine: sa.Engine, table: str, connector: str) -> None:
        self._engine = engine
        self._connector = connector
        # MySQL's default collation would merge keys that differ in case or in spaces; MyISAM has no transactions.
        text = sa.String(255).with_variant(_EXACT, "mysql", "mariadb")
        self._table = sa.Table(
            table,
            sa.MetaData(),
            sa.Column("connector", text, primary_key=True),
            sa.Column("topic", text, primary_key=True),
            sa.Column("kafka_partition", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("next_offset", sa.BigInteger, nullable=False),
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        self._next: dict[TopicPartition, int] = {}
        self._begun: dict[TopicPartition, int] = {}

    def create(self) -> None:
        """Creates the table unless it exists."""
        try:
            self._table.create(self._engine, checkfirst=True)
        except sa.exc.DBAPIError:
            # Another task may have created it meanwhile; if not, the next query says what is wrong.
            if not sa.inspect(self._engine).has_table(self._table.name):
                raise

    def open(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Reads the positions of these partitions. Returns the next offset of those with written records."""
        self._learn(places)
        found = {p: self._next[p] for p in places if self._next[p] != NOWHERE}
        self._begun |= found
        return found

    def close(self, places: Iterable[TopicPartition]) -> None:
        """Forgets partitions that another task owns now."""
        for place in places:
            self._next.pop(place, None)
            self._begun.pop(place, None)

    def fresh(self, batches: Sequence[SinkBatch]) -> list[SinkBatch]:
        """Returns the records that are not in the database yet. Raises ConnectError when a topic began again."""
        found = []
        for batch in batches:
            place, begun = batch.origin, self._begun.get(batch.origin, 0)
            if (offset := batch.offsets[0]) < begun:
                raise ConnectError(
                    f"{place} has a record at offset {offset}, but up to {begun} everything is in the "
                    f"database, as its table {self._table.name} says: was the topic deleted and made again? Then reset the "
                    "connector's offsets (DELETE /connectors/NAME/offsets)"
                )
            known = bisect_left(batch.offsets, self._next.get(place, NOWHERE))
            if known < len(batch):
                found.append(batch[known:] if known else batch)
        return found

    def advance(self, connection: sa.Connection, batches: Sequence[SinkBatch]) -> dict[TopicPartition, int]:
        """Moves past these records, in the transaction that writes them. Raises Moved; then the transaction must be
        rolled back.

        The result is for `moved`, after the commit.
        """
        new = {batch.origin: batch.offsets[-1] + 1 for batch in batches}
        for place, offset in new.items():
            expected = self._next.get(place)
            if expected is None:
                raise ConnectError(f"{place} is not assigned to this task")
            changed = connection.execute(
                sa.update(self._table)
                .where(*self._is(place), self._table.c.next_offset == expected)
                .values(next_offset=offset)
            )
            if changed.rowcount != 1:
                raise Moved
        return new

    def moved(self, new: Mapping[TopicPartition, int]) -> None:
        """Notes that the transaction is committed."""
        self._next |= new

    def learn_again(self) -> None:
        """Reads the positions again, after Moved or when a commit's outcome is unknown."""
        self._learn(list(self._next))

    def store(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Sets positions from outside; None forgets one. The connector must be stopped."""
        with self._engine.begin() as connection:
            for place, offset in offsets.items():
                connection.execute(sa.delete(self._table).where(*self._is(place)))
                if offset is not None:
                    connection.execute(sa.insert(self._table).values(self._row(place, offset)))

    def _learn(self, places: Collection[TopicPartition]) -> None:
        """Reads positions and inserts missing rows: compare and set needs a row."""
        for place in places:
            query = sa.select(self._table.c.next_offset).where(*self._is(place))
            with self._engine.begin() as connection:
                found = connection.execute(query).scalar()
            if found is None:
                try:
                    with self._engine.begin() as connection:
                        connection.execute(sa.insert(self._table).values(self._row(place, NOWHERE)))
                    found = NOWHERE
                except sa.exc.IntegrityError:  # another task has made it
                    with self._engine.begin() as connection:
                        found = connection.execute(query).scalar_one()
            self._next[place] = found

    def _is(self, place: TopicPartition) -> list[sa.ColumnElement[bool]]:
        c = self._table.c
        return [
            c.connector == self._connector,
            c.topic == place.topic,
            c.kafka_partition == place.partition,
        ]

    def _row(self, place: TopicPartition, offset: int) -> dict[str, object]:
        return {
            "connector": self._connector,
            "topic": place.topic,
            "kafka_partition": place.partition,
            "next_offset": offset,
        }
