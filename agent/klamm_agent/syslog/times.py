"""Times of syslog messages as seconds since the epoch: RFC 3339, and RFC 3164, which has neither year nor zone. Pure.

The parser chooses the latest year in which the time is at most a week after the message came; a week is how far clocks and zones may
be wrong. So a message of 31 December that comes on 1 January is last year's. The zone is the input's.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from klamm_agent.stages.timestamps import EARLIEST, LATEST

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"), 1
    )
}
BSD: Final = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} (?:\d{4} )?\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?"
ISO: Final = rb"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)?"
_BSD_PARTS: Final = re.compile(
    rb"(\w{3}) +(\d{1,2}) (?:(\d{4}) )?(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?", re.IGNORECASE
)
_ISO_PARTS: Final = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d).(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?"
)
_KEPT: Final = 1024  # texts with a known time: messages of one second share theirs
_AHEAD_S: Final = 7 * 86_400.0
_NEAR_S: Final = 86_400.0  # for so long the choice of a year holds


class Times:
    """A parser of times for one zone (None: the machine's). For one thread."""

    def __init__(self, zone: dt.tzinfo | None = None) -> None:
        self._zone = zone
        self._known: dict[bytes, float | None] = {}
        self._since = float("-inf")

    def of(self, text: bytes, came: float) -> float | None:
        """Reads `text`, which matches BSD or ISO; None when it names no time, such as 31 February. `came` is when the message came."""
        if not 0 <= came - self._since < _NEAR_S or len(self._known) >= _KEPT:
            self._known.clear()
            self._since = came
        try:
            return self._known[text]
        except KeyError:
            found = self._parse(text, came)
            if found is not None and not EARLIEST <= found <= LATEST:
                found = None  # it is a time in its zone, but no calendar has it in UTC
            self._known[text] = found
            return found

    def _parse(self, text: bytes, came: float) -> float | None:
        try:
            if (iso := _ISO_PARTS.fullmatch(text)) is not None:
                return self._iso(iso)
            if (bsd := _BSD_PARTS.fullmatch(text)) is not None:
                return self._bsd(bsd, came)
        except (ValueError, OverflowError, OSError):
            pass  # the numbers are no date: the result says so
        return None

    def _iso(self, m: re.Match[bytes]) -> float:
        date = (int(m[1]), int(m[2]), int(m[3]))
        zone = self._zone
        if m[8]:
            zone = dt.UTC
        elif m[9]:
            ahead = dt.timedelta(hours=int(m[10]), minutes=int(m[11]))
            zone = dt.timezone(-ahead if m[9] == b"-" else ahead)
        return _seconds(date, (int(m[4]), int(m[5]), int(m[6])), zone) + _fraction(m[7])

    def _bsd(self, m: re.Match[bytes], came: float) -> float | None:
        month = _MONTHS[m[1].lower()]
        day, clock = int(m[2]), (int(m[4]), int(m[5]), int(m[6]))
        if m[3]:
            return _seconds((int(m[3]), month, day), clock, self._zone) + _fraction(m[7])
        this = dt.datetime.fromtimestamp(came, tz=self._zone or dt.UTC).year
        for year in range(this + 1, this - 8, -1):
            try:
                at = _seconds((year, month, day), clock, self._zone)
            except ValueError:
                continue  # a year without 29 February
            if at <= came + _AHEAD_S:
                return at + _fraction(m[7])
        return None


def _seconds(date: tuple[int, int, int], clock: tuple[int, int, int], zone: dt.tzinfo | None) -> float:
    hour, minute, second = clock
    leap = second == 60  # counted as the next second, as POSIX time has no other
    return dt.datetime(*date, hour, minute, 59 if leap else second, tzinfo=zone).timestamp() + leap


def _fraction(digits: bytes | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0
