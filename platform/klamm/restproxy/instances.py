"""All consumer instances of a proxy: made, found, called in a bounded pool of threads, and closed when nobody asks for them any more.

One call of an instance runs at a time, and runs to its end even if its client has gone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from klamm.restproxy.errors import busy, instance_exists, instance_not_found, invalid_consumer
from klamm.restproxy.formats import Format
from klamm.restproxy.instance import Instance
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0
CLOSE_S: Final = 10.0
"""The time in which consumers leave their groups when the proxy stops. Without a broker, librdkafka waits for the session's end, 45 s."""
POLL_MS_MAX: Final = 86_400_000
"""The largest max.poll.interval.ms that librdkafka takes."""
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Entry:
    """An instance with what the proxy knows of it. `owner` is the caller who made it; None where nobody logs in."""

    group: str
    name: str
    format: Format
    owner: str | None
    instance: Instance
    used: float
    timeout_ms: int
    bytes_min: int = 1
    calls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def idle(entry: Entry, now: float, timeout_s: float) -> bool:
    """Tells whether an instance goes: nobody has asked for it for that long, and nobody waits for it."""
    return entry.calls == 0 and now - entry.used > timeout_s


async def _in_daemon(work: Callable[[], None]) -> None:
    """Has work done in a thread for which the process does not wait at its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error = None
        try:
            work()
        except Exception as e:
            error = e
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=run, name="consumer close", daemon=True).start()
    await done


class Instances:
    """The instances of a proxy (see the module)."""

    def __init__(
        self, settings: Mapping[str, Any], *, threads: int, instances_max: int, timeout_s: float, id: str = ""
    ) -> None:
        self._settings = settings
        self._max = instances_max
        self._timeout_s = timeout_s
        self._id = id
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="consumer")
        self._entries: dict[tuple[str, str], Entry] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self.expired = self.records = 0

    def __len__(self) -> int:
        return len(self._entries)

    def start(self) -> None:
        """Begins to look for idle instances; needs a running loop."""
        self._sweeping = asyncio.create_task(self._sweep(), name="idle consumers")

    def end_waits(self) -> None:
        """Has requests for records answered with what they have."""
        for each in self._entries.values():
            each.instance.ending = True

    async def stop(self) -> None:
        """Closes all instances, so that their groups know at once."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.end_waits()
        closing = [asyncio.create_task(self._close(each)) for each in self._entries.values()]
        if closing and (late := (await asyncio.wait(closing, timeout=CLOSE_S))[1]):
            log.warning("%d consumers have not left their groups, because no broker answers", len(late))
        self._pool.shutdown(wait=False)

    def make(
        self,
        group: str,
        name: str | None,
        *,
        format: Format,
        owner: str | None,
        own: Mapping[str, Any],
        timeout_ms: int,
        bytes_min: int,
    ) -> Entry:
        """Makes an instance. `own` are its settings of librdkafka. Raises ProxyError."""
        if name is None:
            name = "-".join(filter(None, ("rest-consumer", self._id, str(uuid.uuid4()))))
        if (group, name) in self._entries:
            raise instance_exists()
        if len(self._entries) >= self._max:
            raise busy(f"There are {self._max} consumer instances already (consumer.instances.max)")
        poll_ms = min(POLL_MS_MAX, max(300_000, int(self._timeout_s * 1000) + 60_000))
        fixed = {"group.id": group, "enable.auto.offset.store": False}
        try:
            instance = Instance({"max.poll.interval.ms": poll_ms, **self._settings, **own, **fixed})
        except KafkaException as e:
            raise invalid_consumer(e.args[0].str()) from None
        entry = Entry(
            group=group,
            name=name,
            format=format,
            owner=owner,
            instance=instance,
            used=time.monotonic(),
            timeout_ms=timeout_ms,
            bytes_min=bytes_min,
        )
        self._entries[group, name] = entry
        return entry

    def find(self, group: str, name: str, owner: str | None) -> Entry:
        """Returns an instance of this caller. Raises ProxyError 40403: another caller's is not there either."""
        entry = self._entries.get((group, name))
        if entry is None or entry.owner != owner:
            raise instance_not_found()
        return entry

    async def call(self, entry: Entry, work: Callable[[Instance], T]) -> T:
        """Has an instance do something, once it has done what was asked before."""
        entry.calls += 1
        task = asyncio.create_task(self._run(entry, work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _run(self, entry: Entry, work: Callable[[Instance], T]) -> T:
        try:
            async with entry.lock:
                if self._entries.get((entry.group, entry.name)) is not entry:
                    raise instance_not_found()
                return await asyncio.get_running_loop().run_in_executor(self._pool, work, entry.instance)
        finally:
            entry.calls -= 1
            entry.used = time.monotonic()

    async def remove(self, entry: Entry) -> None:
        """Closes an instance whose client asked for it."""
        await self._close(entry, asked=True)

    async def _close(self, entry: Entry, *, asked: bool = False) -> None:
        async with entry.lock:
            if self._entries.pop((entry.group, entry.name), None) is None:
                return
            try:
                await _in_daemon(partial(entry.instance.close, asked=asked))
            except KlammError as e:
                log.warning("consumer %s of group %s did not close well: %s", entry.name, entry.group, e)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._timeout_s))
            now = time.monotonic()
            gone = [each for each in self._entries.values() if idle(each, now, self._timeout_s)]
            for each in gone:
                log.info("consumer %s of group %s was idle, and goes", each.name, each.group)
            self.expired += len(gone)
            await asyncio.gather(*(self._close(each) for each in gone))
