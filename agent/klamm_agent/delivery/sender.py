"""The sender: it delivers record values and says when a whole block is acknowledged. It holds the memory bound.

The sender gathers values of one topic (and partition, where there are keys) up to `batch.size` or `linger.ms` and encodes them at
once. `outgoing` sends the batches with sequence numbers: nothing is written twice while the agent runs. The agent drops nothing by
itself, except a record that is too large for the topic, which would block all behind it. It then calls `refused`.
One thread, which drives the event loop of the sockets in `poll`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm_agent.config.producer import ProducerSettings
from klamm_agent.config.spool import SpoolSettings
from klamm_agent.delivery.ahead import Ahead
from klamm_agent.delivery.batches import Batch, Claim, Mark, Origin, Receipt
from klamm_agent.delivery.encode import KeyedValues, encode_batch
from klamm_agent.delivery.outgoing import Limit, Outgoing
from klamm_agent.delivery.spooling import NoteDropped, Spooling
from klamm_agent.delivery.wal.entries import Note
from klamm_agent.delivery.wal.log import WriteAheadLog
from klamm_base.sparing import Sparing
from klamm_kafka.client import Cluster, OneCluster
from klamm_kafka.wire.batch import decode_records

log = logging.getLogger(__name__)

_SAID_AGAIN_S: Final = 60.0  # the same trouble is logged at most this often
_RECORD_COST: Final = 64  # bytes that a record takes before it is encoded, besides its value
_ROUNDS: Final = 4  # of the event loop: an answer needs them from the socket to its batch
_CLOSE_S: Final = 2.0
_QUIET_S: Final = 2.0  # without an acknowledgement, while leaders hang: the others have answered by then


@dataclass(slots=True)
class _OpenBatch:
    """Values gathered for one batch that is not encoded yet."""

    topic: str
    key: bytes | None
    since: float
    keyed: list[KeyedValues] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    size: int = 0
    count: int = 0
    cost: int = 0


class Sender:
    """The agent's producer. `queue_bytes` bounds its memory; each topic has an equal share, which it may exceed by one block.

    `dropped` notes what the spool gives up (`spooling.NoteDropped`). `name` is the client id, unless the settings have one.
    `refused(receipt, size)` is told of a record that is too large for its topic. `bandwidth` is in bytes per second. Batches go into
    `wal` before they are sent; those that an agent left there go first. `one` is the cluster that may have them. Raises WalError when the
    log cannot be read.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: ProducerSettings,
        *,
        name: str = "klamm-agent",
        queue_bytes: int,
        topics: int,
        refused: Callable[[Receipt, int], None],
        bandwidth: int | None = None,
        spool: SpoolSettings | None = None,
        dropped: NoteDropped = lambda ranges, why, policy: False,
        wal: WriteAheadLog | None = None,
        one: OneCluster | None = None,
    ) -> None:
        self._settings, self._refused = settings, refused
        self._share = max(1, queue_bytes // max(1, topics))
        self._most = 2 * queue_bytes
        self._flying: dict[str, int] = {}
        self._total = 0
        self._owed = 0  # records that are not safe
        self._batches = 0
        self._sealed: list[Batch] = []  # encoded, and not in the write-ahead log yet
        self._where: dict[
            object, tuple[str, bytes | int | None]
        ] = {}  # of files' last records that are gathered
        self._open: dict[tuple[str, bytes | int | None], _OpenBatch] = {}
        self._said = Sparing(_SAID_AGAIN_S)
        self._away = False
        self.acked = 0  # records
        self._loop: asyncio.AbstractEventLoop | None = None  # until the first poll
        self._running: asyncio.Task[None] | None = None
        self._waiting = False
        one = OneCluster() if one is None else one
        cluster = Cluster(
            bootstrap,
            client_id=settings.client_id or name,
            timeout_s=settings.connect_timeout,
            patience_s=0,
            security=settings.security,
            one=one,
        )
        self._cluster = cluster
        self._outgoing = Outgoing(cluster, one, settings, Limit(bandwidth), self)
        self._spooling = None if spool is None else Spooling(spool, self._outgoing, self, dropped)
        self._ahead = Ahead(wal, self.say)
        self._resume()

    def _resume(self) -> None:
        """Takes back what an agent before had sent, from write-ahead log and spool."""
        spooling = self._spooling
        batches = self._ahead.resume(set() if spooling is None else spooling.numbers())
        for batch in batches:
            self._owed += batch.count
        if spooling is not None:
            batches += spooling.resume(self._ahead.in_spool)
        for batch in batches:
            self._count(batch.topic, batch.cost)
        self._outgoing.resume(sorted(batches, key=lambda batch: batch.number))

    # ---- for the agent

    def has_room(self, topic: str) -> bool:
        if self._sealed:
            return False
        if self._spooling is not None and (by_disk := self._spooling.has_room(topic)) is not None:
            return by_disk
        if self._total >= self._most or self._flying.get(topic, 0) >= self._share:
            return False
        return self._outgoing.topic(topic).has_room

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Tells whether lines of a key wait for the leader of their partition, which has not said how far the agent before had got."""
        return key is not None and self._outgoing.holds(topic, key)

    @property
    def unanswered(self) -> list[str]:
        """Partitions whose leaders have not said for long which lines of before the start they have."""
        return self._outgoing.unanswered()

    @property
    def waits(self) -> bool:
        """True while some record is neither acknowledged nor in the spool."""
        return self._owed > 0

    @property
    def owed(self) -> dict[tuple[int, int], int]:
        """The files with lines that an agent before had read and that are not acknowledged, with the positions where these begin; (0, 0)
        stands for streams.
        """
        return self._ahead.owed

    @property
    def is_stuck(self) -> bool:
        """True while the write-ahead log has no room."""
        return bool(self._sealed)

    @property
    def brokers_away(self) -> bool:
        return self._outgoing.brokers_away

    @property
    def another_cluster(self) -> str:
        """While brokers of another cluster answer in place of ours: the reason to wait. Otherwise empty."""
        return self._outgoing.away_why if self.brokers_away else ""

    @property
    def troubles(self) -> dict[str, str]:
        """Topics that take nothing now, each with the reason."""
        return {name: why for name, topic in self._outgoing.known.items() if (why := topic.why)}

    def send(
        self,
        topic: str,
        values: list[bytes],
        size: int,
        key: bytes | None,
        origin: Origin,
        *,
        mark: Mark | None = None,
        part: bool = False,
    ) -> Receipt:
        """Sends `values` of `size` bytes together; returns the receipt for them.

        `part`: other values of the same block follow, until `commit`. The write-ahead log gets all batches with records of a block at
        once: it never has a part of a block.
        """
        receipt = Receipt(topic, origin, len(values), mark)
        self._owed += len(values)
        place: bytes | int | None = None
        if key is not None:
            partition = self._outgoing.place_of(topic, key)
            place = key if partition is None else partition
        self._keep_order(origin, (topic, place))
        batches = max(1, round(size / self._settings.batch_bytes))
        if batches == 1 or len(values) < 2:
            self._gather(receipt, values, size, key, place)
        else:
            step = -(-len(values) // batches)
            for at in range(0, len(values), step):
                some = values[at : at + step]
                self._gather(receipt, some, sum(map(len, some)), key, place)
            if (topic, place) in self._open:
                self._seal((topic, place))
        if not part:
            self._commit()
        return receipt

    def _keep_order(self, origin: Origin, place: tuple[str, bytes | int | None]) -> None:
        """Lets a file's records that are gathered elsewhere go first: the write-ahead log says how far a file is delivered."""
        if not self._open:
            self._where.clear()
        who = origin.inode if any(origin.inode) else origin.path
        before = self._where.get(who, place)
        if before != place and before in self._open:
            self._seal(before)
        self._where[who] = place

    def commit(self, topics: Sequence[str] | None = None) -> None:
        """Encodes what is gathered for `topics` (None: for all), and gives it to the write-ahead log at once."""
        for at in [at for at in self._open if topics is None or at[0] in topics]:
            self._seal(at)
        self._commit()

    def _gather(
        self, receipt: Receipt, values: list[bytes], size: int, key: bytes | None, place: bytes | int | None
    ) -> None:
        if not values:
            return
        opened = self._open.get((receipt.topic, place))
        full = self._settings.batch_bytes
        if opened is not None and opened.size + size > full + full // 4:
            self._seal((receipt.topic, place))
            opened = None
        if opened is None:
            opened = self._open[receipt.topic, place] = _OpenBatch(receipt.topic, key, time.monotonic())
        opened.keyed.append((key, values))
        opened.claims.append(Claim(receipt, len(values)))
        opened.size += size
        opened.count += len(values)
        cost = size + _RECORD_COST * len(values)
        opened.cost += cost
        self._count(receipt.topic, cost)
        if opened.size >= full - full // 8:
            self._seal((receipt.topic, place))

    def figures(self) -> dict[str, int]:
        """Returns figures for status and metrics: what is in memory and in the spool, and what was done."""
        spooling = self._spooling
        return {
            "queued_bytes": self._total,
            "batches": self._batches,
            "resumed": self._ahead.resumed,
            "unproved": self._ahead.unproved,
            "unanswered": len(self.unanswered),
            "spool_bytes": spooling.size if spooling else 0,
            "spool_records": spooling.records if spooling else 0,
            "spool_dropped": spooling.dropped_records if spooling else 0,
        }

    def _count(self, topic: str, cost: int) -> None:
        self._flying[topic] = self._flying.get(topic, 0) + cost
        self._total += cost

    def _seal(self, at: tuple[str, bytes | int | None]) -> None:
        opened = self._open.pop(at)
        settings = self._settings
        now_ms = time.time_ns() // 1_000_000
        data = encode_batch(opened.keyed, now_ms, settings.codec, settings.level)
        batch = Batch(opened.topic, data, opened.count, opened.claims, opened.key)
        self._batches += 1
        self._count(opened.topic, batch.cost - opened.cost)
        self._sealed.append(batch)

    def _commit(self) -> None:
        """Lets encoded batches go out once the write-ahead log has them."""
        if not self._sealed or not self._ahead.commit(self._sealed):
            return
        sealed, self._sealed = self._sealed, []
        for batch in sealed:
            if self._spooling is None:
                self._outgoing.put(batch)
            else:
                self._spooling.put(batch)

    def poll(self, timeout_s: float) -> None:
        """Sends and receives; waits up to `timeout_s` for an answer."""
        now = time.monotonic()
        due = self._seal_due(now)
        self._commit()
        if timeout_s > 0:
            self._ahead.flush()
        if self._spooling is not None:
            self._spooling.tick(now)
        if due is not None:
            timeout_s = min(timeout_s, due)
        self._turn(timeout_s)

    def _seal_due(self, now: float) -> float | None:
        """Encodes the batches that have waited long enough; returns the seconds until the next one has."""
        linger = self._settings.linger
        for at, opened in list(self._open.items()):
            if now - opened.since >= linger:
                self._seal(at)
        oldest = min((o.since for o in self._open.values()), default=None)
        return None if oldest is None else max(0.0, oldest + linger - now)

    def _turn(self, timeout_s: float) -> None:
        loop = self._loop
        if loop is None or self._running is None:
            loop = self._loop = asyncio.new_event_loop()
            self._running = loop.create_task(self._outgoing.run())
        if self._running.done():
            self._running.result()
            raise AssertionError("the sender has ended")
        if timeout_s > 0:
            timer = loop.call_later(timeout_s, loop.stop)
            self._waiting = True
            loop.run_forever()
            self._waiting = False
            timer.cancel()
        else:
            loop.call_soon(_round, loop, _ROUNDS)
            loop.run_forever()

    def drain(self, timeout_s: float) -> bool:
        """Waits until everything is acknowledged, at most `timeout_s`; returns whether it is.

        Where leaders do not say what they have, it waits no longer than for answers of the others: the write-ahead log keeps the rest.
        """
        self.commit()
        now = time.monotonic()
        deadline, quiet, acked = now + timeout_s, now + _QUIET_S, self.acked
        while self.waits and now < deadline:
            self.poll(0.05)
            now = time.monotonic()
            if self.acked != acked or self.is_stuck or not self.unanswered:
                quiet, acked = now + _QUIET_S, self.acked
            elif now >= quiet:
                break
        return not self.waits

    def close(self) -> None:
        """Closes the connections; unacknowledged records stay so."""
        self._ahead.flush()
        if self._spooling is not None:
            self._spooling.close()
        if self._loop is None or self._running is None:
            return
        self._running.cancel()
        self._loop.run_until_complete(asyncio.wait([self._running, self._loop.create_task(self._end())]))
        self._loop.close()
        self._loop = self._running = None

    async def _end(self) -> None:
        await self._cluster.close()
        await self._outgoing.drain(_CLOSE_S)

    # ---- called by Outgoing and Spooling

    @property
    def has_log(self) -> bool:
        return self._ahead.is_on

    def settled(self, batch: Batch) -> None:
        if not batch.safe:
            batch.safe = True
            for claim in batch.claims:
                claim.receipt.left -= claim.count
                self._owed -= claim.count

    def spooled(self, batch: Batch) -> None:
        self._ahead.spooled(batch)

    def spool_forgot(self, numbers: set[int]) -> None:
        self._ahead.spool_forgot(numbers)

    def dropped(self, batch: Batch) -> None:
        self.settled(batch)
        self._ahead.settled(batch)
        self.let_go(batch)

    def let_go(self, batch: Batch) -> None:
        self._count(batch.topic, -batch.cost)

    def taken_back(self, batch: Batch) -> None:
        self._count(batch.topic, batch.cost)

    def delivered(self, batch: Batch) -> None:
        self.settled(batch)
        self._ahead.settled(batch)
        self.acked += batch.count
        self._count(batch.topic, -batch.cost)
        if self._spooling is not None:
            self._spooling.delivered(batch)
        if self._away:
            self._away = False
            log.info("the broker answers again")

    def given_up(self, batch: Batch) -> None:
        self.settled(batch)
        self._ahead.settled(batch)
        self._count(batch.topic, -batch.cost)
        if self._spooling is not None:
            self._spooling.delivered(batch)
        if batch.claims:
            self._refused(batch.claims[0].receipt, len(decode_records(batch.data)[0].value or b""))

    def going(self, notes: list[Note]) -> None:
        self._ahead.going(notes)

    def doubted(self, topic: str, batches: Sequence[Batch], why: str) -> None:
        records = sum(batch.count for batch in batches)
        self._ahead.doubted(records)
        if records:
            log.warning("topic %s: %d lines are sent again and may come twice: %s", topic, records, why)

    def split(self, batch: Batch, halves: list[Batch]) -> None:
        self._ahead.halved(batch, len(halves))
        if self._spooling is not None:
            self._spooling.split(batch, halves)
        self._count(batch.topic, sum(half.cost for half in halves) - batch.cost)

    def say(self, what: str, about: str | None = None) -> None:
        self._said.warning(log, about or what, what)

    def woken(self) -> None:
        self._away = self._away or self._outgoing.brokers_away
        if self._waiting and self._loop is not None:
            self._loop.stop()


def _round(loop: asyncio.AbstractEventLoop, left: int) -> None:
    """Stops the loop after `left` rounds through what is ready."""
    if left > 1:
        loop.call_soon(_round, loop, left - 1)
    else:
        loop.stop()
