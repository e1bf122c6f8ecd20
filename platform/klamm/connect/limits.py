"""What a child may do before it is killed or given up, and the keys that say so, of a worker and of a connector. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.connect.restart_policy import POLICY_CONFIG, RestartPolicy
from klamm_base.configdef import ConfigDef, Importance, Type, between

HEARTBEAT: Final = "task.heartbeat.timeout.ms"
MEMORY: Final = "task.memory.max.bytes"

LIMITS_CONFIG: Final = (
    ConfigDef()
    .define(
        HEARTBEAT,
        Type.LONG,
        300_000,
        validator=between(1_000),
        importance=Importance.LOW,
        documentation="A connector or task whose main loop does not come round for this long (its plugin hangs in "
        "poll or put) is killed and restarted; its status then shows where its threads were. May be set in a worker's "
        "and in a connector's configuration.",
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
)


CONNECTOR_KEYS: Final = LIMITS_CONFIG.merged(POLICY_CONFIG)
"""Keys that are not Kafka's and may stand in a connector's configuration: answers show them only where they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Be silent for so long, have so much in memory (0: no limit), fail so often (None: as the worker says)."""

    heartbeat_ms: int
    memory_bytes: int = 0
    policy: RestartPolicy | None = None

    @classmethod
    def of(cls, worker: Mapping[str, str], connector: Mapping[str, str]) -> Limits:
        """The connector's word counts before the worker's. Raises ConfigError."""
        values = LIMITS_CONFIG.parse({**worker, **connector})
        own = any(key in connector for key in POLICY_CONFIG.names)
        return cls(
            heartbeat_ms=values[HEARTBEAT],
            memory_bytes=values[MEMORY],
            policy=RestartPolicy.from_props({**worker, **connector}) if own else None,
        )
