"""The beginning of a source task that writes exactly once: its producer takes over before it reads its offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.security import ClientSecurity
from klamm_kafka.client import ClientError, Cluster, ProducerFenced, TransactionFailed
from klamm_kafka.client.transactional import TransactionalProducer
from klamm_mirror.copy.changes import Committed
from klamm_mirror.copy.copier import CopierSettings
from klamm_mirror.copy.exactly_once import ExactlyOnce
from klamm_plugins.connector import DriverTaskContext
from klamm_plugins.errors import ConnectError, RetriableError

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
ISOLATION: Final = "source.consumer.isolation.level"

Offsets = Callable[[Committed], Sequence[tuple[dict[str, Any], dict[str, Any]]]]


class TransactionalBeginning:
    """Begins a task again and again, and remembers its producer, so that it notices another one (KIP-360)."""

    def __init__(self, context: DriverTaskContext, settings: CopierSettings) -> None:
        if not settings.fetch.committed_only:
            raise ConfigError(
                f"{ISOLATION}=read_uncommitted would copy aborted records: exactly.once.source.support=enabled needs "
                "read_committed",
                key=ISOLATION,
            )
        self._context = context
        self._settings = settings
        self.after: str | None = None
        """The reason for which the copying before ended, as an error; None: it did not."""
        self._previous = (-1, -1)
        self._same_cluster = False

    async def begin(
        self, stack: AsyncExitStack, offsets: Offsets, settle: Callable[[], Awaitable[None]], records: int
    ) -> ExactlyOnce | None:
        """Returns what the copying needs, when the target has given us the producer; None when the task must stop."""
        transactions = self._context.transactions
        assert transactions is not None, "exactly once"
        target = await stack.enter_async_context(self._settings.target.cluster())
        producer = TransactionalProducer(
            target,
            transactions.transactional_id,
            timeout_ms=self._settings.producer.transaction_timeout_ms,
            previous=self._previous,
        )
        if not await self._alive(self._take_over(target, producer), producer, records):
            return None
        self.after = None
        return ExactlyOnce(
            producer=producer,
            target=target,
            offsets_topic=transactions.offsets_topic,
            interval_s=self._settings.transaction_interval_s,
            encode=lambda committed: transactions.encode(offsets(committed)),
            settle=settle,
        )

    async def _take_over(self, target: Cluster, producer: TransactionalProducer) -> None:
        transactions = self._context.transactions
        assert transactions is not None, "exactly once"
        if not self._same_cluster:
            await self._check_cluster(target)
            self._same_cluster = True
        await asyncio.to_thread(transactions.fence)
        try:
            self._previous = await producer.init()
        except ProducerFenced as e:
            raise RetriableError(f"Another task writes in place of this one: {e}") from None
        except TransactionFailed:
            self._previous = (-1, -1)
            raise
        except ClientError as e:
            raise ConnectError(f"The target gives no transactional producer: {e}") from None
        await asyncio.to_thread(transactions.confirm)

    async def _check_cluster(self, target: Cluster) -> None:
        """Raises ConfigError unless the workers' offsets are at the target: a transaction is within one cluster."""
        props = self._context.client_properties("admin")
        security = ClientSecurity.from_properties(props)
        async with Cluster(props["bootstrap.servers"], security=security) as workers:
            while True:
                try:
                    ids = [(await c.refresh([])).cluster_id for c in (workers, target)]
                    break
                except ClientError as e:
                    if not e.retriable:
                        raise ConnectError(f"The clusters cannot be compared: {e}") from None
                    await asyncio.sleep(TICK_S * 5)
        if ids[0] != ids[1]:
            raise ConfigError(
                f"exactly.once.source.support=enabled: the workers' offsets are at cluster {ids[0]} "
                f"({props['bootstrap.servers']}), the records go to {ids[1]}: run the connector on workers at the target",
                key="target.cluster.bootstrap.servers",
            )

    async def _alive(self, work: Any, producer: TransactionalProducer, records: int) -> bool:
        """Awaits while it shows that the task lives. Returns False when the task must stop before."""
        working = asyncio.ensure_future(work)
        try:
            while not working.done():
                if self._context.stopping.is_set():
                    return False
                why = f"{producer.why} ({self.after})" if producer.why and self.after else producer.why
                self._context.progress(records, waiting_for="target", details={"why": why} if why else {})
                await asyncio.wait([working], timeout=TICK_S)
            working.result()
        finally:
            working.cancel()
        return True
