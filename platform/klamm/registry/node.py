"""One registry: the state that its topic says, and how writes get into the topic.

All registries of a group read the topic; the one that leads writes it, the others forward. A write is decided on `draft`, a copy of
the state that already has the writes before it; it is answered once its records have been committed, and read back. Writes that
wait together are one transaction. When a transaction fails, the draft is thrown away, and nothing of it was ever answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from klamm.registry.errors import RegistryError, too_large
from klamm.registry.records import SchemaRecord, decode, encode
from klamm.registry.service import Write, Written
from klamm.registry.store import Store
from klamm.registry.subjects import context_of
from klamm.registry.topic import (
    NOOP,
    WRITER_BYTES_MAX,
    Attempts,
    Election,
    TopicError,
    TopicReader,
    TopicWriter,
    ensure,
    id_of,
    leader_of,
    record_bytes_max,
)
from klamm_base.backoff import Backoff
from klamm_base.refused_logins import LOGINS

log = logging.getLogger(__name__)

BATCH_MAX: Final = 200
"""Writes of one transaction."""
QUEUE_MAX: Final = 2_000
"""Writes that may wait. More are answered 503: their clients would not wait so long."""
ELECTION_S: Final = 10.0
"""A write waits so long for somebody to lead: an election takes less."""
SAY_AFTER_S: Final = 3.0
"""The time without an answer of brokers at the start after which the log tells of it."""
POLL_S: Final = 0.5
"""So often a client reports while it waits for an answer."""
LOOK_S: Final = 1.0
"""An answer to "who leads?" is good for this time."""

RECORD_OVERHEAD: Final = 100
"""Bytes of a record and its batch beside key and value, at most."""
READ_BACK_S: Final = 30.0
"""The time in which a commit is read again, unless something is wrong."""
SAME_S: Final = 10.0
"""So often it is asked whether the topic is still the same one."""

_Waiting = tuple[Write, asyncio.Future[Any]]


class NotLeading(RegistryError):
    """Another registry writes; `url` is its address, None while it is unknown."""

    def __init__(self, url: str | None) -> None:
        super().__init__(
            50004 if url is None else 50003,
            "Leader not known: no registry leads now; try again" if url is None else f"{url} leads",
        )
        self.status = 500 if url is None else 409
        self.url = url


class Node:
    """See the module. `leader_eligible` False: it never writes."""

    def __init__(
        self,
        *,
        topic: str,
        client: Mapping[str, Any],
        group: str,
        replicas: int,
        timeout_s: float = 5.0,
        level: str = "BACKWARD",
        leader_eligible: bool = True,
    ) -> None:
        self.store = Store(level)
        self.unreadable = 0
        self.written = 0
        self.topic, self._client, self.group = topic, dict(client), group
        self._replicas, self._eligible = replicas, leader_eligible
        self._timeout_s = timeout_s
        self._batches = 0
        self._draft: Store | None = None
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._assigned = asyncio.Event()
        self._revoked = asyncio.Event()
        self._leading: asyncio.Task[None] | None = None
        self._election: Election | None = None
        self._reader: TopicReader | None = None
        self._admin: AdminClient | None = None
        self._leader: tuple[float, str | None] = (-1e9, None)
        self._topic_id = ""
        self._attempts = Attempts(topic, client, group)
        self._attempted: dict[str, int] = {}
        self._record_bytes_max = WRITER_BYTES_MAX
        self._failure: asyncio.Future[None] | None = None
        self.url = ""

    @property
    def leads(self) -> bool:
        return self._draft is not None

    async def start(self, url: str) -> None:
        """Reads the topic to its end, and takes part in the election. Waits for the broker. Raises KlammError."""
        self.url = url
        self._failure = asyncio.get_running_loop().create_future()
        config: dict[str, Any] = {**self._client, "error_cb": self._note}
        self._admin = AdminClient(config)
        await self._ensure(self._admin)
        self._topic_id = await id_of(self._admin, self.topic)
        self._reader = TopicReader(self.topic, self._client, self.group, self._take)
        self._reader.start()
        await self._reader.wait_for_end()
        if self._eligible:
            self._election = Election(
                self.topic, self._client, self.group, url, changed=self._on_election, failed=self._fail
            )
            self._election.start()
            self._leading = asyncio.create_task(self._lead(), name="lead")

    async def _ensure(self, admin: AdminClient) -> None:
        loop, brokers = asyncio.get_running_loop(), self._client["bootstrap.servers"]
        backoff = Backoff(first_s=0.5, longest_s=5.0)
        said = ""
        note = loop.call_later(SAY_AFTER_S, log.warning, "waiting for the brokers at %s", brokers)
        try:
            while True:
                try:
                    return await self._polled(admin, ensure(admin, self.topic, self._replicas))
                except TopicError as e:
                    if str(e) != said:
                        said = str(e)
                        log.warning("waiting for the broker: %s", e)
                    await asyncio.sleep(backoff.failed(loop.time(), str(e)))
        finally:
            note.cancel()

    @staticmethod
    async def _polled(admin: AdminClient, work: Coroutine[Any, Any, None]) -> None:
        """Does the work, and has the client report meanwhile what brokers say: a login that they refuse."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=POLL_S))[0]:
                admin.poll(0)
        finally:
            task.cancel()
        task.result()

    def _note(self, error: KafkaError) -> None:
        if not LOGINS.take(error.str(), self._client):
            log.debug("a client of the registry: %s", error.str())

    async def led(self, timeout_s: float) -> bool:
        """Waits until this registry or another leads; returns whether one does."""
        end = asyncio.get_running_loop().time() + timeout_s
        while not self.leads:
            with contextlib.suppress(TopicError):  # the broker may be away for a moment
                if await self._who_leads() is not None:
                    break
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(0.05)
        return True

    async def wait(self) -> None:
        """Returns never; raises TopicError when the topic cannot be read any more, or another registry has this one's address."""
        assert self._reader is not None, "started"
        assert self._failure is not None, "started"
        tasks = [
            asyncio.ensure_future(self._reader.wait_for(1 << 62)),
            asyncio.create_task(self._watch(), name="same-topic"),
            *([self._leading] if self._leading is not None else []),
        ]
        try:
            await asyncio.wait({*tasks, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            for each in (self._failure, *tasks):
                if each.done():
                    each.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Raises TopicError once the topic is another one: this state is not that one's."""
        assert self._admin is not None, "started"
        assert self._reader is not None, "started"
        while True:
            await asyncio.sleep(SAME_S)
            try:
                found = await id_of(self._admin, self.topic)
                self._reader.answered()
                if found == self._topic_id:
                    self._record_bytes_max = await record_bytes_max(self._admin, self.topic)
            except TopicError as e:
                log.warning("%s", e)
                continue
            if found != self._topic_id:
                raise TopicError(
                    f"topic {self.topic} was deleted, or made anew: start the registry again to read it"
                )

    def _fail(self, error: Exception) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(
                TopicError(
                    f"this registry cannot take part in group {self.group} as {self.url}: {error}; is there another "
                    "with this address? Each needs a host.name of its own"
                )
            )

    async def stop(self) -> None:
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        self._fail_waiting()
        if self._election is not None:
            await self._election.stop()
        if self._reader is not None:
            await self._reader.stop()

    async def write(self, write: Write) -> Any:
        """Does a write; returns its answer once it is in the topic. Raises RegistryError, and NotLeading where another leads."""
        await self._leads_or_raise()
        if self._queue.qsize() >= QUEUE_MAX:
            raise RegistryError(50301, "Too many writes are waiting; try again")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((write, future))
        return await self._answer(future)

    async def _answer(self, future: asyncio.Future[Any]) -> Any:
        """Waits for a write's answer, as long as writes get on. Raises RegistryError 50002. Some of it may be in the topic all the same."""
        while not future.done():
            seen = self._batches
            await asyncio.wait({future}, timeout=self._timeout_s)
            if not future.done() and self._batches == seen:
                future.cancel()
                raise RegistryError(
                    50002,
                    f"Register operation timed out: nothing got into topic {self.topic} for {self._timeout_s * 1000:g} ms "
                    "(kafkastore.timeout.ms)",
                )
        return future.result()

    async def _leads_or_raise(self) -> None:
        """Returns if this registry leads; waits while nobody does. Raises NotLeading, and RegistryError where no broker tells who does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + ELECTION_S
        while self._draft is None:
            try:
                url = await self._who_leads()
            except TopicError as e:
                raise RegistryError(50003, f"Error while forwarding the request to the leader: {e}") from None
            if url is not None or loop.time() > end:
                raise NotLeading(url)
            await asyncio.sleep(0.1)

    async def _who_leads(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now - self._leader[0] > LOOK_S and self._admin is not None:
            found = await leader_of(self._admin, self.group)
            self._leader = (now, found if found != self.url else None)
        return self._leader[1]

    # ---- the topic's records

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            change = decode(key, value)
            if change is not None:
                self.store.apply(change)
        except (ValueError, RegistryError) as e:
            self.unreadable += 1
            log.error("record %d of topic %s is left out: %s", offset, self.topic, e)  # noqa: TRY400 - a sentence

    # ---- leading

    def _on_election(self, leads: bool) -> None:
        log.info("this registry %s the group %s", "leads" if leads else "does not lead", self.group)
        if leads:
            self._revoked.clear()
            self._assigned.set()
        else:
            self._assigned.clear()
            self._revoked.set()

    async def _lead(self) -> None:
        """Leads whenever this registry is elected, until it is not any more."""
        assert self._admin is not None, "started"
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        while True:
            await self._assigned.wait()
            try:
                self._record_bytes_max = await record_bytes_max(self._admin, self.topic)
                writer = TopicWriter(
                    self.topic,
                    self._client,
                    f"klamm-registry-{self.group}-{self.topic}",
                    self._record_bytes_max,
                )
                await writer.begin()
                await self._read_back(await writer.write([(NOOP, None)]))
                draft = self.store.copy()
                await self._skip_attempted(draft)
                self._draft = draft
                backoff.succeeded()
                await self._write_until_revoked(writer)
            except TopicError as e:
                log.error("%s; trying to lead again", e)  # noqa: TRY400 - a sentence
                await asyncio.sleep(backoff.failed(asyncio.get_running_loop().time(), str(e)))
            finally:
                self._draft = None
                self._fail_waiting()

    async def _skip_attempted(self, draft: Store) -> None:
        """Leaves out the ids of writes that were aborted: Confluent's registry, which reads these as well, would see two schemas of
        one id, and lose the second.
        """
        for key, value in await self._attempts.read():
            with contextlib.suppress(ValueError, RegistryError):
                change = decode(key, value)
                if isinstance(change, SchemaRecord) and change.value is not None:
                    name = context_of(change.subject)
                    self._attempted[name] = max(self._attempted.get(name, 0), change.value.id)
        draft.attempted = self._attempted

    async def _write_until_revoked(self, writer: TopicWriter) -> None:
        revoked = asyncio.create_task(self._revoked.wait())
        try:
            while not revoked.done():
                first = asyncio.create_task(self._queue.get())
                await asyncio.wait({first, revoked}, return_when=asyncio.FIRST_COMPLETED)
                if not first.done():
                    first.cancel()
                    return
                batch = [first.result()]
                while len(batch) < BATCH_MAX and not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                await self._write_batch(writer, batch)
        finally:
            revoked.cancel()

    async def _write_batch(self, writer: TopicWriter, batch: list[_Waiting]) -> None:
        assert self._draft is not None, "leads"
        decided: list[tuple[Written, asyncio.Future[Any]]] = []
        records: list[tuple[bytes, bytes | None]] = []
        for write, future in batch:
            if future.cancelled():  # it was answered: it waited too long
                continue
            try:
                written = write(self._draft)
                made = [encode(change) for change in written.changes]
                self._demand_size(made)
            except Exception as e:
                _settle(future, e)  # the request's error, or a bug, which its answer tells
                continue
            for change in written.changes:
                self._draft.apply(change)
            records += made
            decided.append((written, future))
        try:
            if records:
                await self._read_back(await writer.write(records))
                self.written += len(records)
            self._batches += 1
        except BaseException as e:
            why = RegistryError(50001, f"Error while storing in the Kafka store: {e}")
            for _, future in decided:
                _settle(future, why)
            raise
        for written, future in decided:
            if not future.done():
                future.set_result(written.answer)

    def _demand_size(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Raises RegistryError 42209 for a record that the topic would refuse, and with it all writes of the transaction."""
        for key, value in records:
            size = len(key) + len(value or b"") + RECORD_OVERHEAD
            if size > self._record_bytes_max:
                raise too_large(size, self._record_bytes_max)

    async def _read_back(self, offset: int) -> None:
        assert self._reader is not None, "started"
        try:
            async with asyncio.timeout(READ_BACK_S):
                await self._reader.wait_for(offset)
        except TimeoutError:
            raise TopicError(
                f"record {offset} of topic {self.topic} was written, and not read back within {READ_BACK_S:g} s"
            ) from None

    def _fail_waiting(self) -> None:
        while not self._queue.empty():
            _, future = self._queue.get_nowait()
            _settle(future, NotLeading(None))

    async def healthy(self) -> bool:
        """Tells whether the brokers answer."""
        if self._admin is None:
            return False
        with contextlib.suppress(KafkaException):
            await asyncio.wrap_future(self._admin.describe_cluster(request_timeout=3.0))
            return True
        return False


def _settle(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
