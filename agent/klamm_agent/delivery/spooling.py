"""Spooling, between the sender and the spool: it decides what goes to disk, what comes back, and when a batch counts as safe.

A topic is spooled while its broker is away (or always): every batch is written before it is sent. Batches that memory has no room
for are on disk only. They are read when there is room, and new batches queue behind them, so each topic keeps its order.
Batches in memory keep their sequence numbers, and after a kill of the agent the write-ahead log knows those of batches that were sent.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from klamm_agent.config.spool import SpoolSettings
from klamm_agent.delivery.batches import Batch, Claim, Origin, Receipt, Share
from klamm_agent.delivery.outgoing import Outgoing
from klamm_agent.delivery.spool.segment import Damaged, StoredBatch
from klamm_agent.delivery.spool.spool import Spool, SpoolError
from klamm_agent.delivery.wal.entries import Sent
from klamm_base.files import exposed
from klamm_kafka.wire.batch import stamp

log = logging.getLogger(__name__)

PATIENCE_S: Final = 1.0
"""Seconds that a topic must be in trouble before it is spooled: an election takes less."""
_LOOK_S: Final = 0.1
_SYNC_S: Final = 0.1
_SAVE_S: Final = 1.0

NoteDropped = Callable[[list[Share], str, bool], bool]
"""Called with the shares that are given up, the reason, and whether the configuration's policy asks for it. Returns whether the
ledger has them.
"""


def ranges(shares: list[Share]) -> list[Share]:
    """Joins the shares of neighbouring blocks of a file."""
    found: list[Share] = []
    for share in shares:
        if found and _continues(found[-1].origin, share.origin):
            last, records = found[-1]
            origin = last._replace(end=max(last.end, share.origin.end))
            found[-1] = Share(origin, records + share.records)
        else:
            found.append(share)
    return found


def _continues(last: Origin, origin: Origin) -> bool:
    same = (last.path, last.inode) == (origin.path, origin.inode)
    return same and last.start <= origin.start <= last.end


class Owner(Protocol):
    """The sender."""

    @property
    def has_log(self) -> bool:
        """True when a write-ahead log has the batches."""

    def settled(self, batch: Batch) -> None:
        """Takes note that the batch is safe."""

    def spooled(self, batch: Batch) -> None:
        """Takes note that the batch is in the spool, and not forced to the disk yet."""

    def spool_forgot(self, numbers: set[int]) -> None:
        """Takes note that the spool will not bring these batches again, by their numbers in the write-ahead log."""

    def dropped(self, batch: Batch) -> None:
        """Takes note that the batch is given up, and in the ledger."""

    def delivered(self, batch: Batch) -> None:
        """Takes note that a broker has the batch."""

    def let_go(self, batch: Batch) -> None:
        """Takes note that the batch is on disk only."""

    def taken_back(self, batch: Batch) -> None:
        """Takes note that the batch is in memory again."""

    def say(self, what: str) -> None: ...


@dataclass(slots=True)
class _Topic:
    trouble_since: float | None = None
    active: bool = False
    under_way: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """By offset in the spool: how many batches are not acknowledged."""
    numbers: dict[int, int] = field(default_factory=dict)
    """By offset in the spool: the batch's number in the write-ahead log."""


