"""Logs once that a broker cannot be reached, and once that it is back.

Every Kafka client of the worker and of its children reports every failed attempt to connect. Those
messages come here instead of going to the log. This module connects to the broker itself until that
works, and counts the messages meanwhile. When a connection ended although the broker can be reached, the
module logs one message: the first at level INFO, or as a warning the first that suspects a wrong setting.
Messages may come from any thread. A thread of the module's own connects; it lives only while a broker is
suspected.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.5
CONNECT_S: Final = 2.0
STRAGGLERS_S: Final = 5.0
"""A message that comes within this time after a broker is back belongs to the outage before."""
FORGET_S: Final = 300.0
"""The module forgets a broker that no client has mentioned for this long: its clients are gone."""
_ABOUT_A_CONNECTION: Final = re.compile(
    r"(?:(?P<address>(?:\[[\da-fA-F:.]+\]|[\w.-]+):\d+)|\b(?:Group|Txn)Coordinator)(?:/\w+)?: "
    r"(?:Disconnected|Connect to \S+ failed|Failed to resolve|Connection setup timed out)"
)
"""librdkafka sometimes leaves out the address of a coordinator."""
_BLAMES_A_SETTING: Final = re.compile(r"might be caused by|verify that")
"""The advice that librdkafka adds when a broker ends a connection before it is in use."""
_ALL_DOWN: Final = "brokers are down"


@dataclass(slots=True)
class _Suspect:
    """A broker to which a connection has failed. `shown` is the message to log if the broker can be reached.

    `told_down`: the log has a line about the broker.
    """

    since_s: float
    heard_s: float
    shown: str
    messages: int = 0
    told_down: bool = False


def connect(address: str) -> str | None:
    """Connects to HOST:PORT; returns the reason of a failure, otherwise None.

    Blocks for `CONNECT_S` at most for each address of the host, and before that for as long as the resolver takes.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as e:
        return e.strerror or str(e) or type(e).__name__
    except (ValueError, OverflowError) as e:  # no host name (an empty label, a long one), no port
        return str(e)
    return None


def _addresses(servers: str) -> list[str]:
    """Returns the HOST:PORT of each entry of `bootstrap.servers`; librdkafka takes PROTOCOL://HOST:PORT, too."""
    return [entry.strip().rpartition("://")[2] for entry in servers.split(",") if entry.strip()]


class BrokerOutages:
    """See the module."""

    def __init__(
        self,
        *,
        try_connect: Callable[[str], str | None] = connect,
        clock: Callable[[], float] = time.monotonic,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._try_connect = try_connect
        self._clock = clock
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._suspects: dict[str, _Suspect] = {}
        self._back_s: dict[str, float] = {}
        self._known: list[str] = []
        self._watching = False

    def expect(self, servers: str) -> None:
        """Makes messages without an address be about these brokers, until a message has an address."""
        with self._lock:
            self._known = _addresses(servers)

    def take(self, message: str, servers: str = "") -> bool:
        """Takes over a client's message and returns True; returns False for a message that belongs in the log as it
        is.

        `servers` (HOST:PORT,…) are the client's brokers; a message that all brokers are down is about them. Any other
        message without an address is about the outage that is under way, otherwise about `servers`, otherwise about
        the broker that was mentioned last.
        """
        match = _ABOUT_A_CONNECTION.search(message)
        with self._lock:
            if match is not None and match["address"]:
                brokers = self._known = [match["address"]]
            elif match is not None:
                brokers = list(self._suspects) or _addresses(servers) or self._known
            elif _ALL_DOWN in message:
                brokers = _addresses(servers) or list(self._suspects)
            else:
                return False
            for address in brokers:
                self._note(address, message)
            suspect = next((self._suspects[each] for each in brokers if each in self._suspects), None)
            if suspect is not None:
                suspect.messages += 1
                suspect.heard_s = self._clock()
                if _BLAMES_A_SETTING.search(message) and not _BLAMES_A_SETTING.search(suspect.shown):
                    suspect.shown = message
        return bool(brokers)

    def _note(self, address: str, message: str) -> None:
        now_s = self._clock()
        if address in self._suspects or now_s - self._back_s.get(address, -STRAGGLERS_S) < STRAGGLERS_S:
            return
        self._suspects[address] = _Suspect(now_s, now_s, message)
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="broker outages", daemon=True).start()

    def _watch(self) -> None:
        try:
            while self.look():
                time.sleep(self._pause_s)
        except Exception:
            log.exception(
                "the watch over brokers that cannot be reached has failed; the first message of each:"
            )
            with self._lock:
                suspects, self._suspects = self._suspects, {}
                self._watching = False  # the next message starts another watch
            for suspect in suspects.values():
                log.warning("%s", suspect.shown)

    def look(self) -> bool:
        """Connects to every suspected broker once; returns False when none is left."""
        with self._lock:
            addresses = list(self._suspects)
        for address in addresses:
            self._judge(address, self._try_connect(address))
        with self._lock:
            self._watching = bool(self._suspects)
            return self._watching

    def _judge(self, address: str, why: str | None) -> None:
        with self._lock:
            suspect = self._suspects[address]
            forgotten = why is not None and self._clock() - suspect.heard_s > FORGET_S
            if forgotten:
                del self._suspects[address]
            elif why is None:
                del self._suspects[address]
                self._back_s[address] = self._clock()
        if forgotten:
            log.info("broker %s cannot be reached, and its clients are gone: watching ends", address)
        elif why is not None and not suspect.told_down:
            suspect.told_down = True
            log.warning("broker %s cannot be reached: %s; its clients keep trying", address, why)
        elif why is None and suspect.told_down:
            log.warning(
                "broker %s is back after %.1f s; %d messages of its clients were not logged",
                address, self._clock() - suspect.since_s, suspect.messages,
            )  # fmt: skip
        elif why is None:
            level = logging.WARNING if _BLAMES_A_SETTING.search(suspect.shown) else logging.INFO
            log.log(level, "broker %s can be reached, although a client reported: %s", address, suspect.shown)


OUTAGES: Final = BrokerOutages()
"""The outages of this process's own clients and of its children's."""
