"""How far the records are that are in the database: kept in a table of it, moved in the transaction that writes them.

That is what makes a sink exactly-once. Invariant: a row moves from the offset that this task knows to the next one
(compare and set), or the transaction is rolled back: of two tasks that believe to have the same partition (one does not
know yet that it has lost it), each record is written by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from klamm_plugins.errors import ConnectError
from klamm_plugins.records import SinkRecord, TopicPartition

# A partition of which nothing was written yet; where it begins is the consumer group's to say.
NOWHERE: Final = -1
_EXACT: Final = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")


class Moved(Exception):
    """Somebody else has written records of these partitions meanwhile."""


class Positions:
    """The rows of one connector. `table` is made when it is not there."""

    def __init__(self, engine: sa.Engine, table: str, connector: str) -> None:
        self._engine = engine
        self._connector = connector
        # In MySQL, keys that differ in case or in spaces would be one; MyISAM has no transactions.
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
        """Have the table."""
        try:
            self._table.create(self._engine, checkfirst=True)
        except sa.exc.DBAPIError:
            # Another task may have made it in between; if not, the next query says what is wrong.
            if not sa.inspect(self._engine).has_table(self._table.name):
                raise

    def open(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Learn where these partitions are; those of which something was written, with the next offset."""
        self._learn(places)
        found = {p: self._next[p] for p in places if self._next[p] != NOWHERE}
        self._begun |= found
        return found

    def close(self, places: Iterable[TopicPartition]) -> None:
        """They are another task's now."""
        for place in places:
            self._next.pop(place, None)
            self._begun.pop(place, None)

    def fresh(self, records: list[SinkRecord]) -> list[SinkRecord]:
        """Those that are not in the database yet. ConnectError for what cannot be: a topic that begins again."""
        found = []
        for record in records:
            place = _place(record)
            offset = record.original_kafka_offset
            if offset < self._begun.get(place, 0):
                raise ConnectError(
                    f"{place} has a record at offset {offset}, but up to {self._begun[place]} everything is in the "
                    f"database, as its table {self._table.name} says: was the topic deleted and made again? Then reset the "
                    "connector's offsets (DELETE /connectors/NAME/offsets)"
                )
            if offset >= self._next.get(place, NOWHERE):
                found.append(record)
        return found

    def advance(self, connection: sa.Connection, records: list[SinkRecord]) -> dict[TopicPartition, int]:
        """Within the transaction that writes them: move past these records. Raises Moved; the transaction must go
        then. What is returned is for `moved`, once it is committed.
        """
        new = {_place(r): r.original_kafka_offset + 1 for r in records}
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
        """The transaction is committed."""
        self._next |= new

    def learn_again(self) -> None:
        """After Moved, or when nobody knows whether a transaction was committed."""
        self._learn(list(self._next))

    def store(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set positions from outside; None forgets one. The connector must be stopped."""
        with self._engine.begin() as connection:
            for place, offset in offsets.items():
                connection.execute(sa.delete(self._table).where(*self._is(place)))
                if offset is not None:
                    connection.execute(sa.insert(self._table).values(self._row(place, offset)))

    def _learn(self, places: Collection[TopicPartition]) -> None:
        """Rows that are not there are made: only a row can be compared and set."""
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


def _place(record: SinkRecord) -> TopicPartition:
    """A transform may have given it another topic."""
    return TopicPartition(record.original_topic, record.original_kafka_partition)
