"""Producer ids for idempotent producers.

Invariant: no id is ever handed out twice. Ids come from blocks. The end of a block is stored durably before its first
id is used, so a restart goes on behind it and loses at most the rest of a block (there are 2**63 ids). If the stored end
is behind the ids in logs (another broker's data directory, a partly restored one), ids go on far above them: logs no
longer know producers that have been quiet for long.

A request without a transactional id gets a new id each time, even if it brings an id and epoch, as in Kafka: only
transactions bump an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from klamm_kafka.wire.errors import ErrorCode

log = logging.getLogger(__name__)

BLOCK_SIZE: Final = 1_000
"""Kafka's block size: one durable write for a thousand producers."""
GAP: Final = 1 << 32
"""The gap above the largest id that logs know, where no stored end covers it."""
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_ID_MAX: Final = 2**63 - 1


class ProducerIdResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class ProducerIds:
    """Hands out producer ids.

    `first_free` is the last argument of `store` (0 at first). `store` returns once its argument is durable, and raises
    OSError when that fails.
    """

    def __init__(self, first_free: int, store: Callable[[int], None]) -> None:
        self._next = first_free
        self._end = first_free
        self._store = store

    def reserve(self, producer_id: int) -> None:
        """Note an id that a log uses. If it is beyond the stored end, the next ids are far above it."""
        if producer_id >= self._end:
            self._next = self._end = producer_id + GAP

    def allocate(self) -> ProducerIdResult:
        """Returns a new id with epoch 0."""
        if self._next == self._end:
            end = self._end + BLOCK_SIZE
            if end > _ID_MAX:
                return ProducerIdResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)
            try:
                self._store(end)
            except OSError as e:
                log.error("a block of producer ids up to %d could not be stored: %s", end, e)  # noqa: TRY400
                return ProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # clients try again
            self._end = end
        producer_id = self._next
        self._next += 1
        return ProducerIdResult(producer_id=producer_id, producer_epoch=0)
