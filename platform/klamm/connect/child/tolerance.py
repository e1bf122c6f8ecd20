"""Error tolerance of a task (KIP-298): what happens to a record that cannot be converted, written or sent.

`errors.tolerance=none` (the default) fails the task, with Kafka's first line and the record's place in the
cause. `all` leaves the record out. A sink's record goes to the dead letter topic first, if there is one, in either
case. `errors.log.enable` logs each with its trace, and with the record itself if `errors.log.include.messages` says
so. Nothing is skipped in silence: without it, a line now and then says how many and which was the last, and the
task's status counts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm.connect.child.dead_letters import DeadLetters, Raw
from klamm.connect.child.vitals import Vitals
from klamm.connect.definitions import SINK
from klamm_base.configdef import parse_key
from klamm_plugins.errors import ConnectError, DataError

log = logging.getLogger(__name__)

_SUMMARY_INTERVAL_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """A record that cannot be used, and why.

    `stage` is Kafka's name (VALUE_CONVERTER …), `executing` the class that could not do it, `where` the record's
    place in words. `raw` is a sink's record as it was.
    """

    error: Exception
    stage: str
    executing: str
    where: str
    record: Any
    raw: Raw | None = None


class Tolerance:
    """Judges bad records; `skipped` counts those left out, `all` says that some may be, `logs` what errors.log.enable says."""

    def __init__(
        self, config: Mapping[str, str], *, vitals: Vitals, dead_letters: DeadLetters | None = None
    ) -> None:
        self.all: bool = parse_key(SINK["errors.tolerance"], config) == "all"
        self._include: bool = parse_key(SINK["errors.log.include.messages"], config)
        self.logs: bool = parse_key(SINK["errors.log.enable"], config)
        self._vitals = vitals
        self._dead_letters = dead_letters
        self._summary_due = 0.0
        self.skipped = 0

    def judge(self, bad: Bad) -> None:
        """Return when the record is to be left out; raise when the task must fail."""
        what = f"Error in stage {bad.stage} for {bad.where}: {bad.error}"
        if self._dead_letters is not None and bad.raw is not None:
            self._dead_letters.send(bad.raw, bad.error, stage=bad.stage, executing=bad.executing)
        if self.logs:
            shown = f"; the record: {bad.record!r}" if self._include else ""
            log.error("%s (class %s)%s", what, bad.executing, shown, exc_info=bad.error)
        if not self.all:
            cause = DataError(what)
            cause.__cause__ = bad.error
            raise ConnectError(f"Tolerance exceeded in error handler: {what}") from cause
        self.skipped += 1
        self._vitals.details = {"skipped": self.skipped}
        if not self.logs and time.monotonic() >= self._summary_due:
            self._summary_due = time.monotonic() + _SUMMARY_INTERVAL_S
            log.warning("record skipped (%d so far): %s", self.skipped, what)
