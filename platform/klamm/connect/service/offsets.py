"""Reading, altering and resetting a connector's offsets (KIP-875).

A source's offsets are in the offset topic, a sink's are those of its consumer group. They change only while
the connector is STOPPED, after its plugin had its say. Answers are Kafka's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import commit, committed, delete_group, delete_offsets
from klamm.admin.model import TopicPartition
from klamm.connect.children.interface import Children
from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.errors import BadRequest, Conflict, NotFound, RequestError
from klamm.connect.herding.cluster import Cluster
from klamm.connect.plugins.catalog import PluginRegistry
from klamm.connect.service.source_offsets import OffsetKeeper, SourceOffsets
from klamm.connect.settings.restart_policy import ErrorClass
from klamm.connect.topics.config_topic import TargetState
from klamm.connect.topics.kafka_log import ADMIN_TIMEOUT_S
from klamm_base.errors import KlammError
from klamm_base.security import ClientSecurity
from klamm_kafka.wire.errors import ErrorCode

Offset = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""A source or Kafka partition and the offset in it; None resets it."""

STOP_S: Final = 30.0  # how long a request waits for the tasks of a connector that was stopped just now
_SINK_PARTITION: Final = (
    "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"
)
_SINK_OFFSET: Final = (
    "The offset for a sink connector should either be null or contain the key 'kafka_offset'"
)
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_MEMBERS: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.ILLEGAL_GENERATION,
)


class ConnectorKeeper(OffsetKeeper, Protocol):
    """The parts of a worker that say whether offsets may change, and that ask a connector's plugin."""

    config_lock: asyncio.Lock
    cluster: Cluster
    children: Children
    admin: AdminClient

    @property
    def plugins(self) -> PluginRegistry: ...

    async def settled(self, name: str) -> None: ...


