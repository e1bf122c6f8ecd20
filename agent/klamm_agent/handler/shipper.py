"""A handler's queue and thread: `put` takes a record in microseconds; the thread delivers, spools, or drops by policy.

While the broker takes records they go straight to the client. When nothing moves any more (and there is a spool), the thread takes
back what the client has, and writes that and all that follows to disk. Once the broker answers, the spool is sent first, in order.
Delivery is at least once: records in flight when the broker went away may come twice. The lock guards the queue's figures only;
no thread holds it while it waits.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_agent.handler.client import Client, Returned, starting
from klamm_base.errors import ConfigError, KlammError
from klamm_base.sparing import Sparing

if TYPE_CHECKING:
    from klamm_agent.handler.store import Store

_COST: Final = 100  # about the bytes that a record takes in the queue besides its value
_LINGER_S: Final = 0.01  # so that the thread takes records by the hundred, not one by one
_IDLE_S: Final = 0.5
_BUSY_S: Final = 0.05
_TAKE: Final = 5000
_PROBE_S: Final = 1.0
_FLUSH_S: Final = 10.0  # for the records that are read of the spool at a time
_SAID_AGAIN_S: Final = 30.0
_DROPS: Final = ("newest", "oldest")


class Shipper:
    """The queue and thread of one handler; see `KafkaHandler` for the options. Any thread may call `put`. Raises ConfigError."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        key: str | None = None,
        config: Mapping[str, Any] | None = None,
        queue_bytes: int = 16 * 1024 * 1024,
        drop: str = "newest",
        spool: str | Path | None = None,
        spool_bytes: int = 256 * 1024 * 1024,
        spool_fsync: bool = False,
        flush_timeout: float = 5.0,
    ) -> None:
        if drop not in _DROPS:
            raise ConfigError(
                f"KafkaHandler: drop = {drop!r}: one of {', '.join(_DROPS)} is expected", key="drop"
            )
        self.topic = topic
        self.dropped = 0
        self.drops: Counter[str] = Counter()
        self._drop_policy, self._flush_timeout = drop, flush_timeout
        self._bound = max(1, queue_bytes // 2)  # of the queue; the client has the other half
        encoded = None if key is None else key.encode()
        self._new_client = partial(
            Client, bootstrap_servers, topic, encoded, dict(config or {}), queue_bytes // 2
        )
        probe = self._new_client()
        probe.open()  # unusable settings raise here, not in the thread
        probe.close()
        self._store: Store | None = None
        if spool is not None:
            from klamm_agent.handler.store import Store

            self._store = Store(Path(spool), topic, spool_bytes, fsync=spool_fsync)
        self._said = Sparing(_SAID_AGAIN_S)
        self._closed = self._is_forked = False
        self._reset()
        _shippers.add(self)

    def _reset(self) -> None:
        """Sets the state of the beginning; also in a child after a fork."""
        self._lock = threading.RLock()  # a signal handler may log while its thread is in `put`
        self._queue: deque[bytes] = deque()
        self._queued = 0  # bytes
        self._wake = threading.Event()
        self._sleeping = False
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._away = self._ending = False
        self._probe_at = 0.0
        self._deadline = float("inf")

    def put(self, value: bytes) -> None:
        """Queues one record. Never blocks."""
        size = len(value) + _COST
        with self._lock:
            if self._closed:
                self._drop_locked("the handler is closed", 1)
                return
            if self._queued + size > self._bound and not self._make_room(size):
                return
            self._queue.append(value)
            self._queued += size
        if self._sleeping:
            self._sleeping = False
            self._wake.set()
        if self._thread is None:
            self._start()

    def _make_room(self, size: int) -> bool:
        """Drops records by policy, since the queue is full; returns whether the new record stays."""
        why = (self._client.why if self._client is not None else "") or "the queue is full"
        if self._drop_policy == "newest":
            self._drop_locked(why, 1)
            return False
        count = 0
        while self._queue and self._queued + size > self._bound:
            self._queued -= len(self._queue.popleft()) + _COST
            count += 1
        self._drop_locked(why, count)
        return True

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="klamm-logging", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter ends: `close` does the work
            self._thread = None

    def statistics(self) -> dict[str, Any]:
        client, store = self._client, self._store
        with self._lock:
            return {
                "queued": len(self._queue) + (client.in_flight if client is not None else 0),
                "spooled": 0 if store is None else store.records,
                "dropped": self.dropped,
                "drops": dict(self.drops),
                "away": self._away,
            }

    def flush(self) -> None:
        """Waits until queued records are delivered or on disk, at most `flush_timeout`."""
        deadline = time.monotonic() + self._flush_timeout
        while time.monotonic() < deadline and (self._queue or self._in_flight()):
            if self._queue:  # a thread that is woken all the time is never seen asleep
                self._wake.set()
            time.sleep(0.005)

    def _in_flight(self) -> bool:
        client = self._client
        return self._thread is not None and (client is None or client.in_flight > 0 or not self._sleeping)

    def close(self) -> None:
        """Delivers within `flush_timeout`; the rest goes to the spool, or is dropped and counted. For good."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._deadline = time.monotonic() + self._flush_timeout
            self._ending = True
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._wake.set()
            thread.join(self._flush_timeout + 10)
            if thread.is_alive():  # it hangs: a handler must not keep its process alive
                client = self._client
                left = len(self._take()) + (client.in_flight if client is not None else 0)
                self.count_dropped("the client does not answer", left)
        elif self._queue or self._client is not None:
            self._run()  # no thread can be started any more
        _shippers.discard(self)

    def count_dropped(self, why: str, count: int = 1) -> None:
        if count:
            with self._lock:
                self._drop_locked(why, count)

    def _drop_locked(self, why: str, count: int) -> None:
        """Counts dropped records, and says so now and then, as logging does of its own failures (`logging.raiseExceptions`)."""
        self.dropped += count
        self.drops[why] += count
        if not logging.raiseExceptions or sys.stderr is None:
            return
        if self._said.left_out("drops", time.monotonic()) is not None:
            sys.stderr.write(f"KafkaHandler: {self.dropped} log records for {self.topic} dropped: {why}\n")

    # From here on everything runs in the thread.

    def _run(self) -> None:
        client = self._new_client()
        while not self._opened(client):
            if self._ending:
                self.count_dropped(client.why, len(self._take()))
                return
            self._wake.wait(_PROBE_S)
        self._client = client
        while not self._ending:
            more = False
            try:
                more = self._step(client)
            except Exception as e:  # an error of one round must not end logging
                self._complain(e)
            if not more:
                self._sleep(client)
        try:
            self._end(client)
        except Exception as e:
            self._complain(e)

    def _opened(self, client: Client) -> bool:
        """Opens the client; returns whether it could. A lack of memory or files may prevent now what worked at construction."""
        try:
            with starting:  # its threads look up the broker from the start
                client.open()
                client.answers()  # waits for the first connection, but not long
        except Exception as e:
            client.why = str(e)
            self._complain(e)
            return False
        return True

    def _complain(self, error: Exception) -> None:
        if logging.raiseExceptions and sys.stderr is not None:
            shown = str(error) if isinstance(error, KlammError) else repr(error)
            sys.stderr.write(f"KafkaHandler: records for {self.topic}: {shown}\n")
        time.sleep(_BUSY_S)

    def _sleep(self, client: Client) -> None:
        self._sleeping = True
        if not self._queue and not self._ending:
            self._wake.wait(_BUSY_S if client.in_flight or client.returned else _IDLE_S)
        self._sleeping = False
        self._wake.clear()
        if not self._ending:
            time.sleep(_LINGER_S)

    def _step(self, client: Client) -> bool:
        """Does one round; returns whether to go on at once: the spool is emptied without a pause."""
        client.poll()
        more = False
        if self._away:
            self._keep(client, self._take())
            if time.monotonic() >= self._probe_at:
                self._away = not client.answers()
                self._probe_at = time.monotonic() + _PROBE_S
        elif self._store is not None and self._store.look():
            more = self._send_spooled(client, self._store)
        else:
            self._send(client)
        if client.returned:
            self._keep(client, [])
        if self._store is not None and client.is_stuck:
            self._go_away(client)
        return more and not self._away

    def _take(self, most: int = 1 << 60) -> list[bytes]:
        with self._lock:
            found = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
            self._queued -= sum(map(len, found)) + _COST * len(found)
        return found

    def _send(self, client: Client) -> None:
        """Sends from the queue to the client, as long as it takes records."""
        while values := self._take(_TAKE):
            taken = client.send(values)
            client.poll()
            if taken < len(values):
                self._put_back(values[taken:])
                return

    def _put_back(self, values: list[bytes]) -> None:
        with self._lock:
            self._queue.extendleft(reversed(values))
            self._queued += sum(map(len, values)) + _COST * len(values)

    def _go_away(self, client: Client) -> None:
        self._away = True
        client.take_back()
        self._keep(client, [])
        self._probe_at = time.monotonic() + _PROBE_S

    def _keep(self, client: Client, values: list[bytes]) -> None:
        """Writes returned records to the spool, then `values`. Without a spool, or when it cannot be written, they are dropped."""
        returned, client.returned = client.returned, []
        lasting = [r for r in returned if r.is_lasting]
        for record in lasting:
            self.count_dropped(record.why)
        now = int(time.time() * 1000)
        keep = [r for r in returned if not r.is_lasting] + [
            Returned(v, now, client.why, False) for v in values
        ]
        if not keep:
            return
        if self._store is None:
            for record in keep:
                self.count_dropped(record.why)
            return
        try:
            dropped = self._store.add(keep, drop=self._drop_policy)
        except KlammError as e:
            self.count_dropped(str(e), len(keep))
            return
        if dropped:
            self.count_dropped("the spool is full", dropped)

    def _send_spooled(self, client: Client, store: Store) -> bool:
        """Sends the oldest records of the spool, before all that is queued, and waits for them; returns whether to go on at once."""
        if not client.is_idle:  # it still has queued records, but only the spool's may be taken back below
            client.flush(_BUSY_S)
            return True
        found = store.read()
        if found is None:
            store.rewind()
            return False
        if self._queued > self._bound // 2:
            self._keep(client, self._take())
        deadline = min(time.monotonic() + _FLUSH_S, self._deadline)
        is_sent = True
        for record in found.records:
            while is_sent and not client.send_again(record.value or b"", record.timestamp):
                client.poll(_BUSY_S)
                is_sent = time.monotonic() < deadline and not client.is_stuck
        while client.in_flight and time.monotonic() < deadline and not client.is_stuck:
            client.flush(_BUSY_S)
        if not is_sent or client.in_flight or any(not r.is_lasting for r in client.returned):
            client.take_back()
            client.returned = []  # the spool still has all of them
            store.rewind()
            self._away, self._probe_at = True, time.monotonic() + _PROBE_S
            return False
        if found.damaged:
            self.count_dropped(f"the spool is damaged: {found.damaged}", found.lost)
        store.delivered(found.end)
        return True

    def _end(self, client: Client) -> None:
        """Delivers the rest within the deadline; then it goes to the spool, or is dropped."""
        while time.monotonic() < self._deadline and not self._away and (self._queue or client.in_flight):
            self._send(client)
            client.poll(_BUSY_S)
            if self._store is not None and client.is_stuck:
                break
        if client.in_flight:
            client.why = client.why or f"no broker took them within {self._flush_timeout:g} s"
            if self._is_forked and self._store is None:
                # The client's threads may wait for a lock that a thread of the parent held: asking for the records could hang
                self.count_dropped(client.why, client.in_flight)
                client.leave_behind()
            else:
                client.take_back()
                self.count_dropped(client.why, client.in_flight)
        self._keep(client, self._take())
        if self._store is not None:
            self._store.close()
        self._client = None
        client.close()

    def forked(self) -> None:
        """Starts anew in a forked child: the thread, the client and the folder stayed with the parent."""
        if self._client is not None:
            self._client.leave_behind()
        if self._store is not None:
            self._store.leave_behind()
        self._is_forked = True
        self._reset()


_shippers: weakref.WeakSet[Shipper] = weakref.WeakSet()


def _after_fork() -> None:
    starting.release()
    for shipper in list(_shippers):
        shipper.forked()


os.register_at_fork(before=starting.acquire, after_in_parent=starting.release, after_in_child=_after_fork)
