"""The shell around the coordinators: it does what they ask for.

It owns their timer on the event loop, the answers that wait, and the way to `__consumer_offsets`: a batch per
`Append`, written at once (one node holds one replica, so what is written is committed). All calls come from the
loop's thread and run to the end; effects are done in order before the next call. It decides nothing.

A handler calls `ask` and returns what it gets: the message, or the Future of one that has to wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.coordinator.effects import Append, Effect, Now, Token
from klamm_broker.coordinator.groups import GroupCoordinator
from klamm_broker.coordinator.model import GroupConfig, TopicPartition
from klamm_broker.log.errors import LogError
from klamm_broker.server.group_loading import load
from klamm_broker.server.producer_id_file import open_producer_ids
from klamm_broker.wire.batch import Record, encode_batch
from klamm_broker.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.topics import Partition

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class _Parked:
    """A token: turns the coordinator's answer into a message, for a handler that is there or a Future."""

    __slots__ = ("_convert", "future", "message")

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        self.message: Any = None
        self.future: asyncio.Future[Any] | None = None

    def answer(self, response: object) -> None:
        self.message = self._convert(response)
        # A Future that is done was given up: its connection is gone.
        if self.future is not None and not self.future.done():
            self.future.set_result(self.message)


class GroupShell:
    """See the module's docstring. `coordinator` is for handlers that only read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._loop = broker.loop
        self.coordinator = GroupCoordinator(_group_config(broker.config, _existing_partitions(broker)))
        self.producer_ids = open_producer_ids(broker.config.log_dir)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._loading: asyncio.Task[None] | None = None

    # Life

    def open(self) -> None:
        """Start to load what `__consumer_offsets` holds; until it is, its groups answer that they load."""
        topic = self.broker.topics.by_name.get(OFFSETS_TOPIC)
        partitions = [] if topic is None else topic.partitions
        self._loading = load(self, partitions, self._loop)
        self._set_timer()

    def drain(self) -> None:
        """Answer everything that is parked, so that a stop need not wait for rebalances."""
        self.run(self.coordinator.close(self.now()))

    def close(self) -> None:
        """Stop timer and loading."""
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()

    def now(self) -> Now:
        return Now(int(self._loop.time() * 1000), int(time.time() * 1000))

    # Requests

    def ask(
        self, call: Callable[[Token, Now], list[Effect]], convert: Callable[[Any], Any]
    ) -> Any | asyncio.Future[Any]:
        """Make one call of the coordinator that may park its request.

        `call` gets a token and the time; `convert` turns the answer, whenever it comes, into a message.
        """
        parked = _Parked(convert)
        try:
            effects = call(parked, self.now())
        except Exception:
            # `Turn` has kept what the call asked for before it failed.
            self.run(self.coordinator.tick(self.now()))
            raise
        self.run(effects)
        if parked.message is not None:
            return parked.message
        parked.future = self._loop.create_future()
        return parked.future

    async def ask_all(self, calls: Iterable[Callable[[Token, Now], list[Effect]]]) -> list[Any]:
        """Several calls; their answers in the same order, once all are there."""
        answers = [self.ask(call, lambda answer: [answer]) for call in calls]
        return [(await a if isinstance(a, asyncio.Future) else a)[0] for a in answers]

    def on_partitions_deleted(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Partitions of a topic that is being deleted: their committed offsets go as well."""
        gone = [TopicPartition(topic, index) for topic, index in partitions]
        self.run(self.coordinator.on_partitions_deleted(gone, self.now()))

    # Effects

    def run(self, effects: Iterable[Effect]) -> None:
        """Do these effects, in order, and those that follow from them; then set the timer."""
        queue = deque(effects)
        failed: Exception | None = None
        while queue:
            effect = queue.popleft()
            if not isinstance(effect, Append):
                self._answer(effect.token, effect.response)
                continue
            error = self._append(effect)
            try:
                queue.extend(effect.then(error, self.now()))
            except Exception as e:
                log.exception("what follows an append of the group coordinator failed; the rest is done")
                failed = e
        self._set_timer()
        if failed is not None:
            raise failed

    def _answer(self, token: Token, response: object) -> None:
        assert isinstance(token, _Parked)
        try:
            token.answer(response)
        except Exception as e:
            log.exception("an answer of the group coordinator could not be made: %r", response)
            if token.future is not None and not token.future.done():
                token.future.set_exception(e)

    def _append(self, append: Append) -> ErrorCode:
        partition = self._partition(append.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        now_ms = int(time.time() * 1000)
        try:
            batch = encode_batch(
                [Record(timestamp=now_ms, key=key, value=value) for key, value in append.records]
            )
            self.broker.append(partition, batch, now_ms=now_ms, origin="coordinator")
        except LogError as e:
            log.error("%s: %d records could not be written: %s", partition, len(append.records), e)  # noqa: TRY400
            return e.code
        except Exception:  # the coordinator must hear of it, or the offsets stay pending
            log.exception("%s: %d records could not be written", partition, len(append.records))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def _partition(self, index: int) -> Partition | None:
        return self.offsets_partition(index) if self.ensure_topic() else None

    def offsets_partition(self, index: int) -> Partition | None:
        return self.broker.partition(OFFSETS_TOPIC, index)

    def ensure_topic(self) -> bool:
        """Create `__consumer_offsets` when it is not there; whether it is there then."""
        if OFFSETS_TOPIC in self.broker.topics.by_name:
            return True
        config = self.broker.config
        try:
            self.broker.create_topic(
                OFFSETS_TOPIC,
                partitions=self.coordinator.config.offsets_topic_partitions,
                overrides={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                },
            )
        except (LogError, OSError):
            log.exception("%s could not be created", OFFSETS_TOPIC)
            return False
        return True

    # Time

    def _set_timer(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return  # it goes off no later than needed
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._loop.call_at(due_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self.run(self.coordinator.tick(self.now()))
        finally:  # one group's trouble must not stop the time of all
            self._set_timer()


def _existing_partitions(broker: Broker) -> int | None:
    topic = broker.topics.by_name.get(OFFSETS_TOPIC)
    return None if topic is None else len(topic.partitions)


def _group_config(config: BrokerConfig, existing_partitions: int | None) -> GroupConfig:
    """The coordinator's settings. The number of partitions is that of the topic, once there is one."""
    return GroupConfig(
        offsets_topic_partitions=existing_partitions or config["offsets.topic.num.partitions"],
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )
