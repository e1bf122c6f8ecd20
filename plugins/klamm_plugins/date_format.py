"""Java's SimpleDateFormat in UTC and English: writes milliseconds since the epoch as text, and reads them from text.

Parsing is as lenient as Java's: fields may overflow (month 13 is January), text behind the pattern is ignored,
fields that the pattern lacks are those of the epoch. Weeks begin on Sunday, as in the United States. The
Gregorian calendar holds for all times. Not there: reading week fields (`w`, `W`, `F`), and names of time zones
beyond the common ones. Pure; `century_from` decides the century of two-digit years.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_TEXT: Final = frozenset("GEazZX")
_ONE_MS: Final = [3]  # the usual SSS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
# Standard time of the names that logs have; a D in the middle of a name means an hour more.
_ZONES: Final = {
    "UTC": 0, "GMT": 0, "UT": 0, "Z": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "MET": 60, "MEST": 120,
    "EET": 120, "EEST": 180, "MSK": 180, "IST": 330, "JST": 540, "KST": 540, "EST": -300, "EDT": -240, "CST": -360,
    "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
}  # fmt: skip
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d\d))?$")


class PatternError(ValueError):
    """An error for a pattern that SimpleDateFormat does not take."""


class Field(NamedTuple):
    """A run of one letter; a literal has the letter ""."""

    letter: str
    width: int
    text: str = ""

    @property
    def numeric(self) -> bool:
        return (
            bool(self.letter) and self.letter not in _TEXT and not (self.letter in "ML" and self.width >= 3)
        )


class DateFormat:
    """A pattern, ready to write and to read. Raises PatternError for a pattern that cannot be used."""

    def __init__(self, pattern: str, *, century_from: int | None = None) -> None:
        self.pattern = pattern
        self._fields = _fields(pattern)
        self._step_ms = _step_ms(self._fields)
        # Within a step the text stays the same but for milliseconds, which stand between its pieces.
        self._last: tuple[int | None, list[str]] = (None, [])
        self._writers = [_writer(f) for f in self._fields]
        self._widths = [f.width for f in self._fields if f.letter == "S"]
        self._century_from = time.gmtime().tm_year - 80 if century_from is None else century_from
        self._reader: re.Pattern[str] | None = None

    def format(self, ms: int) -> str:
        """Writes a moment as text. Raises OverflowError beyond year 9999 and before year 1."""
        step = ms // self._step_ms
        if step != self._last[0]:
            self._last = (step, self._pieces(_EPOCH + timedelta(milliseconds=ms)))
        if not self._widths:
            return self._last[1][0]
        if self._widths == _ONE_MS:
            before, after = self._last[1]
            return f"{before}{ms % 1000:03}{after}"
        text, *rest = self._last[1]
        for width, piece in zip(self._widths, rest, strict=True):
            text += str(ms % 1000).zfill(width) + piece
        return text

    def _pieces(self, moment: datetime) -> list[str]:
        pieces = [""]
        for field, write in zip(self._fields, self._writers, strict=True):
            if field.letter == "S":
                pieces.append("")
            else:
                pieces[-1] += write(moment)
        return pieces

    def parse(self, text: str) -> int:
        """Reads the moment of a text in milliseconds. Raises ValueError when the text is not in this format."""
        if self._reader is None:
            self._reader = _reader(self._fields)
        found = self._reader.match(text)
        if found is None:
            raise ValueError(text)
        values: dict[str, Any] = {}
        for i, field in enumerate(self._fields):
            if field.letter:
                values[field.letter] = _value(field, found[f"f{i}"], self._century_from)
        return _moment(values)


def _fields(pattern: str) -> list[Field]:
    fields: list[Field] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at + 1)
            fields.append(Field("", 0, text))
        elif char.isascii() and char.isalpha():
            if char not in _LETTERS:
                raise PatternError(f"Illegal pattern character '{char}'")
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            if char == "X" and end - at > 3:
                raise PatternError(f"invalid ISO 8601 format: length={end - at}")
            fields.append(Field(char, end - at))
            at = end
        else:
            fields.append(Field("", 0, char))
            at += 1
    return fields


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Returns the text after a quote, and the place where the pattern goes on; two quotes are one."""
    if pattern.startswith("'", at):
        return "'", at + 1
    text = ""
    while True:
        end = pattern.find("'", at)
        if end < 0:
            raise PatternError("Unterminated quote")
        text += pattern[at:end]
        if not pattern.startswith("'", end + 1):
            return text, end + 1
        text += "'"
        at = end + 2


def _step_ms(fields: list[Field]) -> int:
    """Returns the time within which the text stays the same, but for milliseconds: a day, for a pattern of years, months
    and days.
    """
    letters = {f.letter for f in fields}
    if letters & set("Ss"):
        return 1000
    if "m" in letters:
        return _MINUTE_MS
    return _HOUR_MS if letters & set("HkKha") else _DAY_MS


def _writer(field: Field) -> Callable[[datetime], str]:
    letter, count, text = field
    if not letter or letter == "S":
        return lambda _: text
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        if letter in "yY" and count == 2:
            return lambda moment: f"{number(moment) % 100:02}"
        if letter in "ML" and count >= 3:
            return lambda moment: _MONTHS[moment.month - 1][: None if count > 3 else 3]
        return lambda moment: str(number(moment)).zfill(count)
    match letter:
        case "E":
            return lambda moment: _DAYS[moment.weekday()][: None if count > 3 else 3]
        case "a":
            return lambda moment: "AM" if moment.hour < 12 else "PM"
        case "z":
            return lambda _: "Coordinated Universal Time" if count > 3 else "UTC"
        case "Z":
            return lambda _: "+0000"
        case "X":
            return lambda _: "Z"
        case _:
            return lambda _: "AD"


