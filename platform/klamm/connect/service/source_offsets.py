"""A source connector's offsets as REST reads and changes them (KIP-875), in whichever topic they are.

They are in the workers' topic, or in a topic of the connector's own. Then the workers' topic has a copy,
which answers for partitions that the own topic lacks. With exactly-once sources the offsets are written
in a transaction of the connector's first task, after its former tasks were fenced: none of them can
write after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException, Producer

from klamm.connect.child import clients
from klamm.connect.child.source_offsets import open_topic, place_of
from klamm.connect.config import WorkerConfig
from klamm.connect.errors import RequestError
from klamm.connect.herding.fencing import ZombieFencing
from klamm.connect.model import Kind, TaskId, TaskSpec
from klamm.connect.topics.config_topic import ConfigState
from klamm.connect.topics.offset_state import OffsetState
from klamm.connect.topics.records import Record
from klamm.connect.topics.storage import RecordLog, RecordWriter
from klamm_plugins.errors import ConnectError

Offset = tuple[dict[str, Any] | None, dict[str, Any] | None]

# Kafka's time limit for such a request.
_TIMEOUT_S: Final = 90.0


class OffsetKeeper(Protocol):
    """The parts of a worker that keep source offsets."""

    config: WorkerConfig
    configs: ConfigState
    offsets: OffsetState
    offset_log: RecordLog
    producer: RecordWriter
    fencing: ZombieFencing


class SourceOffsets:
    """See the module."""

    def __init__(self, runtime: OffsetKeeper) -> None:
        self._runtime = runtime

    async def read(self, name: str) -> list[Offset]:
        """Returns all (partition, offset) pairs of a connector."""
        await self._runtime.offset_log.read_to_end()
        workers = self._runtime.offsets.of_connector(name)
        spec = await self._spec(name)
        if not place_of(spec, exactly_once=self._exactly_once).own:
            return workers
        own = (await asyncio.to_thread(self._read_own, spec)).of_connector(name)
        known = [partition for partition, _ in own]
        return [*own, *((p, o) for p, o in workers if p not in known)]

    async def write(self, name: str, offsets: Sequence[Offset]) -> None:
        """Sets offsets; None removes an offset. Raises RequestError, LogError."""
        # Resets come first, as in Kafka, so that a partition named twice keeps its new offset.
        ordered = sorted(offsets, key=lambda o: o[1] is not None)
        spec = await self._spec(name)
        place = place_of(spec, exactly_once=self._exactly_once)
        if self._exactly_once:
            await self._runtime.fencing.fence(name, locked=True)
        if not place.own and not self._exactly_once:
            await self._write_workers(name, ordered)
            return
        if not place.own:
            await self._runtime.offset_log.read_to_end()
            await self._in_thread(spec, place.topic, self._changes(self._runtime.offsets, name, ordered))
            await self._runtime.offset_log.read_to_end()
            return
        state = await asyncio.to_thread(self._read_own, spec)
        # Remove offsets from the copy first; otherwise `read` would find them there once the own topic has lost them.
        await self._write_workers(name, [o for o in ordered if o[1] is None])
        await self._in_thread(spec, place.topic, self._changes(state, name, ordered))
        await self._write_workers(name, [o for o in ordered if o[1] is not None])

    @property
    def _exactly_once(self) -> bool:
        return self._runtime.config.exactly_once

    async def _spec(self, name: str) -> TaskSpec:
        """Returns the spec of the connector's first task, because its clients' settings are the same."""
        runtime = self._runtime
        resolved = await runtime.config.secrets.resolve_soon(runtime.configs.config(name) or {})
        return TaskSpec(
            id=TaskId(name, 0),
            kind=Kind.SOURCE,
            connector_config=dict(resolved.config),
            task_config={},
            worker=runtime.config.for_tasks(),
        )

    def _read_own(self, spec: TaskSpec) -> OffsetState:
        topic = open_topic(spec, place_of(spec, exactly_once=self._exactly_once).topic, lambda: None)
        try:
            topic.ensure()
            return topic.read_to_end(_TIMEOUT_S)
        except ConnectError as e:
            raise RequestError(str(e)) from None

    @staticmethod
    def _changes(state: OffsetState, name: str, offsets: Sequence[Offset]) -> list[Record]:
        return [record for p, o in offsets for record in state.change(name, p, o)]

    async def _write_workers(self, name: str, offsets: Sequence[Offset]) -> None:
        runtime = self._runtime
        for record in self._changes(runtime.offsets, name, offsets):
            await runtime.producer.send(runtime.offset_log.topic, *record)
        await runtime.offset_log.read_to_end()

    async def _in_thread(self, spec: TaskSpec, topic: str, records: Sequence[Record]) -> None:
        if records:
            await asyncio.to_thread(_write, spec, topic, records, transactional=self._exactly_once)


def _write(spec: TaskSpec, topic: str, records: Sequence[Record], *, transactional: bool) -> None:
    """Writes the records; all or none of them when `transactional`. Blocks."""
    config = clients.transactional_config(spec) if transactional else clients.producer_config(spec)
    producer: Producer = clients.make_producer(config)
    failed: list[str] = []

    def delivered(error: Any, _: object) -> None:
        if error is not None:
            failed.append(error.str())

    try:
        if transactional:
            producer.init_transactions(_TIMEOUT_S)
            producer.begin_transaction()
        for key, value in records:
            producer.produce(topic, key=key.encode(), value=value, on_delivery=delivered)
        if transactional:
            producer.commit_transaction(_TIMEOUT_S)
        elif producer.flush(_TIMEOUT_S):
            failed.append("the broker did not acknowledge them in time")
    except KafkaException as e:
        failed.append(e.args[0].str())
    if failed:
        raise RequestError(
            f"Failed to write offsets of connector {spec.id.connector} to topic {topic}: {failed[0]}"
        )
