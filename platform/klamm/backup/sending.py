"""Sends restored batches: idempotent, in order, each to the offset that the plan gave it.

The place of a record in the target is known before it is sent, because a restored log has no holes. An answer with another place means that
somebody else writes to the topic; the restore ends there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.backup.errors import BackupError
from klamm.backup.together import together
from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.client.idempotent import TOO_LARGE, IdempotentSender
from klamm_kafka.client.outbox import Outbox
from klamm_kafka.wire.messages.produce import PartitionProduceResponse
from klamm_mirror.copy.splitting import smaller
from klamm_mirror.raw import Batch

HELD_BYTES: Final = 16 << 20
"""Bytes of a partition that wait for an acknowledgement; more are not read."""


@dataclass(slots=True, eq=False, kw_only=True)
class Target(Outbox[Batch]):
    """The batches for one partition. `room` is set when something was acknowledged."""

    held: int = 0
    records: int = 0
    """The records that were acknowledged."""
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, batch: Batch) -> None:
        self.held += len(batch.data)
        self.put([batch])

    async def wait(self, held: int) -> None:
        """Wait until no more than so many bytes are not acknowledged."""
        while self.held > held:
            self.room.clear()
            await self.room.wait()


class RestoreSender(IdempotentSender[Target, Batch]):
    """A sender with a client of its own. `run` raises BackupError for what no repetition cures."""

    def __init__(self, cluster: Cluster, targets: Sequence[Target]) -> None:
        super().__init__(cluster, ())
        self._targets = targets
        for target in targets:
            target.busy = self.outboxes

    def every_outbox(self) -> Iterable[Target]:
        return self._targets

    def delivered(self, outbox: Target, parcel: Batch, offset: int) -> None:
        if 0 <= parcel.base != offset >= 0:
            raise BackupError(
                f"{outbox}: the broker put a batch at offset {offset}, where {parcel.base} was due: somebody else writes "
                "to this topic"
            )
        outbox.held -= len(parcel.data)
        outbox.records += parcel.count
        outbox.delivered(parcel)
        outbox.room.set()

    async def refused(
        self, outbox: Target, parcel: Batch, error: BrokerError, answer: PartitionProduceResponse
    ) -> None:
        parts = smaller(parcel, len(parcel.data)) if error.code in TOO_LARGE else []
        if len(parts) < 2:
            said = f": {answer.error_message}" if answer.error_message else ""
            raise BackupError(
                f"{outbox} does not take the records from offset {parcel.first} on: {error}{said}"
            )
        base = parcel.base
        for part in parts:
            part.base, base = base, base + part.count
        outbox.held += sum(len(p.data) for p in parts) - len(parcel.data)
        outbox.replaced(parcel, parts)

    def unusable(self, error: ClientError) -> Exception | None:
        return BackupError(f"the cluster cannot be written to: {error}")


async def sending(sender: RestoreSender, parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run a sender until all parts have ended that give it batches. Raises the first error of either."""
    tasks = [asyncio.create_task(sender.run()), asyncio.create_task(together(parts))]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
