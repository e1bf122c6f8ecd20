"""Retries within a task (KIP-298): `errors.retry.timeout` and `errors.retry.delay.max.ms`.

An operation that raises RetriableError is retried, first after 300 ms, then each time after twice as long,
until the timeout is over; its last error then counts as the record's. 0 (the default) retries nothing, -1
never gives up. Any other error is raised at once. The task stays alive meanwhile (`wait`), and a stop ends
the retries.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from klamm.connect.child.error_figures import ErrorFigures
from klamm.connect.validation.definitions import SINK
from klamm_base.configdef import parse_key
from klamm_plugins.connector import StopSignal
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

# Kafka's RETRIES_DELAY_MIN_MS.
DELAY_MIN_MS: Final = 300
_STEP_S: Final = 0.2

T = TypeVar("T")


class Stopped(BaseException):
    """The task must stop while an operation is being retried; unfinished records are delivered again after
    the next start.

    Not an Exception, so that nobody takes it for the error of a record.
    """


def backoff_ms(attempt: int, *, delay_max_ms: int, left_ms: float, chance: float) -> int:
    """Returns the wait after failed attempt `attempt` (from 1), at most what is left.

    `chance` in [0, 1) spreads waits that reach the maximum, as Kafka's does.
    """
    # 2**40 * 300 ms is beyond every timeout; the cap keeps a large attempt from building a huge integer.
    full = DELAY_MIN_MS << min(attempt - 1, 40)
    delay = full if full <= delay_max_ms else int(delay_max_ms * chance)
    return int(max(0, min(delay, left_ms)))


class Retry:
    """Retries operations. `wait(seconds)` sleeps and keeps the task alive and in its group; it may return
    early.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        stopping: StopSignal,
        wait: Callable[[float], object],
        figures: ErrorFigures,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        timeout_ms: int = parse_key(SINK["errors.retry.timeout"], config)
        self._timeout_s = float("inf") if timeout_ms < 0 else timeout_ms / 1000
        self._delay_max_ms: int = parse_key(SINK["errors.retry.delay.max.ms"], config)
        self._stopping = stopping
        self._figures = figures
        self._clock = clock
        self.wait = wait

    @property
    def on(self) -> bool:
        """True if anything is retried at all."""
        return self._timeout_s > 0

    def call(self, stage: str, operation: Callable[[], T]) -> T:
        """Returns the result of `operation`, after retries if need be. Raises its error, or Stopped."""
        started = self._clock()
        attempt = 0
        while True:
            attempt += 1
            try:
                done = operation()
            except RetriableError as e:
                self._figures.failures += 1
                left_s = started + self._timeout_s - self._clock()
                if left_s <= 0:
                    self._figures.tries_no_more(stage)
                    raise
                self._figures.tries_again(stage, e)
                self._pause(stage, attempt, left_s, e)
                self._figures.retries += 1
            except BaseException:
                self._figures.tries_no_more(stage)
                raise
            else:
                if attempt > 1:
                    self._figures.tries_no_more(stage)
                return done

    def _pause(self, stage: str, attempt: int, left_s: float, error: RetriableError) -> None:
        delay_s = (
            backoff_ms(
                attempt,
                delay_max_ms=self._delay_max_ms,
                left_ms=left_s * 1000,
                chance=random.random(),
            )
            / 1000
        )
        log.log(
            logging.WARNING if attempt == 1 else logging.INFO,
            "%s failed (attempt %d), again in %.1f s: %s", stage, attempt, delay_s, error,
        )  # fmt: skip
        until = self._clock() + delay_s
        while (remaining_s := until - self._clock()) > 0:
            if self._stopping.is_set():
                raise Stopped from error
            self.wait(min(_STEP_S, remaining_s))
        if self._stopping.is_set():
            raise Stopped from error
