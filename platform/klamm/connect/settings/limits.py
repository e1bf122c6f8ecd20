"""The limits of a child (silence, memory, failures), and their keys in the configurations of workers and
connectors. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.connect.settings.restart_policy import POLICY_CONFIG, RestartPolicy
from klamm_base.configdef import ConfigDef, Importance, Type, between, one_of

HEARTBEAT: Final = "task.heartbeat.timeout.ms"
MEMORY: Final = "task.memory.max.bytes"
PROCESSES: Final = "task.processes"
_EACH: Final = "task"
_SHARED: Final = "connector"
_POLL_INTERVAL: Final = "max.poll.interval.ms"

LIMITS_CONFIG: Final = (
    ConfigDef()
    .define(
        HEARTBEAT,
        Type.LONG,
        300_000,
        validator=between(1_000),
        importance=Importance.LOW,
        documentation="A connector or task whose main loop stands still for this long (its plugin hangs in "
        "poll or put) is killed and restarted; its status then shows where its threads were. May be set in a worker's "
        "and in a connector's configuration; without either, a sink whose consumer has a longer max.poll.interval.ms "
        "gets that time.",
    )
    .define(
        MEMORY,
        Type.LONG,
        0,
        validator=between(0),
        importance=Importance.LOW,
        documentation="A connector or task whose process has more than this in memory (its resident set) is killed and "
        "restarted. 0 sets no limit. May be set in a worker's and in a connector's configuration.",
    )
    .define(
        PROCESSES,
        Type.STRING,
        _EACH,
        validator=one_of(_EACH, _SHARED),
        importance=Importance.LOW,
        documentation="The processes of a connector and its tasks. task: each has its own, so that none harms another. "
        "connector: those on one worker are threads of one process, which takes a fraction of the memory; a crash, a hang or "
        "too much memory of one restarts all of them. May be set in a worker's and in a connector's configuration.",
    )
)


CONNECTOR_KEYS: Final = LIMITS_CONFIG.merged(POLICY_CONFIG)
"""Keys that Kafka does not have and a connector's configuration may; answers show them only where they are
given.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A child's longest silence, most memory (0: no limit), restart policy (None: the worker's), and whether it shares a process."""

    heartbeat_ms: int
    memory_bytes: int = 0
    shared: bool = False  # one process for the connector and its tasks
    policy: RestartPolicy | None = None

    @classmethod
    def of(cls, worker: Mapping[str, str], connector: Mapping[str, str]) -> Limits:
        """Returns the limits of a connector, whose settings override the worker's. Raises ConfigError."""
        values = LIMITS_CONFIG.parse({**worker, **connector})
        own = any(key in connector for key in POLICY_CONFIG.names)
        return cls(
            heartbeat_ms=_heartbeat_ms(values[HEARTBEAT], worker, connector),
            memory_bytes=values[MEMORY],
            shared=values[PROCESSES] == _SHARED,
            policy=RestartPolicy.from_props({**worker, **connector}) if own else None,
        )


def _heartbeat_ms(value: int, worker: Mapping[str, str], connector: Mapping[str, str]) -> int:
    """Returns the time limit of silence. A longer `max.poll.interval.ms` raises the default, because it gives
    a sink's `put` that time.
    """
    if HEARTBEAT in worker or HEARTBEAT in connector:
        return value
    text = connector.get(f"consumer.override.{_POLL_INTERVAL}", worker.get(f"consumer.{_POLL_INTERVAL}", ""))
    return max(value, int(text)) if text.strip().isdecimal() else value
