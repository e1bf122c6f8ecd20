"""Error handling of a task (KIP-298, KIP-610, KIP-779): what happens to a record that cannot be used.

Sources, sinks and transforms all use it in the same way:

    tolerance.retry.call(stage, operation)   # RetriableError: again, as errors.retry.timeout says
    tolerance.failed(record, error, stage=, executing=)   # returns: leave the record out; raises: the task fails
    tolerance.settle(seconds)   # before offsets past failed records are committed: dead letters are acknowledged

`errors.tolerance=none` (the default) fails the task, with Kafka's first line and the record's place in the
cause. `all` leaves the record out. In either case the record first goes to the dead letter topic, if there is
one. `errors.log.enable` logs each record's error with its trace, and with the record itself if
`errors.log.include.messages` says so. No record is skipped silently: without `errors.log.enable`, a line now
and then says how many were skipped and which was the last, and the task's status counts them. Any thread may
call `failed` and `judge`; only the task's thread calls the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from klamm.connect.child.control import Control
from klamm.connect.child.dead_letters import DeadLetters, Raw
from klamm.connect.child.retry import Retry
from klamm.connect.model import TaskId
from klamm.connect.validation.definitions import SINK
from klamm_base.configdef import parse_key
from klamm_plugins.errors import ConnectError, DataError, RetriableError

log = logging.getLogger(__name__)

_SUMMARY_INTERVAL_S: Final = 10.0
_QUOTED_BYTES_MAX: Final = 100


class Stage(StrEnum):
    """Kafka's names of the steps that process a record."""

    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"


# In this stage the task itself reports a failed operation, which nobody has counted yet.
_REPORTED: Final = frozenset({Stage.TASK_PUT, Stage.KAFKA_PRODUCE})


class Origin(Protocol):
    """Describes records for errors and dead letters: `child.origins` has a sink's and a source's."""

    def where(self, record: Any) -> str:
        """Returns the record's place, in Kafka's words."""
        ...

    def raw(self, record: Any) -> Raw:
        """Returns what the dead letter topic keeps of the record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A record that cannot be used, and why.

    `stage` is Kafka's name (VALUE_CONVERTER …), `executing` the class that failed, `where` the record's place
    in words. `raw` is the record as it was, or a function that makes it when it is needed. `data` are the bytes that
    a converter refused.
    """

    error: Exception
    stage: str
    executing: str
    where: str
    record: Any
    raw: Raw | Callable[[], Raw] | None = None
    data: bytes | None = None

    def quoted(self) -> str:
        """Returns the error after the refused bytes, escaped and cut, which it may quote already."""
        said = str(self.error)
        if self.data is None or repr(self.data) in said:
            return said
        cut = f"… ({len(self.data)} bytes)" if len(self.data) > _QUOTED_BYTES_MAX else ""
        return f"the bytes {self.data[:_QUOTED_BYTES_MAX]!r}{cut}: {said}"


class Tolerance:
    """A task's error handling. `all`: bad records may be left out; `logs`: the value of errors.log.enable.

    `failed` needs `origin`. `wait` sleeps between retries (default: sleeps, and shows signs of life).
    """

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        control: Control,
        task: TaskId | None = None,
        dead_letters: DeadLetters | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.all: bool = parse_key(SINK["errors.tolerance"], config) == "all"
        self._include: bool = parse_key(SINK["errors.log.include.messages"], config)
        self.logs: bool = parse_key(SINK["errors.log.enable"], config)
        self._control = control
        self._task = task
        self._figures = control.vitals.errors
        self._dead_letters = dead_letters
        self.origin = origin
        self.retry = Retry(config, stopping=control.stopping, wait=self._wait, figures=self._figures)
        self._lock = threading.Lock()
        self._summary_due = 0.0

    @property
    def keeps(self) -> bool:
        """True if there is a dead letter topic."""
        return self._dead_letters is not None

    @property
    def skipped(self) -> int:
        """The number of records that were left out."""
        return self._figures.skipped

    def failed(
        self,
        record: Any,
        error: Exception,
        *,
        stage: str,
        executing: str,
        kept: Callable[[], None] | None = None,
    ) -> None:
        """Judges a record whose origin is known, as `judge` does."""
        assert self.origin is not None
        origin = self.origin
        bad = Bad(
            error=error,
            stage=stage,
            executing=executing,
            where=origin.where(record),
            record=record,
            raw=lambda: origin.raw(record),
        )
        self.judge(bad, kept=kept)

    def judge(self, bad: Bad, *, kept: Callable[[], None] | None = None) -> None:
        """Returns when the record is to be left out; raises when the task must fail.

        `kept` is called in the task's thread once the dead letter topic has the record, or at once without
        such a topic. Then the record's offset may be committed.
        """
        stage = f"Error in stage {bad.stage} for {bad.where}"
        self._count(bad)
        if self._dead_letters is not None and bad.raw is not None:
            raw = bad.raw() if callable(bad.raw) else bad.raw
            self._dead_letters.send(
                raw, bad.error, stage=bad.stage, executing=bad.executing, kept=kept if self.all else None
            )
        elif kept is not None and self.all:
            kept()
        self._log(bad)
        if not self.all:
            cause = DataError(stage)
            cause.__cause__ = bad.error
            raise ConnectError(f"Tolerance exceeded in error handler: {stage}: {bad.quoted()}") from cause
        self._skip(f"{stage}: {bad.error}")

    def serve(self) -> None:
        """Takes acknowledgements of dead letters. Raises the error of a dead letter that was refused."""
        if self._dead_letters is not None:
            self._dead_letters.serve()

    def settle(self, within_s: float) -> bool:
        """Waits until all dead letters are acknowledged; returns False when that took too long. Raises as
        `serve` does.
        """
        return self._dead_letters is None or self._dead_letters.settle(within_s)

    def _count(self, bad: Bad) -> None:
        with self._lock:
            # A retried operation has already counted its own failures.
            if bad.stage in _REPORTED or not isinstance(bad.error, RetriableError):
                self._figures.failures += 1
            self._figures.failed()

    def _log(self, bad: Bad) -> None:
        if not self.logs:
            return
        shown = f"; the record: {bad.record!r}" if self._include else ""
        log.error(
            "Error encountered in task %s. Executing stage '%s' with class '%s', for %s: %s%s",
            self._task, bad.stage, bad.executing, bad.where, bad.error, shown, exc_info=bad.error,
        )  # fmt: skip
        with self._lock:
            self._figures.logged += 1

    def _skip(self, what: str) -> None:
        with self._lock:
            self._figures.skipped += 1
            skipped = self._figures.skipped
            if self.logs or time.monotonic() < self._summary_due:
                return
            self._summary_due = time.monotonic() + _SUMMARY_INTERVAL_S
        log.warning("record skipped (%d so far): %s", skipped, what)

    def _wait(self, seconds: float) -> None:
        self._control.vitals.beat()
        self._control.stopping.wait(seconds)
