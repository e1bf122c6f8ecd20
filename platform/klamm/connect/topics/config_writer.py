"""Writes to the config topic: one change at a time, in order, read back, by whom it may be.

Most changes are the leader's alone; pausing, resuming and log levels are any worker's, as in Kafka. A worker that has
lost contact with its group writes nothing, as another one may have taken its place. With `exactly.once.source.support`
the leader writes in transactions: what it does fences the leader before it (KIP-618).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm.connect.errors import Conflict
from klamm.connect.topics.config_topic import Record, TargetState, task_records
from klamm.connect.topics.fenced_writer import Fenced, FencedWriter
from klamm.connect.topics.kafka_log import RecordTooLarge, record_limit
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.connect.runtime import Runtime

log = logging.getLogger(__name__)

CLAIM_RETRY_S: Final = 1.0  # then twice as long each time
CLAIM_RETRY_MAX_S: Final = 30.0


class ConfigWriter:
    """See the module. `busy` while records are written: what they change is acted on together afterwards."""

    def __init__(self, runtime: Runtime, client: Mapping[str, Any]) -> None:
        self._runtime = runtime
        self.busy = False
        config = runtime.config
        self._fenced = FencedWriter(client, config["group.id"]) if config.transactional_leader else None
        self._may_claim = True  # until the group has said who leads, nobody asks but who is alone
        self._claiming = asyncio.Lock()

    def assigned(self, *, leads: bool) -> None:
        """The group has met."""
        self._may_claim = leads
        if self._fenced is not None and not leads:
            self._fenced.release()

    async def claim_soon(self) -> None:
        """A new leader's first duty. What its predecessor left open in the config topic keeps everybody from reading on."""
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
        """As the leader, before anything is decided: nobody before this one writes any more, and what they wrote is read.

        Raises LogError, and Conflict for a leader that has been followed by another one, or may have been.
        """
        fenced = self._fenced
        if fenced is None:
            return
        async with self._claiming:
            if fenced.claimed:
                return
            self._check_may_claim()
            self._runtime.cluster.check_alive()
            await fenced.claim()
            if not self._may_claim:  # while it took its time
                fenced.release()
            self._check_may_claim()
            await self._runtime.config_log.read_to_end()

    def _check_may_claim(self) -> None:
        if not self._may_claim:
            raise Conflict("Another worker leads the group by now; try again")

    async def write(self, records: Sequence[Record], *, by_leader: bool = True) -> None:
        """Write records in order, read them back, and act on them. Raises LogError, NotTheLeader, Conflict.

        The last record (the commit of task configs, the tombstone) follows when the others are acknowledged.
        They are acted on together; when some could not be written, on those that were.
        """
        *first, last = records
        runtime = self._runtime
        topic, producer = runtime.config_log.topic, runtime.producer
        if by_leader:
            await runtime.cluster.require_leader()
        runtime.cluster.check_alive()
        self.busy = True
        try:
            if by_leader and self._fenced is not None:
                await self._fenced.write(topic, records)
            else:
                await asyncio.gather(*(producer.send(topic, key, value) for key, value in first))
                runtime.cluster.check_alive()
                await producer.send(topic, *last)
            await runtime.config_log.read_to_end()
        except Fenced as e:
            self._may_claim = False
            runtime.cluster.request_rejoin("another worker has written as the leader")
            raise Conflict(f"Another worker leads the group by now; try again ({e})") from None
        except RecordTooLarge:
            raise await self._too_large(records) from None
        finally:
            self.busy = False
            runtime.act_on_changes()

    async def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Commit task configs, as the leader. Not those of a connector that is gone, or has been stopped, meanwhile, nor
        what is not `wanted` any more when it is their turn.
        """
        configs_now = self._runtime.configs
        async with self._runtime.config_lock:
            if wanted() and name in configs_now and configs_now.target(name) is not TargetState.STOPPED:
                await self.write(task_records(name, configs))

    async def _too_large(self, records: Sequence[Record]) -> RecordTooLarge:
        """The sentence for records of which one is larger than the config topic takes."""
        runtime = self._runtime
        topic, most = runtime.config_log.topic, runtime.producer.record_max
        limit, setting = await asyncio.to_thread(record_limit, runtime.admin, topic, most)
        key, value = max(records, key=lambda record: len(record[1] or b""))
        size = len(key.encode()) + len(value or b"")
        return RecordTooLarge(
            f"The record {key} is too large for the config topic {topic}: {size} bytes (and some 100 around them), "
            f"where {setting} allows {limit}"
        )
