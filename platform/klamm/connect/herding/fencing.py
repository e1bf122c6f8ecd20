"""Fences the tasks of a source connector's former configurations (KIP-618): the leader's part of exactly
once.

A task writes with a transactional producer. The id of that producer follows from group, connector and
task number, so a task by itself fences its predecessor of the same number. The leader fences the
numbers that the new set of tasks no longer has, before any task of the new set starts. The task count
record in the config topic says how many such producers there may be: the leader writes the record after
a fencing and reads it at the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from klamm.connect.config import WorkerConfig
from klamm.connect.errors import BadRequest, Conflict, NotFound, RequestError
from klamm.connect.model import TaskId, transactional_id
from klamm.connect.plugins.catalog import PluginRegistry
from klamm.connect.topics.config_topic import ConfigState, fencing_record
from klamm.connect.topics.config_writer import ConfigWriter
from klamm_base.clientconfig import refuse_code, translate
from klamm_base.configdef import with_prefix
from klamm_base.errors import KlammError

log = logging.getLogger(__name__)

# Kafka's time limit of requests between workers.
TIMEOUT_S: Final = 90.0
_STEP_S: Final = 5.0
_AT_A_TIME: Final = 8


class Plan(Enum):
    """The work to do before tasks of the newest configuration may start."""

    NOTHING = "nothing"
    RECORD = "record"
    FENCE = "fence"


def plan(configs: ConfigState, name: str) -> Plan:
    """Returns the plan by Kafka's rule. Without a record there were no transactional producers; a single task
    fences its single predecessor by itself.
    """
    if not configs.pending_fencing(name):
        return Plan.NOTHING
    count = configs.fenced_count(name)
    if count is None or (count == 1 and len(configs.tasks(name)) == 1):
        return Plan.RECORD
    return Plan.FENCE


def fence(client: Mapping[str, str], ids: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Take over every transactional id. That aborts the open transaction of its producer, and the broker
    refuses all that this producer still sends.

    `client` are Java's client properties. Blocks. Raises KlammError.
    """
    if not ids:
        return
    config = translate(client, "producer", lenient=True).config
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(min(len(ids), _AT_A_TIME), "fence") as pool:
        for _ in pool.map(lambda each: _take_over(config, each, deadline), ids):
            pass


def _take_over(config: Mapping[str, Any], id: str, deadline: float) -> None:
    producer = Producer({**config, "transactional.id": id, "client.id": f"fence-{id}", "log_level": 2})
    while True:
        left_s = deadline - time.monotonic()
        try:
            producer.init_transactions(max(0.1, min(left_s, _STEP_S)))
        except KafkaException as e:
            error: KafkaError = e.args[0]
            if error.retriable() and left_s > 0:
                continue
            raise KlammError(
                f"the producer of {id} cannot be fenced: {error.str()} ({error.name()})"
            ) from None
        else:
            return


class ZombieFencing:
    """Fences for `PUT /connectors/{c}/fence`, on the leader: one round at a time for each connector."""

    def __init__(
        self, config: WorkerConfig, writer: ConfigWriter, registry: Callable[[], PluginRegistry]
    ) -> None:
        self._config = config
        self._writer = writer
        self._registry = registry
        self._rounds: dict[str, asyncio.Task[None]] = {}

    async def fence(self, name: str, *, locked: bool = False) -> None:
        """Fence, and return when tasks of the newest configuration may start. Raises RequestError, LogError,
        KlammError.

        `locked`: the caller holds the config writer's lock, and so cannot wait for a round that another caller
        began.
        """
        if locked:
            await self._fence(name, contextlib.nullcontext())
            return
        running = self._rounds.get(name)
        if running is None:
            running = self._rounds[name] = asyncio.create_task(
                self._fence(name, self._writer.lock), name=f"fence {name}"
            )
            running.add_done_callback(lambda _: self._rounds.pop(name, None))
        await asyncio.shield(running)

    async def _fence(self, name: str, lock: AbstractAsyncContextManager[None]) -> None:
        writer, configs = self._writer, self._writer.configs
        await writer.log.read_to_end()
        config = configs.config(name)
        if config is None:
            raise NotFound(f"Connector {name} not found")
        plugin = self._registry().connector(config.get("connector.class", ""))
        if plugin is not None and plugin.type != "source":
            raise BadRequest(f"Connector {name} is not a source connector")
        what, count = plan(configs, name), len(configs.tasks(name))
        if what is Plan.NOTHING:
            return
        generation = configs.generation(name)
        if what is Plan.FENCE:
            resolved = await self._config.secrets.resolve_soon(config)
            await self._end_former(name, resolved.config, configs.fenced_count(name) or 0)
        async with lock:
            await writer.log.read_to_end()
            if configs.generation(name) != generation:
                raise Conflict(
                    "Fencing failed because new task configurations were generated for the connector"
                )
            await writer.write([fencing_record(name, count)])

    async def _end_former(self, name: str, config: Mapping[str, str], count: int) -> None:
        group = self._config["group.id"]
        log.info("connector %s: fencing the producers of its %d former tasks", name, count)
        ids = [transactional_id(group, TaskId(name, i)) for i in range(count)]
        try:
            await asyncio.to_thread(fence, self._client(config), ids)
        except KlammError as e:
            raise RequestError(f"Failed to perform zombie fencing: {e}") from None

    def _client(self, config: Mapping[str, str]) -> dict[str, str]:
        """Returns the properties of the connector's admin client, with which Kafka fences, too. Raises ConfigError."""
        worker = self._config
        overrides = with_prefix(config, "admin.override.")
        refuse_code(overrides, "admin")
        return {
            **worker.client,
            **with_prefix(worker.raw, "admin."),
            **overrides,
        }
