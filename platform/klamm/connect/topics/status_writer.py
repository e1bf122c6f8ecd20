"""Writes to the status topic: the newest word per key, kept while the broker is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from klamm.connect.topics.records import Record
from klamm.connect.topics.storage import RecordWriter

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class StatusWriter:
    """See the module. `run` writes until it is cancelled. Nothing is sent while `may_speak` says no."""

    def __init__(
        self, producer: RecordWriter, topic: Callable[[], str], may_speak: Callable[[], bool] = lambda: True
    ) -> None:
        self._may_speak = may_speak
        self._producer = producer
        self._topic = topic
        self._waiting: dict[str, bytes | None] = {}
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._term = 0  # counts what `forget` has ended
        self._flushes: set[asyncio.Task[bool]] = set()

    @property
    def waiting(self) -> Mapping[str, bytes | None]:
        """The records that are not sent yet."""
        return self._waiting

    def write(self, record: Record) -> None:
        key, value = record
        # The newest word per key goes last: a key that waits already moves to the end.
        self._waiting.pop(key, None)
        self._waiting[key] = value
        self._news.set()

    def forget(self) -> None:
        """Drop what waits, and do not repeat what is under way and fails: other workers speak for it by now."""
        self._waiting.clear()
        self._term += 1

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if not await self._once():
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def flush(self, timeout_s: float) -> bool:
        """Write everything that waits; returns False when that takes longer than `timeout_s`."""
        # The write goes on after the timeout, and after its caller: somebody must hear when a record under way
        # fails.
        writing = asyncio.create_task(self._once(), name="statuses")
        self._flushes.add(writing)
        writing.add_done_callback(self._flushes.discard)
        await asyncio.wait({writing}, timeout=timeout_s)
        return writing.done() and writing.result()

    async def _once(self) -> bool:
        async with self._writing:  # one batch after the other: the order per key
            if not self._waiting:
                return True
            if not self._may_speak():
                return False
            batch, self._waiting, term = self._waiting, {}, self._term
            sent = [self._producer.send(self._topic(), key, value) for key, value in batch.items()]
            results = await asyncio.gather(*sent, return_exceptions=True)
            failed = [(k, r) for k, r in zip(batch, results, strict=True) if isinstance(r, BaseException)]
            for key, error in failed if term == self._term else ():
                log.warning("status %s is written later: %s", key, error)
                self._waiting.setdefault(key, batch[key])
                self._news.set()
            return not failed