class Spooling:
    """The sender's spool. Raises SpoolError from construction only; later it logs trouble of the disk, and memory is used instead."""

    def __init__(
        self, settings: SpoolSettings, outgoing: Outgoing, owner: Owner, dropped: NoteDropped
    ) -> None:
        self._settings, self._outgoing, self._owner, self._dropped = settings, outgoing, owner, dropped
        self._spool = Spool(settings.path, settings.max_bytes, fsync=settings.fsync)
        if (said := exposed(settings.path)) is not None:
            log.warning("%s", said)
        self._topics: dict[str, _Topic] = {name: _Topic(active=True) for name in self._spool.unread}
        self._passed: dict[int, tuple[str, int]] = {}  # delivered: by number, topic and offset in the spool
        self._unsafe: list[Batch] = []
        self._doubtful: list[Batch] = []  # written, but an fsync failed: only a broker makes them safe
        self._look_at = self._sync_at = self._save_at = 0.0
        self._broken = False
        self.dropped_records = 0

    def numbers(self) -> set[int]:
        """Returns the numbers in the write-ahead log of the batches that wait in the spool."""
        return set().union(*self._spool.numbers().values())

    def resume(self, known: Mapping[int, Sent | None]) -> list[Batch]:
        """Reads, at the start, all batches up to the last that an agent before had sent; returns those that are not acknowledged.

        `known` has, by number, how batches were sent; None: a broker has them.
        """
        found = []
        seen: set[int] = set()
        for name, numbers in self._spool.numbers().items():
            left = numbers & known.keys()
            while left and self._spool.is_unread(name):
                stored = self._read(name)
                if stored is None:
                    continue
                left.discard(stored.number)
                batch = self._taken_back(name, self._topics[name], stored)
                if known.get(stored.number, ()) is None:
                    self._owner.taken_back(batch)
                    self._owner.delivered(batch)
                    continue
                if (
                    stored.number not in seen
                ):  # a part of a batch that an older release spooled: only one can have the numbers
                    batch.noted = known.get(stored.number)
                seen.add(stored.number)
                found.append(batch)
        return found

    @property
    def size(self) -> int:
        return self._spool.size

    @property
    def records(self) -> int:
        return self._spool.records

    def has_room(self, topic: str) -> bool | None:
        """Tells whether the disk has room for the topic (a block may exceed the bound); None: memory decides."""
        state = self._topics.get(topic)
        if self._broken or state is None or not state.active:
            return None
        return self._settings.drop != "block" or self._spool.has_room()

    def put(self, batch: Batch) -> None:
        """Sends a new batch to the disk, to the brokers, or to both."""
        state = self._topics.get(batch.topic)
        if state is None:
            state = self._topics[batch.topic] = _Topic(active=self._settings.when == "always")
        in_memory = not self._spool.is_unread(batch.topic) and self._outgoing.topic(batch.topic).has_room
        written = self._write(batch, state, in_memory=in_memory) if state.active else None
        if written is None or (written and in_memory):
            self._outgoing.put(batch)

    def _write(self, batch: Batch, state: _Topic, *, in_memory: bool) -> bool | None:
        """Writes a batch; returns whether it is in the spool. False: it was dropped; None: only memory can take it."""
        if not (in_memory or self._spool.has_room(len(batch.data)) or self._make_room(batch)):
            shares = [Share(c.receipt.origin, c.count) for c in batch.claims]
            if not self._note(shares, "spool full: newest dropped"):
                return None
            self._owner.dropped(batch)
            return False
        return self._append(batch, state, in_memory=in_memory)

    def _append(self, batch: Batch, state: _Topic, *, in_memory: bool) -> bool | None:
        if batch.sequence < 0:
            stamp(batch.data, -1, -1, -1)
        shares = [Share(c.receipt.origin, c.count) for c in batch.claims]
        try:
            batch.spooled = self._spool.append(
                batch.topic, batch.data, batch.count, shares, batch.key, number=batch.number
            )
        except SpoolError as e:
            self._fails(e)
            return None
        self._broken = False
        self._owner.spooled(batch)
        self._unsafe.append(batch)
        if in_memory:
            self._spool.in_memory(batch.topic)
            state.under_way[batch.spooled] = 1
        else:
            self._owner.let_go(batch)
            batch.data = bytearray()
        return True

    def _make_room(self, batch: Batch) -> bool:
        if self._settings.drop != "oldest":
            return self._settings.drop == "block"  # the agent reads nothing more until there is room
        while not self._spool.has_room(len(batch.data)):
            if not self._spool.drop_oldest(
                lambda _, shares: self._note(shares, "spool full: oldest dropped")
            ):
                return False
        return True

    def _note(self, shares: list[Share], why: str, *, policy: bool = True) -> bool:
        if not self._dropped(ranges(shares), why, policy):
            return False
        self.dropped_records += sum(s.records for s in shares)
        return True

    def _fails(self, error: SpoolError) -> None:
        self._broken = True
        self._owner.say(f"{error}; the agent continues in memory")

    # ---- what becomes of batches

    def delivered(self, batch: Batch) -> None:
        """Takes note that a broker has the batch, or that it was given up."""
        if batch.spooled < 0:
            return
        state = self._topics[batch.topic]
        state.under_way[batch.spooled] -= 1
        acked = -1
        while state.under_way and not next(iter(state.under_way.values())):
            acked = state.under_way.popitem(last=False)[0]
        if acked >= 0:
            self._spool.acknowledged(batch.topic, acked)
        if batch.number:
            self._passed[batch.number] = batch.topic, batch.spooled

    def split(self, batch: Batch, halves: list[Batch]) -> None:
        if batch.spooled >= 0:
            self._topics[batch.topic].under_way[batch.spooled] += len(halves) - 1
            for batches in (self._unsafe, self._doubtful):
                if batch in batches:
                    at = batches.index(batch)
                    batches[at : at + 1] = halves

    # ---- now and then

    def tick(self, now: float) -> None:
        """Begins and ends spooling, makes written batches safe, and reads batches that there is room for."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look(now)
        self._fill()
        if self._unsafe and now >= self._sync_at:
            self.sync()
            self._sync_at = time.monotonic() + _SYNC_S
        if self._doubtful:
            self._settle_doubtful()
        if now >= self._save_at:
            self._save()
            self._save_at = now + _SAVE_S

    def _look(self, now: float) -> None:
        for name, topic in self._outgoing.known.items():
            state = self._topics.setdefault(name, _Topic(active=self._settings.when == "always"))
            in_trouble = self._outgoing.brokers_away or bool(topic.why)
            if not in_trouble:
                state.trouble_since = None
            elif state.trouble_since is None:
                state.trouble_since = now
            elif not state.active and now - state.trouble_since >= PATIENCE_S:
                self._begin(name, state)

    def _begin(self, name: str, state: _Topic) -> None:
        """Begins to spool a topic: its batches in memory go to disk first.

        Parts of a batch stay in memory where there is a write-ahead log: this has the whole, under one number for all of them.
        """
        state.active = True
        for batch in self._outgoing.batches(name):
            if batch.part and self._owner.has_log:
                continue
            if batch.spooled < 0 and not self._write(batch, state, in_memory=True):
                break

    def _fill(self) -> None:
        for name, state in self._topics.items():
            if not state.active:
                continue
            topic = self._outgoing.topic(name)
            while topic.has_room and not self._outgoing.brokers_away and self._spool.is_unread(name):
                if (found := self._read(name)) is not None:
                    batch = self._taken_back(name, state, found)
                    self._owner.taken_back(batch)
                    self._outgoing.put(batch)
            busy = self._spool.is_unread(name) or state.under_way or state.trouble_since is not None
            state.active = bool(busy) or self._settings.when == "always"

    def _read(self, name: str) -> StoredBatch | None:
        """Reads a topic's next batch; None when it is damaged."""
        found = self._spool.read(name)
        if isinstance(found, Damaged):
            self._owner.say(f"spool: {found.why}: {sum(s.records for s in found.shares)} records are lost")
            self._note(found.shares, f"spool damaged: {found.why}", policy=False)
            return None
        return found

    @staticmethod
    def _taken_back(name: str, state: _Topic, found: StoredBatch) -> Batch:
        claims = [Claim(Receipt(name, s.origin, s.records), s.records) for s in found.shares]
        batch = Batch(name, found.data, found.records, claims, found.key)
        batch.spooled, batch.safe, batch.number = found.end, True, found.number
        state.under_way[found.end] = 1
        return batch

    def sync(self) -> None:
        """Makes written batches safe on disk: they count as delivered."""
        unsafe, self._unsafe = self._unsafe, []
        try:
            self._spool.sync()
        except SpoolError as e:
            # A second fsync may succeed without the data: checkpoints wait until brokers have these batches
            self._doubtful += unsafe
            self._fails(e)
            return
        for batch in unsafe:
            self._owner.settled(batch)

    def _settle_doubtful(self) -> None:
        """Settles doubtful batches that brokers have. A batch that was read from the disk again has receipts of its own, so its offset
        tells.
        """
        waiting = self._doubtful
        self._doubtful = [p for p in waiting if not p.safe and p.spooled > self._spool.acked(p.topic)]
        for batch in waiting:
            if batch.spooled <= self._spool.acked(batch.topic):
                self._owner.settled(batch)

    def _save(self) -> None:
        try:
            self._spool.save()
        except SpoolError as e:
            self._fails(e)
            return
        passed = {n for n, (topic, end) in self._passed.items() if end <= self._spool.acked(topic)}
        for number in passed:
            del self._passed[number]
        self._owner.spool_forgot(passed)

    def close(self) -> None:
        self._spool.close()
