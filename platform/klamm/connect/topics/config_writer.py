"""Writes to the config topic: one change at a time, in order, and read back.

Most changes are the leader's alone; any worker may pause, resume and set log levels, as in Kafka. A
worker that has lost contact with its group writes nothing, because another may have taken over. With
`exactly.once.source.support` the leader writes in transactions, which fence the leader before it
(KIP-618).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient

from klamm.connect.errors import Conflict
from klamm.connect.topics.config_topic import (
    ConfigState,
    Record,
    SessionKey,
    TargetState,
    session_key_record,
    task_records,
)
from klamm.connect.topics.fenced_writer import Fenced, FencedWriter
from klamm.connect.topics.kafka_log import RecordTooLarge, record_limit
from klamm.connect.topics.storage import RecordLog, RecordWriter
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

CLAIM_RETRY_S: Final = 1.0  # then twice as long each time
CLAIM_RETRY_MAX_S: Final = 30.0


class Leadership(Protocol):
    """The worker's standing in its group; `herding.cluster.Cluster` documents each method."""

    async def require_leader(self) -> None: ...
    def check_alive(self) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...


class ConfigWriter:
    """See the module. `configs` is the state that `log` reads. A caller that reads it, decides and writes
    holds `lock` meanwhile. `busy` is set while records are written: `on_written` then acts on all their
    changes together.
    """

    def __init__(
        self,
        fenced: FencedWriter | None,
        *,
        configs: ConfigState,
        log: RecordLog,
        producer: RecordWriter,
        admin: AdminClient,
        leadership: Leadership,
        on_written: Callable[[], None],
    ) -> None:
        self.configs = configs
        self.log = log
        self.lock = asyncio.Lock()
        self.busy = False
        self._producer = producer
        self._admin = admin
        self._leadership = leadership
        self._on_written = on_written
        self._fenced = fenced
        self._may_claim = True  # until the group has said who leads, nobody asks but who is alone
        self._claiming = asyncio.Lock()

    def assigned(self, *, leads: bool) -> None:
        """Note that the group has met, and whether this worker leads now."""
        self._may_claim = leads
        if self._fenced is not None and not leads:
            self._fenced.release()

    async def claim_soon(self) -> None:
        """Claim the right to write: a new leader's first duty, as an open transaction of its predecessor keeps all
        from reading on.
        """
        wait_s = CLAIM_RETRY_S
        while self._fenced is not None and self._may_claim:
            try:
                await self.prepare()
            except KlammError as e:
                log.warning("the right to write to the config topic is not claimed yet: %s", e)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, CLAIM_RETRY_MAX_S)
            else:
                return

    async def prepare(self) -> None:
        """As the leader, before any decision: fence earlier leaders, and read what they wrote.

        Raises LogError, and Conflict for a leader that another has followed, or may have followed.
        """
        fenced = self._fenced
        if fenced is None:
            return
        async with self._claiming:
            if fenced.claimed:
                return
            self._check_may_claim()
            self._leadership.check_alive()
            await fenced.claim()
            if not self._may_claim:  # while it took its time
                fenced.release()
            self._check_may_claim()
            await self.log.read_to_end()

    def _check_may_claim(self) -> None:
        if not self._may_claim:
            raise Conflict("Another worker leads the group by now; try again")

    async def write(self, records: Sequence[Record], *, by_leader: bool = True) -> None:
        """Write records in order, read them back, and act on them. Raises LogError, NotTheLeader, Conflict.

        The last record (the commit of task configs, the tombstone) follows when the others are acknowledged.
        When some records cannot be written, the worker acts on those that were.
        """
        *first, last = records
        topic, producer, leadership = self.log.topic, self._producer, self._leadership
        if by_leader:
            await leadership.require_leader()
        leadership.check_alive()
        self.busy = True
        try:
            if by_leader and self._fenced is not None:
                await self._fenced.write(topic, records)
            else:
                await asyncio.gather(*(producer.send(topic, key, value) for key, value in first))
                leadership.check_alive()
                await producer.send(topic, *last)
            await self.log.read_to_end()
        except Fenced as e:
            self._may_claim = False
            leadership.request_rejoin("another worker has written as the leader")
            raise Conflict(f"Another worker leads the group by now; try again ({e})") from None
        except RecordTooLarge:
            raise await self._too_large(records) from None
        finally:
            self.busy = False
            self._on_written()

    async def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """As the leader, commit task configs; not those of a connector that was deleted or stopped meanwhile, and
        only if they are still `wanted` when their turn comes.
        """
        configs_now = self.configs
        async with self.lock:
            if wanted() and name in configs_now and configs_now.target(name) is not TargetState.STOPPED:
                await self.write(task_records(name, configs))

    async def put_session_key(self, key: SessionKey, wanted: Callable[[], bool]) -> None:
        """Write the group's session key, as the leader, if it is still `wanted` when its turn comes."""
        async with self.lock:
            if wanted():
                await self.write([session_key_record(key)])

    async def publish(self, records: Sequence[Record]) -> None:
        """Write records when it is their turn."""
        async with self.lock:
            await self.write(records)

    async def _too_large(self, records: Sequence[Record]) -> RecordTooLarge:
        """Returns the error for records of which one is larger than the config topic takes."""
        topic, most = self.log.topic, self._producer.record_max
        limit, setting = await asyncio.to_thread(record_limit, self._admin, topic, most)
        key, value = max(records, key=lambda record: len(record[1] or b""))
        size = len(key.encode()) + len(value or b"")
        return RecordTooLarge(
            f"The record {key} is too large for the config topic {topic}: {size} bytes (and some 100 around them), "
            f"where {setting} allows {limit}"
        )
