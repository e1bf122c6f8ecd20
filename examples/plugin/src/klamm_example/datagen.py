"""A source that makes up orders. The same seed and number always give the same order.

Each task has a stream of its own: source partition {"stream": n}, offset {"next": number of the next order}.
Because an order depends on its number alone, a task that starts again goes on exactly where it was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, between, non_empty
from klamm_example.release import release
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition, SourceTask
from klamm_plugins.errors import ConnectError
from klamm_plugins.records import Headers, SourceRecord
from klamm_plugins.schema import FLOAT64, INT32, INT64, OPTIONAL_STRING, STRING, SchemaBuilder, Struct

ORDER = (
    SchemaBuilder.struct("klamm.example.Order")
    .version(1)
    .field("id", INT64)
    .field("customer", STRING)
    .field("item", STRING)
    .field("quantity", INT32)
    .field("price", FLOAT64)
    .field("note", OPTIONAL_STRING)
    .build()
)

_ITEMS = ("lamp", "chair", "table", "rug", "clock", "mirror")
_NOTES = (None, None, None, "gift", "leave at the door")
_BATCH_MAX = 1000
_NAP_S = 0.5


def _config() -> ConfigDef:
    return (
        ConfigDef()
        .define(
            "topic",
            Type.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            documentation="The topic that takes the orders.",
        )
        .define(
            "rate",
            Type.DOUBLE,
            10.0,
            validator=between(0),
            importance=Importance.MEDIUM,
            documentation="Orders per second and task; 0 makes them as fast as they can be sent.",
        )
        .define(
            "count",
            Type.LONG,
            0,
            validator=between(0),
            importance=Importance.MEDIUM,
            documentation="How many orders each task makes, ever; 0 for no end.",
        )
        .define(
            "seed", Type.LONG, 0, importance=Importance.LOW, documentation="Another seed makes other orders."
        )
    )


class DatagenSourceConnector(SourceConnector):
    """As many tasks as it may have, each with a stream of its own."""

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return release()

    @classmethod
    def config(cls) -> ConfigDef:
        return _config()

    @classmethod
    def task_class(cls) -> type[DatagenSourceTask]:
        return DatagenSourceTask

    def start(self, props: Mapping[str, str]) -> None:
        _config().parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._props | {"stream": str(n)} for n in range(max_tasks)]

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        for partition, offset in offsets:
            if not isinstance(partition.get("stream"), int):
                raise ConnectError(f"partition {dict(partition)} must have a number as its 'stream'")
            if offset is not None and not isinstance(offset.get("next"), int):
                raise ConnectError(f"offset {dict(offset)} must have a number as its 'next'")
        return True


class DatagenSourceTask(SourceTask):
    """Owes orders from the moment it starts, at its rate, and pays what it owes at each poll."""

    def start(self, props: Mapping[str, str]) -> None:
        settings = _config().parse(props)
        self._topic: str = settings["topic"]
        self._rate: float = settings["rate"]
        self._count: int = settings["count"]
        self._seed: int = settings["seed"]
        self._partition = {"stream": int(props["stream"])}
        committed = self.context.offset(self._partition)
        self._next: int = committed["next"] if committed else 0
        self._first = self._next
        self._began = time.monotonic()

    def poll(self) -> list[SourceRecord] | None:
        due = min(self._due() - self._next, _BATCH_MAX)
        if due <= 0:
            self.context.stopping.wait(self._until_next())
            return None
        numbers = range(self._next, self._next + due)
        self._next += due
        now = time.time_ns() // 1_000_000
        return [self._record(n, now) for n in numbers]

    def stop(self) -> None:
        """There is nothing to release."""

    def lag(self) -> int | None:
        return self._count - self._next if self._count else None

    def _due(self) -> int:
        """The number of the order after the last one that is due by now."""
        end = self._next + _BATCH_MAX
        if self._rate:
            end = self._first + 1 + int((time.monotonic() - self._began) * self._rate)
        return min(end, self._count) if self._count else end

    def _until_next(self) -> float:
        if not self._rate or (self._count and self._next >= self._count):
            return _NAP_S
        due_at = self._began + (self._next - self._first) / self._rate
        return max(min(due_at - time.monotonic(), _NAP_S), 0)

    def _record(self, number: int, now_ms: int) -> SourceRecord:
        order = make_order(self._seed, self._partition["stream"], number)
        return SourceRecord(
            self._partition,
            {"next": number + 1},
            self._topic,
            key_schema=STRING,
            key=order["customer"],
            value_schema=ORDER,
            value=order,
            timestamp=now_ms,
            headers=Headers.of(("generator", "klamm-example", STRING)),
        )


def make_order(seed: int, stream: int, number: int) -> Struct:
    """The order of this number."""
    rng = random.Random(f"{seed}/{stream}/{number}")
    values: dict[str, Any] = {
        "id": stream * 1_000_000_000 + number,
        "customer": f"customer-{rng.randrange(100)}",
        "item": rng.choice(_ITEMS),
        "quantity": rng.randint(1, 9),
        "price": round(rng.uniform(1, 500), 2),
        "note": rng.choice(_NOTES),
    }
    return Struct(ORDER, **values)
