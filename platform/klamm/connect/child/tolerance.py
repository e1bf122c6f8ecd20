"""Error tolerance of a task (KIP-298): what happens to a record that cannot be converted.

`errors.tolerance=none` (the default) fails the task, with Kafka's first line and the record's place in the
cause. `all` leaves the record out, counts it and logs it: with its place always, for nothing is skipped in
silence, and with the record itself only if `errors.log.include.messages` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from klamm_base.configdef import ConfigDef, Importance, Type, one_of
from klamm_plugins.errors import ConnectError, DataError

log = logging.getLogger(__name__)

CONFIG = (
    ConfigDef()
    .define("errors.tolerance", Type.STRING, "none", validator=one_of("none", "all"))
    .define("errors.log.include.messages", Type.BOOLEAN, False, importance=Importance.MEDIUM)
)


class Tolerance:
    """Judges bad records; `skipped` counts those left out."""

    def __init__(self, config: Mapping[str, str]) -> None:
        values = CONFIG.parse(config)
        self._all: bool = values["errors.tolerance"] == "all"
        self._include: bool = values["errors.log.include.messages"]
        self.skipped = 0

    def judge(self, error: Exception, *, stage: str, where: str, record: Any) -> None:
        """Return when the record is to be left out; raise when the task must fail.

        `stage` is Kafka's name (VALUE_CONVERTER …), `where` names the record's place.
        """
        what = f"Error in stage {stage} for {where}: {error}"
        if not self._all:
            cause = DataError(what)
            cause.__cause__ = error
            raise ConnectError(f"Tolerance exceeded in error handler: {what}") from cause
        self.skipped += 1
        log.error("record skipped (%d so far): %s%s", self.skipped, what, self._shown(record))

    def _shown(self, record: Any) -> str:
        return f"; the record: {record!r}" if self._include else ""
