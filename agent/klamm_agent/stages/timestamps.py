"""Times as logs write them, turned into seconds since the epoch, and these into `@timestamp`. Pure, but for the host's time zone.

Formats: `auto`, `ISO8601`, `UNIX`, `UNIX_MS`, `UNIX_US`, `UNIX_NS`, letters as Java has them (`dd/MMM/yyyy:HH:mm:ss Z`), or
strptime's (`%d/%b/%Y:%H:%M:%S %z`).
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from klamm_base.errors import KlammError

_NUMBERS: Final = {"UNIX": 1.0, "UNIX_MS": 1e3, "UNIX_US": 1e6, "UNIX_NS": 1e9}
_LETTERS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "YYYY": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m", "dd": "%d",
    "d": "%d", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S", "a": "%p",
    "EEEE": "%A", "EEE": "%a", "EE": "%a", "E": "%a", "Z": "%z", "ZZ": "%z", "X": "%z", "XX": "%z", "XXX": "%z", "z": "%Z",
}  # fmt: skip
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)
_ISO_LIKE: Final = re.compile(r"%Y-%m-%d(?:[T ]|'T')%H:%M(?::%S(?:[.,]%f)?)?%?z?")
_USUAL: Final = ("%d/%b/%Y:%H:%M:%S %z", "%b %d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S.%f %Y",
                 "%a %b %d %H:%M:%S %Y", "%d-%b-%Y %H:%M:%S.%f", "%d %b %Y %H:%M:%S.%f", "%a, %d %b %Y %H:%M:%S %z")  # fmt: skip
_KNOWN_MAX: Final = 4096  # remembered times, by text: most logs repeat the second
_FUTURE_S: Final = 32 * 86400  # a time without a year that would lie further ahead is of the year before
EARLIEST: Final = dt.datetime(1, 1, 2, tzinfo=dt.UTC).timestamp()
LATEST: Final = dt.datetime(9999, 12, 31, tzinfo=dt.UTC).timestamp()
"""The last time that a document can hold in any zone; `EARLIEST` is the first."""

_Parse = Callable[[Any, float], float]
_Compiled = tuple[_Parse, bool]  # and whether the time depends on the text alone


class TimeError(KlammError):
    """An unknown format or time zone."""


class Times:
    """A parser of times, which tries formats in their order. `timezone` is for times without one: a name as Europe/Vienna, or `local`."""

    def __init__(self, formats: Sequence[str] = ("auto",), timezone: str = "local") -> None:
        try:
            self._zone = None if timezone == "local" else zoneinfo.ZoneInfo(timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise TimeError(
                f"{timezone!r}: no such time zone is known; local, UTC or a name as Europe/Vienna"
            ) from None
        self._parsers = [p for f in formats for p in self._compile(f)]
        self._known: dict[Any, float] = {}

    def parse(self, value: Any, reference: float) -> float | None:
        """Returns seconds since the epoch, None when no format fits. `reference` (same unit) decides the year of a time without one."""
        if isinstance(value, (dict, list, bool)) or value is None:
            return None
        known = self._known.get(value)
        if known is not None:
            return known
        for parser, lasting in self._parsers:
            try:
                found = parser(value, reference)
            except (ValueError, TypeError, OverflowError):
                continue
            if not EARLIEST <= found <= LATEST:
                continue
            if lasting:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[value] = found
            return found
        return None

    def _compile(self, form: str) -> list[_Compiled]:
        if form == "auto":
            return [(_number_by_size, True), (self._iso, True), *(self._strptime(f) for f in _USUAL)]
        if form.upper() == "ISO8601":
            return [(self._iso, True)]
        if divisor := _NUMBERS.get(form.upper()):
            return [(lambda value, _reference: float(value) / divisor, True)]
        directives = form if "%" in form else _directives(form)
        parser = self._strptime(directives)
        return [(self._iso, True), parser] if _ISO_LIKE.fullmatch(directives) else [parser]

    def _iso(self, value: Any, _reference: float) -> float:
        return self._seconds(dt.datetime.fromisoformat(value))

    def _strptime(self, directives: str) -> _Compiled:
        try:
            dt.datetime.strptime("", directives)  # noqa: DTZ007 - only whether the directives are known
        except ValueError as e:
            if "directive" in str(e) or "stray" in str(e):
                raise TimeError(f"{directives!r}: {e}") from None
        if re.search(r"%[YyGcxs]", directives):
            return lambda value, _reference: self._seconds(dt.datetime.strptime(value, directives)), True  # noqa: DTZ007

        def without_year(value: Any, reference: float) -> float:
            this = dt.datetime.fromtimestamp(reference, self._zone).year
            error: ValueError | None = None
            for year in (this + 1, this, this - 1, this - 2, this - 3, this - 4):  # the 29th of February
                try:
                    found = self._seconds(dt.datetime.strptime(f"{year} {value}", f"%Y {directives}"))  # noqa: DTZ007
                except ValueError as e:
                    error = e
                    continue
                if found <= reference + _FUTURE_S:
                    return found
            raise error or ValueError(value)

        return without_year, False

    def _seconds(self, time: dt.datetime) -> float:
        if time.tzinfo is None and self._zone is not None:
            time = time.replace(tzinfo=self._zone)
        return time.timestamp()  # a time without a zone is in the host's zone


def _number_by_size(value: Any, _reference: float) -> float:
    """Reads a number as seconds, milli-, micro- or nanoseconds, by its size: the numbers for 1973 to 5138 do not overlap."""
    number = float(value)
    for limit, divisor in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9)):
        if 1e8 <= number < limit:
            return number / divisor
    raise ValueError(value)


def _directives(form: str) -> str:
    """Translates Java's letters to strptime's."""
    found = []
    for match in _TOKEN.finditer(form):
        part = match[0]
        if part[0] == "'":
            found.append("'" if part == "''" else part[1:-1].replace("''", "'"))
        elif part[0] in "Sn":
            found.append("%f")
        elif part[0].isalpha():
            if part not in _LETTERS:
                raise TimeError(
                    f"{form!r}: {part!r} is not known; yyyy-MM-dd'T'HH:mm:ss.SSSXXX has all usual letters"
                )
            found.append(_LETTERS[part])
        else:
            found.append(part)
    return "".join(found)


def stamp(seconds: float) -> str:
    """Writes a time as documents have it: UTC with milliseconds, or microseconds where it has some. Times outside the calendar become
    its first or last.
    """
    second, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    if micros % 1000:
        return f"{_second(second)}.{micros:06d}Z"
    return f"{_second(second)}.{micros // 1000:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return dt.datetime.fromtimestamp(min(max(seconds, EARLIEST), LATEST), dt.UTC).isoformat()[:19]