def _week_of_year(moment: datetime) -> int:
    """Returns the week of the year. The first week is the one with 1 January; days before it count to it, too."""
    if _week_year(moment) > moment.year:
        return 1
    first = date(moment.year, 1, 1).isoweekday() % 7
    return (moment.timetuple().tm_yday - 1 + first) // 7 + 1


def _week_year(moment: datetime) -> int:
    saturday = moment.toordinal() + 6 - moment.isoweekday() % 7
    return moment.year + (saturday > date(moment.year, 12, 31).toordinal())


def _week_of_month(moment: datetime) -> int:
    first = moment.replace(day=1).isoweekday() % 7
    return (moment.day - 1 + first) // 7 + 1


_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "y": lambda m: m.year,
    "Y": _week_year,
    "M": lambda m: m.month,
    "L": lambda m: m.month,
    "w": _week_of_year,
    "W": _week_of_month,
    "D": lambda m: m.timetuple().tm_yday,
    "d": lambda m: m.day,
    "F": lambda m: (m.day - 1) // 7 + 1,
    "u": lambda m: m.isoweekday(),
    "H": lambda m: m.hour,
    "k": lambda m: m.hour or 24,
    "K": lambda m: m.hour % 12,
    "h": lambda m: m.hour % 12 or 12,
    "m": lambda m: m.minute,
    "s": lambda m: m.second,
}


def _reader(fields: list[Field]) -> re.Pattern[str]:
    parts = []
    for i, field in enumerate(fields):
        if not field.letter:
            parts.append(re.escape(field.text))
            continue
        if field.letter in "wWFY":
            raise ValueError(f"pattern letter {field.letter} cannot be read, only written")
        before_number = i + 1 < len(fields) and fields[i + 1].numeric
        parts.append(f"[ \\t]*+(?P<f{i}>{_shape(field, exact=before_number)})")
    return re.compile("".join(parts), re.ASCII | re.IGNORECASE)


def _shape(field: Field, *, exact: bool) -> str:
    """Returns the regular expression of a field; a number before another number has as many digits as letters."""
    if field.numeric:
        return f"\\d{{{field.width}}}" if exact else "-?\\d++"
    match field.letter:
        case "M" | "L":
            return _either(_MONTHS)
        case "E":
            return _either(_DAYS)
        case "a":
            return "AM|PM"
        case "G":
            return "AD|BC"
        case "X":
            return ("Z|[+-]\\d\\d", "Z|[+-]\\d{4}", "Z|[+-]\\d\\d:\\d\\d")[field.width - 1]
        case _:
            named = "|".join(sorted(_ZONES, key=len, reverse=True))
            return f"(?:GMT|UTC)?[+-]\\d{{1,2}}:?\\d\\d|GMT[+-]\\d{{1,2}}|{named}|Coordinated Universal Time"


def _either(names: tuple[str, ...]) -> str:
    return "|".join((*names, *(n[:3] for n in names)))


def _value(field: Field, text: str, century_from: int) -> int:
    if field.numeric:
        number = int(text)
        if field.letter == "y" and field.width <= 2 and len(text) == 2 and text.isdigit():
            number += century_from - century_from % 100
            return number + 100 if number < century_from else number
        return number
    match field.letter:
        case "M" | "L":
            return [n[:3].lower() for n in _MONTHS].index(text[:3].lower()) + 1
        case "a":
            return int(text.upper() == "PM")
        case "G":
            return int(text.upper() == "BC")
        case "E":
            return 0
        case _:
            return _offset_ms(text)


def _offset_ms(text: str) -> int:
    signed = _OFFSET.match(text.upper())
    if signed is None:
        return _ZONES.get(text.upper(), 0) * _MINUTE_MS
    sign, hours, minutes = signed.groups()
    if int(minutes or 0) > 59 or int(hours) > 23:
        raise ValueError(text)
    offset = int(hours) * _HOUR_MS + int(minutes or 0) * _MINUTE_MS
    return -offset if sign == "-" else offset


def _moment(values: dict[str, Any]) -> int:
    year = values.get("y", 1970)
    year = 1 - year if values.get("G") else year
    month0 = values.get("M", values.get("L", 1)) - 1
    if "D" in values and "d" not in values:
        days = _days(year, 0) + values["D"] - 1
    else:
        days = _days(year + month0 // 12, month0 % 12) + values.get("d", 1) - 1
    ms = days * _DAY_MS + _hour(values) * _HOUR_MS
    ms += values.get("m", 0) * _MINUTE_MS + values.get("s", 0) * 1000 + values.get("S", 0)
    zone: int = values.get("X", values.get("Z", values.get("z", 0)))
    return int(ms - zone)


def _hour(values: dict[str, Any]) -> int:
    if "H" in values:
        return int(values["H"])
    if "k" in values:
        return int(values["k"]) % 24 if values["k"] == 24 else int(values["k"])
    half = values.get("K", values.get("h", 0))
    if "h" in values and "K" not in values and half == 12:
        half = 0
    return int(half) + 12 * int(values.get("a", 0))


def _days(year: int, month0: int) -> int:
    """Returns the days from the epoch to the first of a month, by the Gregorian rules for any year."""
    # Years that begin in March have their leap day last (Howard Hinnant's arithmetic).
    year -= month0 < 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month0 - 2) % 12) + 2) // 5
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
