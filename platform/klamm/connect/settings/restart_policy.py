"""Decides on restarts of failed children: error classes, exponential backoff, a budget per window. Pure.

Invariant: a permanent error is never retried; a transient error is retried at most `max_restarts` times
in any `window_ms`, each time later than before. The end of the fork server is no failure of its
children: it takes nothing of the budget and is always followed by a restart, after pauses of its own. A
child that runs for `healthy_after_ms` starts with a full budget again. Callers pass in time and
randomness; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from klamm_base.backoff import pause
from klamm_base.configdef import ConfigDef, Importance, Type, between


class ErrorClass(StrEnum):
    """The reason why a child ended, as far as it decides about a restart."""

    DATA = "data"  # DataError: the record will be as bad next time
    CONFIG = "config"  # ConfigError: only a new configuration helps
    RETRIABLE = "retriable"
    CONNECT = "connect"
    UNKNOWN = "unknown"  # any other exception
    CRASH = "crash"  # a signal or an exit without a word
    HANG = "hang"  # no heartbeat of the main loop
    MEMORY = "memory"  # more than task.memory.max.bytes
    LOST = "lost"  # the fork server or the lease ended: not the child's doing


PERMANENT: Final = frozenset({ErrorClass.DATA, ErrorClass.CONFIG})
# A fork server starts in some 0.3 s. A fork server that dies again and again must not keep the machine busy,
# whatever the settings for tasks say.
LOSS_BACKOFF_MS: Final = 250
LOSS_BACKOFF_MAX_MS: Final = 30_000
LOSS_WINDOW_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start again after `delay_ms`; `attempt` counts from 1 since the child was last healthy."""

    attempt: int
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Leave it FAILED; `why` completes the sentence "not restarted: ..."."""

    why: str


Decision = Restart | GiveUp

POLICY_CONFIG: Final = (
    ConfigDef()
    .define(
        "task.restart.max",
        Type.INT,
        10,
        validator=between(0),
        importance=Importance.LOW,
        documentation="How often a failed connector or task is restarted within task.restart.window.ms "
        "before it stays FAILED. 0 restarts nothing, as Kafka does.",
    )
    .define(
        "task.restart.window.ms",
        Type.LONG,
        3_600_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="The window of task.restart.max.",
    )
    .define(
        "task.restart.backoff.ms",
        Type.LONG,
        1_000,
        validator=between(0),
        importance=Importance.LOW,
        documentation="The wait before the first restart; it doubles with each further one.",
    )
    .define(
        "task.restart.backoff.max.ms",
        Type.LONG,
        60_000,
        validator=between(0),
        importance=Importance.LOW,
        documentation="The longest wait before a restart.",
    )
    .define(
        "task.restart.healthy.ms",
        Type.LONG,
        300_000,
        validator=between(1),
        importance=Importance.LOW,
        documentation="After a run of this time a task's earlier failures are forgotten.",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The settings of the policy; `decide` is the whole rule."""

    max_restarts: int = 10
    window_ms: int = 3_600_000
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    healthy_after_ms: int = 300_000
    jitter: float = 0.2

    @classmethod
    def from_props(cls, props: Mapping[str, str]) -> RestartPolicy:
        """Reads the policy from worker properties (`task.restart.*`); raises ConfigError that names a bad value."""
        values = POLICY_CONFIG.parse(props)
        return cls(
            max_restarts=values["task.restart.max"],
            window_ms=values["task.restart.window.ms"],
            backoff_ms=values["task.restart.backoff.ms"],
            backoff_max_ms=values["task.restart.backoff.max.ms"],
            healthy_after_ms=values["task.restart.healthy.ms"],
        )

    def decide(
        self, history: History, error: ErrorClass, *, now_ms: int, random: float, alive_ms: int | None = None
    ) -> Decision:
        """Decides about a failure at `now_ms`, and records it in `history`. `random` is in [0, 1). `alive_ms` is the
        child's last sign of life if it was earlier than the failure: a hanging child is not healthy.
        """
        history.forget(self, now_ms, now_ms if alive_ms is None else alive_ms)
        history.running_since_ms = None
        if error in PERMANENT:
            return GiveUp(why=f"a {error} error is permanent")
        if error is ErrorClass.LOST:
            history.losses_ms.append(now_ms)
            attempt = len(history.losses_ms)
            wait_ms = self._wait_ms(LOSS_BACKOFF_MS, LOSS_BACKOFF_MAX_MS, attempt, random)
            return Restart(attempt=attempt, delay_ms=wait_ms)
        if len(history.restarts_ms) >= self.max_restarts:
            return GiveUp(
                why=f"task.restart.max={self.max_restarts} within {self.window_ms / 1000:g} s is used up"
            )
        history.restarts_ms.append(now_ms)
        attempt = len(history.restarts_ms)
        return Restart(attempt=attempt, delay_ms=self.delay_ms(attempt, random))

    def left(self, history: History) -> int:
        """Returns the restarts that the budget still had at the last decision."""
        return max(0, self.max_restarts - len(history.restarts_ms))

    def delay_ms(self, attempt: int, random: float) -> int:
        """Returns the exponential backoff: within `jitter` (20 %) below the doubled wait, at most the maximum."""
        return self._wait_ms(self.backoff_ms, self.backoff_max_ms, attempt, random)

    def _wait_ms(self, first_ms: int, max_ms: int, attempt: int, random: float) -> int:
        return int(pause(attempt, first=first_ms, longest=max_ms, jitter=self.jitter, chance=random))


@dataclass(slots=True)
class History:
    """A child's past: the restarts that count, the losses of its fork server, and the start of its present run."""

    restarts_ms: list[int] = field(default_factory=list)
    losses_ms: list[int] = field(default_factory=list)
    running_since_ms: int | None = None

    def running(self, now_ms: int) -> None:
        """Records that the child runs."""
        self.running_since_ms = now_ms

    def forget(self, policy: RestartPolicy, now_ms: int, alive_ms: int) -> None:
        """Drops restarts that no longer count: all after a healthy period, which ended at `alive_ms`, otherwise those
        before the window.
        """
        since = self.running_since_ms
        if since is not None and alive_ms - since >= policy.healthy_after_ms:
            self.restarts_ms.clear()
            self.losses_ms.clear()
        self.restarts_ms = [at for at in self.restarts_ms if now_ms - at < policy.window_ms]
        self.losses_ms = [at for at in self.losses_ms if now_ms - at < LOSS_WINDOW_MS]
