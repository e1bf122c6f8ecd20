"""The audit log: the logger `klamm.audit`, one JSON object a line, for logins, denials and changes.

A client that repeats what it may not do is told of once in ten seconds, with the number of times. Event loop's thread only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from klamm_broker.security.authorizer import Denial
    from klamm_broker.security.principal import KafkaPrincipal

log = logging.getLogger("klamm.audit")

PAUSE_S: Final = 10.0
"""Time from one line of a denial to the next line of the same."""
DENIALS_MAX: Final = 1000
"""Different denials that are remembered; beyond it the repetitions of all are counted anew."""


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


class Denials:
    """Writes denials. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[Denial, list[Any]] = {}  # when it was told of, and how often it has come since then

    def __call__(self, denial: Denial) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        now = self._clock()
        seen = self._seen.get(denial)
        if seen is not None and now - seen[0] < PAUSE_S:
            seen[1] += 1
            return
        times = 1 if seen is None else seen[1] + 1
        if len(self._seen) >= DENIALS_MAX:
            self._seen.clear()
        self._seen[denial] = [now, 0]
        write(
            "denied", principal=denial.principal, host=denial.host, api=denial.api, operation=denial.operation.name,
            resource_type=denial.resource_type.name, resource=denial.resource_name, rule=denial.rule, times=times,
        )  # fmt: skip
