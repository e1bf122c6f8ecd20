"""The notes of a load's threads while a broker comes and goes; safe to call from any of them."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict

from support.history import Delivery, History, Outcome, Scan, Write


class Recorder:
    """Collects a `History`. Appending to a list is atomic; everything else takes the lock."""

    def __init__(self) -> None:
        self.history = History()
        self._ticks = itertools.count(1)
        self._values = itertools.count(1)
        self._lock = threading.Lock()
        self._scans: dict[tuple[str, bool, str, int], list[tuple[int, bytes | None]]] = defaultdict(list)
        self._ends: dict[tuple[str, bool, str, int], int] = {}

    def tick(self) -> int:
        return next(self._ticks)

    def unique(self) -> int:
        """Returns a number that no other value of this history has."""
        return next(self._values)

    def write(self, **fields: object) -> None:
        self.history.writes.append(Write(**fields))  # type: ignore[arg-type]

    def delivery(self, group: str, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self.history.deliveries.append(
            Delivery(group=group, topic=topic, partition=partition, offset=offset, value=value)
        )

    def shown(self, reader: str, committed: bool, topic: str, partition: int, offset: int, value: bytes | None) -> None:  # fmt: skip
        """Notes that a reader without a group was given a record."""
        key = reader, committed, topic, partition
        self._scans[key].append((offset, value))
        self._ends[key] = max(offset + 1, self._ends.get(key, 0))

    def at_end(self, reader: str, committed: bool, topic: str, partition: int, offset: int) -> None:
        """Notes that a reader was told that there is nothing more before this offset."""
        key = reader, committed, topic, partition
        self._scans.setdefault(key, [])
        self._ends[key] = max(offset, self._ends.get(key, 0))

    def read_up_to(self, reader: str, committed: bool, topic: str, partition: int) -> int:
        return self._ends.get((reader, committed, topic, partition), 0)

    def finish(self) -> History:
        """Returns the history, with one scan for each reader and partition. The threads have ended."""
        for (reader, committed, topic, partition), records in self._scans.items():
            self.history.scans.append(
                Scan(
                    reader=reader, committed=committed, topic=topic, partition=partition, start=0,
                    end=self._ends[reader, committed, topic, partition], records=tuple(records),
                )
            )  # fmt: skip
        return self.history


class Pending:
    """The records that a producer was given and has not answered for, of one session."""

    def __init__(self, recorder: Recorder, session: str, *, idempotent: bool) -> None:
        self._recorder = recorder
        self._session = session
        self._idempotent = idempotent
        self._fields: dict[int, dict[str, object]] = {}
        self._numbers = itertools.count()
        self.acknowledged = 0

    def add(self, topic: str, partition: int, value: bytes | None, *, key: bytes | None = None, transaction: str | None = None) -> int:  # fmt: skip
        number = next(self._numbers)
        self._fields[number] = {
            "topic": topic, "partition": partition, "value": value, "key": key, "transaction": transaction,
        }  # fmt: skip
        return number

    def answered(self, number: int, error: object, offset: int) -> None:
        """Notes a delivery report. An error leaves open whether the record is stored: it may have been sent before."""
        fields = self._fields.pop(number)
        outcome = Outcome.OK if error is None else Outcome.UNKNOWN
        self.acknowledged += error is None
        self._note(number, fields, outcome, offset if error is None and offset >= 0 else -1)

    def give_up(self) -> None:
        """Notes that nothing more is heard of what is left."""
        while self._fields:
            number, fields = self._fields.popitem()
            self._note(number, fields, Outcome.UNKNOWN, -1)

    def _note(self, number: int, fields: dict[str, object], outcome: Outcome, offset: int) -> None:
        self._recorder.write(
            session=self._session, number=number, idempotent=self._idempotent, outcome=outcome,
            offset=offset, **fields,
        )  # fmt: skip
