"""The audit log: the logger `klamm.audit`, one JSON object a line, for logins, denials and changes.

A client that repeats what it may not do is told of once in ten seconds, with the number of times; one that tries many things
has so many lines in ten seconds, and the others are counted. Names of any length are cut. Event loop's thread only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from klamm_broker.security.authorizer import Denial
    from klamm_broker.security.principal import KafkaPrincipal

log = logging.getLogger("klamm.audit")

PAUSE_S: Final = 10.0
"""Time from one line of a denial to the next line of the same."""
DENIALS_MAX: Final = 1000
"""Different denials that are remembered; beyond it the repetitions of all are counted anew."""

LINES_MAX: Final = 100
"""Lines of denials that a principal has in `PAUSE_S`."""
TEXT_MAX: Final = 249
"""Characters of a name in a line: the longest name of a topic. A client may ask for names of 32 KB."""


def cut(text: str) -> str:
    """Returns a text as it is told: what a client makes up has any length."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def write(event: str, **said: object) -> None:
    """Writes one line."""
    if log.isEnabledFor(logging.INFO):
        log.info(json.dumps({"event": event, **said}, ensure_ascii=False, default=str))


class Sender(Protocol):
    """The client whose request is handled."""

    host: str
    port: int
    listener: str
    principal: KafkaPrincipal


def changed(ctx: Sender, what: str, **said: object) -> None:
    """Writes that a client has changed something. Values must not hold secrets."""
    write(f"{what} changed", principal=ctx.principal, peer=f"{ctx.host}:{ctx.port}", listener=ctx.listener, **said)  # fmt: skip


class _Lines:
    """The lines of one principal since `began`."""

    __slots__ = ("began", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = self.left_out = 0


class Denials:
    """Writes denials. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[Denial, list[Any]] = {}  # when it was told of, and how often it has come since then
        self._lines: dict[str, _Lines] = {}

    def __call__(self, denial: Denial) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        if len(denial.resource_name) > TEXT_MAX:
            denial = replace(denial, resource_name=cut(denial.resource_name))
        now = self._clock()
        seen = self._seen.get(denial)
        if seen is not None and now - seen[0] < PAUSE_S:
            seen[1] += 1
            return
        if not self._has_room(denial.principal, now):
            return
        times = 1 if seen is None else seen[1] + 1
        if len(self._seen) >= DENIALS_MAX:
            self._seen.clear()
        self._seen[denial] = [now, 0]
        write(
            "denied", principal=denial.principal, host=denial.host, api=denial.api, operation=denial.operation.name,
            resource_type=denial.resource_type.name, resource=denial.resource_name, rule=denial.rule, times=times,
        )  # fmt: skip

    def _has_room(self, principal: str, now: float) -> bool:
        """Decides whether a principal has another line. Tells of it when it has none, and how many were left out before."""
        lines = self._lines.get(principal)
        if lines is None or now - lines.began >= PAUSE_S:
            if lines is not None and lines.left_out:
                write("denials left out", principal=principal, times=lines.left_out)
            if len(self._lines) >= DENIALS_MAX:
                self._lines.clear()
            lines = self._lines[principal] = _Lines(now)
        if lines.written < LINES_MAX:
            lines.written += 1
            return True
        if not lines.left_out:
            write("denials are only counted", principal=principal, lines=LINES_MAX, seconds=PAUSE_S)
        lines.left_out += 1
        return False
