"""Tells of logins that a broker refuses, from what librdkafka's clients report.

Such a client tries again twice a second, and reports each refusal. The first one is logged, with user, mechanism and the broker's
words; later ones are counted, and told rarely. Messages may come from any thread.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger(__name__)

AGAIN_S: Final = 600.0
"""The time between two lines about the same login."""
KNOWN_MAX: Final = 1000
"""The logins that are remembered. More are no clients of one server: the oldest is forgotten."""
CHECK: Final = "check name and password in sasl.jaas.config"
"""Said of a refused name and password."""
SILENT_S: Final = 30.0
"""A client that says within this time after a refusal that all brokers are down says nothing new."""
_ALL_DOWN: Final = "brokers are down"
_REFUSED: Final = re.compile(
    r"(?:\w+://)?(?P<where>[^\s/]+:\d+)(?:/\S+)?: SASL authentication error: (?P<said>.*?)(?: \(after \d+ms in state .*\))?$"
)


def refusal(message: str, config: Mapping[str, Any]) -> str | None:
    """Returns the sentence for a client's message about a refused login; None for any other message.

    `config` are the client's settings, by librdkafka's names.
    """
    match = _REFUSED.search(message)
    if match is None:
        return None
    mechanism, user = config.get("sasl.mechanism"), config.get("sasl.username")
    who = f" as {user!r}" if user else ""
    login = f"{mechanism}{who}: " if mechanism else ""
    check = CHECK if user or not mechanism else "check the token and the broker's rules for it"
    return f"{match['where']}: {login}{match['said']}; {check}"


_Who = tuple[Any, Any]


@dataclass(slots=True)
class _Login:
    """A login that is refused. `untold`: refusals since the last line."""

    told_s: float
    untold: int = 0


class RefusedLogins:
    """See the module."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logins: dict[str, _Login] = {}
        self._refused_s: dict[_Who, float] = {}
        self.count = 0
        """All refusals so far."""

    def take(self, message: str, config: Mapping[str, Any]) -> bool:
        """Takes over a client's message and returns True; returns False if it is not about a refused login."""
        sentence = refusal(message, config)
        now_s, who = self._clock(), (config.get("sasl.mechanism"), config.get("sasl.username"))
        if sentence is None:
            return _ALL_DOWN in message and now_s - self._refused_s.get(who, -math.inf) < SILENT_S
        with self._lock:
            self.count += 1
            self._refused_s[who] = now_s
            login = self._logins.get(sentence)
            if login is not None and now_s - login.told_s < AGAIN_S:
                login.untold += 1
                return True
            untold = login.untold if login else 0
            self._logins[sentence] = _Login(now_s)
            _bound(self._logins)
            _bound(self._refused_s)
        if untold:
            log.warning("the login is still refused, %d times since the last line: %s", untold + 1, sentence)
        else:
            log.warning("the login is refused, and tried again until it is right: %s", sentence)
        return True


def _bound(known: dict[Any, Any]) -> None:
    if len(known) > KNOWN_MAX:
        del known[next(iter(known))]


LOGINS: Final = RefusedLogins()
"""The refused logins of this process's clients."""
