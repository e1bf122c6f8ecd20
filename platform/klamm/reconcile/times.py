"""The time of a line, and a test that it lies between two moments. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from klamm.reconcile.files import RawLine
from klamm_base.errors import ConfigError

DEFAULT: Final = (
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})"
)
"""ISO 8601, or what web servers write."""
_EPOCH: Final = re.compile(r"\d{9,13}(\.\d+)?")
_MILLISECONDS: Final = 1e11  # epoch numbers above are milliseconds: as seconds they are in the year 5138


@dataclass(slots=True)
class Between:
    """A test that a line has to be in the target: from `since` (included) up to `until` (not included), seconds since
    the epoch.

    A line without a time has the time of the line before; before the first time, all lines count. Text that our own
    expression finds may be no time (2026-02-31 in some text); text that a user's expression finds has to be a time.
    """

    pattern: re.Pattern[bytes]
    since: float | None = None
    until: float | None = None
    strict: bool = True
    _file: str = ""
    _last: bool = True
    _seen: bytes = b""

    def __call__(self, line: RawLine) -> bool:
        found = self.pattern.search(line.data)
        if line.file != self._file:
            self._file, self._last, self._seen = line.file, True, b""
        if found is not None and found[1] != self._seen:
            self._seen = found[1]
            at = self._time(line, found[1].decode("utf-8", "replace"))
            if at is not None:
                self._last = (self.since is None or at >= self.since) and (
                    self.until is None or at < self.until
                )
        return self._last

    def _time(self, line: RawLine, text: str) -> float | None:
        try:
            return seconds(text)
        except ConfigError as e:
            if not self.strict:
                return None
            raise ConfigError(
                f"--time-regex, {line.file} at byte {line.offset}: {e}", key="time-regex"
            ) from None


def between(pattern: str | None, since: str | None, until: str | None) -> Callable[[RawLine], bool] | None:
    """Return the test that the options ask for; None where they ask for all lines. Raises ConfigError."""
    if since is None and until is None:
        return None
    try:
        compiled = re.compile((pattern or DEFAULT).encode())
    except re.error as e:
        raise ConfigError(f"{pattern!r} is not a regular expression: {e}", key="time-regex") from None
    if not compiled.groups:
        raise ConfigError(f"{pattern!r} has no group for the time: write (…) around it", key="time-regex")
    first, last = _moment("since", since), _moment("until", until)
    if first is not None and last is not None and first >= last:
        raise ConfigError(f"--since {since} is not before --until {until}: no line would count", key="since")
    return Between(compiled, first, last, strict=pattern is not None)


def _moment(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else seconds(text)
    except ConfigError as e:
        raise ConfigError(f"--{option}: {e}", key=option) from None


def seconds(text: str) -> float:
    """Return seconds since the epoch.

    Reads a time in ISO 8601 (UTC where it names no zone), as web servers write it, or as a number of seconds or
    milliseconds since the epoch. Raises ConfigError.
    """
    if _EPOCH.fullmatch(text):
        number = float(text)
        return number / 1000 if number > _MILLISECONDS else number
    try:
        if "/" in text:
            return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()
        at = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        raise ConfigError(
            f"{text!r} is no time: write 2026-01-31T23:59:00Z, 31/Jan/2026:23:59:00 +0000, or seconds since the epoch"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
