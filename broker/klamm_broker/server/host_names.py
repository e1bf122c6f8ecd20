"""Addresses of host names. A name server may let us wait for seconds, so they are asked for beside the event loop.

A change of the configuration asks first (`asking`); its check and its change then find the answers here.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm_broker.log.steps import Steps

KEPT_S: Final = 30.0
"""The time that an answer holds: from a check to the change that follows it."""
Addresses = list[tuple[socket.AddressFamily, str]]


class HostNames:
    """The answers of the last moments, refusals too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, Addresses | OSError]] = {}

    def addresses(self, host: str) -> Addresses:
        """Returns the addresses of a name or an address, in the resolver's order, each once. Raises OSError."""
        found = self._kept(host) or look_up(host)
        if isinstance(found, OSError):
            raise found
        return found

    def asking(self, hosts: Iterable[str]) -> Steps[None]:
        """Ask for those that are not known, each as a job of its own."""
        for host in dict.fromkeys(hosts):
            if host and not _is_address(host) and self._kept(host) is None:
                yield partial(self._keep, host)

    def _kept(self, host: str) -> Addresses | OSError | None:
        now = self._clock()
        self._known = {name: item for name, item in self._known.items() if now < item[0]}
        _, known = self._known.get(host, (0, None))
        return known

    def _keep(self, host: str) -> None:
        self._known[host] = self._clock() + KEPT_S, look_up(host)


def look_up(host: str) -> Addresses | OSError:
    """Ask the system; any thread may. Returns the addresses, or why there are none."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as e:
        return e
    return list(dict.fromkeys((info[0], str(info[4][0])) for info in infos))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
