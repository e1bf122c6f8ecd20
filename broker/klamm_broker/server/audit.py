"""The audit log: the logger `klamm.audit`, one JSON object a line, for logins, denials and changes.

A client that repeats what it may not do is told of once in ten seconds, with the number of times; one that tries many things
has so many lines in ten seconds, and the others are counted. Names of any length are cut. Event loop's thread only.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
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
"""Different denials that are remembered; beyond it the oldest is told of and forgotten."""
LINES_MAX: Final = 100
"""Lines of denials that a principal has in `PAUSE_S`."""
REFUSED_MAX: Final = 1000
"""Lines of refused logins in `PAUSE_S` from all addresses together: whoever has an IPv6 network has addresses without end."""
TEXT_MAX: Final = 249
"""Characters of a name in a line: the longest name of a topic. A client may ask for names of 32 KB."""


def cut(text: str) -> str:
    """Returns a text as it is told: what a client makes up has any length."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def is_on() -> bool:
    """Tells whether lines are written: the log's level may be changed."""
    return log.isEnabledFor(logging.INFO)


def write(event: str, **said: object) -> None:
    """Writes one line."""
    if is_on():
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


Later = Callable[[float, Callable[[], None]], object]
"""Calls a function in so many seconds."""


class Denials:
    """Writes denials. `clock` returns seconds. `total` counts them.

    Counts are told by a timer (`later`), when others need their room, and by `close`: the `times` of all lines are `total`.
    """

    def __init__(self, clock: Callable[[], float], later: Later = lambda _seconds, _call: None) -> None:
        self._clock = clock
        self._later = later
        self._waiting = False
        self._seen: dict[Denial, list[Any]] = {}  # when it was told of, and how often it has come since then
        self._lines: dict[str, _Lines] = {}
        self.total = 0

    def __call__(self, denial: Denial) -> None:
        self.total += 1
        if not is_on():
            return
        if len(denial.resource_name) > TEXT_MAX:
            denial = replace(denial, resource_name=cut(denial.resource_name))
        now = self._clock()
        seen = self._seen.get(denial)
        if seen is not None and now - seen[0] < PAUSE_S:
            seen[1] += 1
            self._wait()
            return
        if not self._has_room(denial.principal, now):
            return
        self._make_room()
        times = 1 if seen is None else seen[1] + 1
        self._seen.pop(denial, None)  # the dict is in the order in which they were told
        self._seen[denial] = [now, 0]
        _tell(denial, times)

    def close(self) -> None:
        """Tells of all that was only counted."""
        for denial, (_, times) in self._seen.items():
            if times:
                _tell(denial, times)
        for principal, lines in self._lines.items():
            _tell_left_out(principal, lines)
        self._seen.clear()
        self._lines.clear()

    def _make_room(self) -> None:
        if len(self._seen) >= DENIALS_MAX:
            oldest = next(iter(self._seen))
            if times := self._seen.pop(oldest)[1]:
                _tell(oldest, times)

    def _has_room(self, principal: str, now: float) -> bool:
        """Decides whether a principal has another line. Tells of it when it has none, and how many were left out before."""
        lines = self._lines.get(principal)
        if lines is None or now - lines.began >= PAUSE_S:
            _tell_left_out(principal, lines)
            if lines is None and len(self._lines) >= DENIALS_MAX:
                oldest = next(iter(self._lines))
                _tell_left_out(oldest, self._lines.pop(oldest))
            lines = self._lines[principal] = _Lines(now)
        if lines.written < LINES_MAX:
            lines.written += 1
            return True
        if not lines.left_out:
            write("denials are only counted", principal=principal, lines=LINES_MAX, seconds=PAUSE_S)
        lines.left_out += 1
        self._wait()
        return False

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._later(PAUSE_S, self._look)

    def _look(self) -> None:
        """Tells of counts whose time is over, and waits for the others."""
        self._waiting = False
        now = self._clock()
        for denial, seen in self._seen.items():
            if seen[1] and now - seen[0] >= PAUSE_S:
                _tell(denial, seen[1])
                seen[0], seen[1] = now, 0
        for principal in [p for p, lines in self._lines.items() if now - lines.began >= PAUSE_S]:
            _tell_left_out(principal, self._lines.pop(principal))
        if any(times for _, times in self._seen.values()) or any(
            lines.left_out for lines in self._lines.values()
        ):
            self._wait()


class RefusedLogins:
    """Writes refused logins: `LINES_MAX` of an address in ten seconds, `REFUSED_MAX` of all, then how many more there were.

    Whoever reaches a listener can cause them.
    """

    def __init__(self, later: Later) -> None:
        self._later = later
        self._written = 0
        self._counts: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()

    def __call__(self, host: str, event: str, **said: object) -> None:
        if not self._counts:
            self._later(PAUSE_S, self.close)
        if host not in self._counts and len(self._counts) >= DENIALS_MAX:
            host = "others"
        count = self._counts[host] = self._counts.get(host, 0) + 1
        if count <= LINES_MAX and self._written < REFUSED_MAX:
            self._written += 1
            write(event, outcome="refused", **said)
        else:
            self._left_out[host] += 1

    def close(self) -> None:
        """Tells of those that were only counted."""
        for host, times in self._left_out.items():
            write("refused logins left out", host=host, times=times)
        self._counts.clear()
        self._left_out.clear()
        self._written = 0


def _tell(denial: Denial, times: int) -> None:
    write(
        "denied", principal=denial.principal, host=denial.host, api=denial.api, operation=denial.operation.name,
        resource_type=denial.resource_type.name, resource=denial.resource_name, rule=denial.rule, times=times,
    )  # fmt: skip


def _tell_left_out(principal: str, lines: _Lines | None) -> None:
    if lines is not None and lines.left_out:
        write("denials left out", principal=principal, times=lines.left_out)