class ConnectorOffsets:
    """See the module."""

    def __init__(self, runtime: ConnectorKeeper) -> None:
        self._runtime = runtime
        self._sources = SourceOffsets(runtime)

    async def get(self, name: str) -> dict[str, Any]:
        """Does GET offsets."""
        self._config(name)
        if self._is_sink(name):
            return {"offsets": _shown(await self._sink_offsets(name))}
        return {"offsets": _shown(await self._sources.read(name))}

    async def alter(self, name: str, offsets: Sequence[Offset]) -> str:
        """Does PATCH offsets; returns the message of the answer."""
        await self._runtime.cluster.require_leader()
        self._config(name)
        if not offsets:
            raise BadRequest("Partitions / offsets need to be provided for an alter offsets request")
        await self._wait_for_tasks(name)
        async with self._runtime.config_lock:
            await self._check_stopped(name)
            if self._is_sink(name):
                wanted = [_sink_offset(partition, offset) for partition, offset in offsets]
                await self._check_places(wanted)
                known = await self._ask_plugin(name, offsets)
                await self._alter_sink(name, wanted)
            else:
                known = await self._ask_plugin(name, offsets)
                await self._sources.write(name, offsets)
        return _message("altered", known=known)

    async def reset(self, name: str) -> str:
        """Does DELETE offsets; returns the message of the answer."""
        await self._runtime.cluster.require_leader()
        self._config(name)
        await self._wait_for_tasks(name)
        async with self._runtime.config_lock:
            await self._check_stopped(name)
            if self._is_sink(name):
                current = await self._sink_offsets(name)
                known = await self._ask_plugin(name, [(partition, None) for partition, _ in current])
                await self._delete_group(name)
            else:
                current = await self._sources.read(name)
                resets: list[Offset] = [(partition, None) for partition, _ in current]
                known = await self._ask_plugin(name, resets)
                await self._sources.write(name, resets)
        return _message("reset", known=known)

    async def wait_stopped(self, name: str) -> None:
        """Waits until the tasks of a stopped connector have committed and ended. Raises NotFound, Conflict."""
        await self._wait_for_tasks(name)
        await self._check_stopped(name)

    def _config(self, name: str) -> dict[str, str]:
        config = self._runtime.configs.config(name)
        if config is None:
            raise NotFound(f"Connector {name} not found")
        return config

    def _is_sink(self, name: str) -> bool:
        plugin = self._runtime.plugins.connector(self._config(name).get("connector.class", ""))
        return plugin is not None and plugin.type == "sink"

    def _group(self, name: str) -> str:
        return self._config(name).get("consumer.override.group.id", f"connect-{name}")

    async def _wait_for_tasks(self, name: str) -> None:
        """Waits until the tasks of a stopped connector have stopped on other workers: they commit offsets last of all."""
        self._config(name)
        stopped = self._runtime.configs.target(name) is TargetState.STOPPED
        if stopped and not await self._runtime.cluster.tasks_gone(name, STOP_S):
            raise Conflict(
                f"The tasks of connector {name} have not stopped on all workers within {STOP_S:g} s; try again"
            )

    async def _check_stopped(self, name: str) -> None:
        """Checks that the connector is stopped, and waits for its tasks here: a task commits last of all."""
        self._require_stopped(name)
        await self._runtime.settled(name)

    def _require_stopped(self, name: str) -> None:
        """Checks that the connector is stopped. Raises NotFound, BadRequest.

        Callers check again after each wait, because another request may have deleted or resumed it meanwhile.
        """
        self._config(name)
        configs = self._runtime.configs
        if configs.target(name) is not TargetState.STOPPED or configs.tasks(name):
            raise BadRequest(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done "
                f"for the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            )

    async def _ask_plugin(self, name: str, offsets: Sequence[Offset]) -> bool:
        """Returns whether the plugin checked the offsets itself. Raises BadRequest when it does not accept them."""
        params = {"config": self._config(name), "offsets": [list(o) for o in offsets]}
        try:
            checked = bool(await self._runtime.children.call("alter_offsets", params))
        except PluginCallError as e:
            refused = e.kind in {ErrorClass.DATA, ErrorClass.CONFIG, ErrorClass.CONNECT}
            raise (BadRequest if refused else RequestError)(str(e)) from None
        self._require_stopped(name)
        return checked

    # A sink's consumer group

    def _admin(self) -> Admin:
        """Returns Klamm's own admin client, which asks again while the group's coordinator moves. librdkafka does
        not: its ListConsumerGroupOffsets then ends the process
        (https://github.com/confluentinc/librdkafka/issues/5040).
        """
        config = self._runtime.config
        return Admin(
            ",".join(config["bootstrap.servers"]),
            timeout_s=ADMIN_TIMEOUT_S,
            client_id="klamm-connect-offsets",
            security=ClientSecurity.from_properties(config.client),
        )

    async def _sink_offsets(self, name: str) -> list[Offset]:
        group = self._group(name)
        try:
            async with self._admin() as admin:
                found = await committed(admin, group)
        except AdminError as e:
            raise RequestError(str(e)) from None
        except KlammError as e:
            raise RequestError(f"cannot read the offsets of group {group!r}: {e}") from None
        return [
            ({"kafka_partition": tp.partition, "kafka_topic": tp.topic}, {"kafka_offset": c.offset})
            for tp, c in found.items()
        ]

    async def _check_places(self, wanted: Sequence[tuple[str, int, int | None]]) -> None:
        """Checks, before anything changes, that partitions that get an offset exist. Raises BadRequest."""
        topics = sorted({topic for topic, _, offset in wanted if offset is not None})
        if not topics:
            return
        futures = self._runtime.admin.describe_topics(
            TopicCollection(topics), request_timeout=ADMIN_TIMEOUT_S
        )
        for topic, future in futures.items():
            try:
                count = len((await asyncio.wrap_future(future)).partitions)
            except KafkaException as e:
                if e.args[0].code() in _NO_TOPIC:
                    raise BadRequest(f"There is no topic {topic!r} to set an offset in") from None
                raise RequestError(f"cannot look up topic {topic}: {e.args[0].str()}") from None
            absent = sorted(p for t, p, offset in wanted if t == topic and offset is not None and p >= count)
            if absent:
                raise BadRequest(
                    f"There is no partition {absent[0]} in topic {topic!r}: it has {count}, numbered from 0"
                )

    async def _alter_sink(self, name: str, wanted: Sequence[tuple[str, int, int | None]]) -> None:
        group = self._group(name)
        places = {TopicPartition(topic, p): offset for topic, p, offset in wanted}
        reset = [tp for tp, offset in places.items() if offset is None]
        kept = {tp: offset for tp, offset in places.items() if offset is not None}
        try:
            async with self._admin() as admin:
                await _forget(admin, group, reset)
                await commit(admin, group, kept)
        except KlammError as e:
            raise RequestError(
                f"Failed to alter consumer group offsets for connector {name}: {_said(e)}"
            ) from None

    async def _delete_group(self, name: str) -> None:
        try:
            async with self._admin() as admin:
                await delete_group(admin, self._group(name))
        except KlammError as e:
            if isinstance(e, AdminError) and e.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            raise RequestError(
                f"Failed to reset consumer group offsets for connector {name}: {_said(e)}"
            ) from None


async def _forget(admin: Admin, group: str, places: Sequence[TopicPartition]) -> None:
    """Deletes single offsets of a group; the group may have none. Raises AdminError."""
    if not places:
        return
    try:
        outcome = await delete_offsets(admin, group, places)
    except AdminError as e:
        if e.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    for error in outcome.values():
        if error is not None and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error


def _said(error: KlammError) -> str:
    """Returns the error's text, with advice for a group that still has members."""
    hint = isinstance(error, AdminError) and error.code in _MEMBERS
    return f"{error}. Its tasks may not have stopped yet." if hint else str(error)


def _shown(offsets: Sequence[Offset]) -> list[dict[str, Any]]:
    return [{"partition": partition, "offset": offset} for partition, offset in offsets]


def _sink_offset(
    partition: dict[str, Any] | None, offset: dict[str, Any] | None
) -> tuple[str, int, int | None]:
    """Returns topic, partition and offset (None: reset), checked. Raises BadRequest with Kafka's words."""
    if partition is None:
        raise BadRequest("The partition for a sink connector offset cannot be null or missing")
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if topic is None or number is None:
        raise BadRequest(_SINK_PARTITION)
    try:
        partition_number = int(number)
        if offset is None:
            return str(topic), partition_number, None
        if offset.get("kafka_offset") is None:
            raise BadRequest(_SINK_OFFSET)
        value = int(offset["kafka_offset"])
    except (TypeError, ValueError):
        raise BadRequest(
            f"kafka_partition and kafka_offset must be integers, not {number!r} and "
            f"{(offset or {}).get('kafka_offset')!r}"
        ) from None
    if value < 0 or partition_number < 0:
        raise BadRequest("kafka_partition and kafka_offset cannot be negative")
    return str(topic), partition_number, value


def _message(done: str, *, known: bool) -> str:
    if known:
        return f"The offsets for this connector have been {done} successfully"
    # As in Kafka: a plugin that does not check offsets may keep some of its own elsewhere.
    return (
        f"The Connect framework-managed offsets for this connector have been {done} successfully. However, if this "
        f"connector manages offsets externally, they will need to be manually {done} in the system that the "
        "connector uses."
    )
