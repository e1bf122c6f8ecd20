"""Reads one side of a partition as rows, from an offset on: repeats what may pass, and jumps over what was deleted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from klamm_base.backoff import Backoff
from klamm_base.errors import KlammError
from klamm_kafka.client import BrokerError, ClientError, Cluster
from klamm_kafka.wire.batch import check_crc, decode_records
from klamm_kafka.wire.errors import ErrorCode, ProtocolError
from klamm_kafka.wire.messages.fetch import PartitionData
from klamm_kafka.wire.offset_specs import EARLIEST
from klamm_mirror.raw import Aborted, whole_batches
from klamm_mirror.topics import internal_topics
from klamm_mirror.verify.rows import AFTER_GAP, Row, rows_of

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

FETCH_BYTES: Final = 4 << 20
GIVE_UP_S: Final = 60.0
"""The time for which a cluster may be away."""


class CannotCompareError(KlammError):
    """A cluster cannot be read."""


class TimestampsDifferError(Exception):
    """The target's broker sets the timestamps of this topic's records."""


class LogReader:
    """A reader of one log. `position` is the next offset to read, `end` the log's end as of the last answer."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, *, target: bool, stable_keys: bool, timestamps: bool
    ) -> None:  # fmt: skip
        self.position = 0
        self.end = 0
        self.purged: list[tuple[int, int]] = []
        """Ranges of offsets that were deleted before they were read: first, and the one after the last."""
        self.bytes = 0
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._target = target
        self._stable_keys = stable_keys
        self._timestamps = timestamps
        self._flags = 0

    def begin(self, offset: int, flags: int = 0) -> None:
        """Sets the offset to read from. `flags` are for the first row."""
        self.position, self._flags = offset, flags

    async def offset(self, which: int, *, committed: bool = False) -> int:
        """Returns the first or last offset, or that of a timestamp."""

        async def ask() -> int:
            return await internal_topics.offset_of(
                self._cluster, self._topic, which, partition=self._partition, committed=committed
            )

        return await self._patiently(ask)

    async def read(self) -> list[Row]:
        """Returns the next rows; none at the log's end. Raises CannotCompareError, TimestampsDifferError."""

        async def ask() -> PartitionData | None:
            try:
                return await internal_topics.fetch(
                    self._cluster, self._topic, self.position,
                    partition=self._partition, committed=True, size=FETCH_BYTES,
                )  # fmt: skip
            except BrokerError as e:
                if e.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                return None

        data = await self._patiently(ask)
        if data is None:
            await self._jump()
            return []
        self.end = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
        self.bytes += len(data.records or b"")
        try:
            found = self._rows(data)
        except ProtocolError as e:
            raise CannotCompareError(f"{self} at offset {self.position}: {e}") from None
        self.position = max(internal_topics.next_offset(data), self.position)
        if found and self._flags:
            found[0] = found[0]._replace(flags=found[0].flags | self._flags)
            self._flags = 0
        return found

    def __str__(self) -> str:
        side = "target" if self._target else "source"
        return f"{self._topic}-{self._partition} at the {side}"

    def _rows(self, data: PartitionData) -> list[Row]:
        buffer = data.records or b""
        hidden = Aborted.of([(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()])
        found: list[Row] = []
        for pos, header in whole_batches(buffer):
            check_crc(buffer, pos, header)
            if header.is_control:
                hidden.end(header, decode_records(buffer, pos))
                continue
            aborted = hidden.hides(header)
            if (aborted and self._target) or header.next_offset <= self.position:
                continue
            if self._target and self._timestamps and header.timestamp_type:
                raise TimestampsDifferError
            records = [r for r in decode_records(buffer, pos) if r.offset >= self.position]
            found += rows_of(
                records, stable_keys=self._stable_keys, timestamps=self._timestamps, aborted=aborted
            )
        return found

    async def _jump(self) -> None:
        """Goes on at the log's first offset, when retention has passed the position."""
        first = await self.offset(EARLIEST)
        if first <= self.position:
            raise CannotCompareError(
                f"{self} ends before offset {self.position}: the topic was shortened or made anew meanwhile"
            )
        self.purged.append((self.position, first))
        self.begin(first, AFTER_GAP)

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        backoff, since = Backoff(), time.monotonic()
        while True:
            try:
                return await ask()
            except ClientError as e:
                now = time.monotonic()
                if not e.retriable or now - since > GIVE_UP_S:
                    raise CannotCompareError(f"{self} cannot be read: {e}") from None
                if backoff.why is None:
                    log.info("waiting for %s: %s", self, e)
                await asyncio.sleep(backoff.failed(now, str(e)))
