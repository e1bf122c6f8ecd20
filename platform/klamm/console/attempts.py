"""Wrong passwords by the address that they come from, so that nobody guesses on. Pure: times are passed in, in seconds.

An address that has failed too often waits until its failures are old, also with the right password: else the answer would tell it. An
attempt counts as failed until it has succeeded, so that many at once are no way round.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Final

WINDOW_S: Final = 600.0
"""Failures count for so long."""
ADDRESSES_MAX: Final = 10_000
"""The address that was quiet longest is forgotten first."""


class Attempts:
    """The failed attempts of all addresses, `most` each in `WINDOW_S`; 0: as many as they like."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str | None, now_s: float) -> float:
        """Returns how long an address must wait before its next attempt: 0 where it may try, and then it counts as failed."""
        if not self._most:
            return 0.0
        failed = self._failed.setdefault(_of_one(address), deque())
        self._failed.move_to_end(_of_one(address))
        while failed and now_s - failed[0] >= WINDOW_S:
            failed.popleft()
        if len(failed) >= self._most:
            return failed[0] + WINDOW_S - now_s
        failed.append(now_s)
        while len(self._failed) > ADDRESSES_MAX:
            self._failed.popitem(last=False)
        return 0.0

    def succeeded(self, address: str | None) -> None:
        """Takes back the last attempt of an address; older failures still count, else each guesser with a login would have more."""
        if failed := self._failed.get(_of_one(address)):
            failed.pop()


def _of_one(address: str | None) -> str:
    """Returns the name of whoever has an address: of IPv6, one customer has a /64."""
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)
