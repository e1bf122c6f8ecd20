"""Figures as people read them: amounts, sizes, durations, bars."""

from __future__ import annotations

from typing import Final

_STEPS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_LARGE: Final = ("", "k", "M", "G", "T", "P")


def duration(seconds: float | None) -> str:
    """Returns `0.4 s`, `34 s`, `5 m 12 s`, `3 h 4 m`, `2 d 3 h`; a question mark for None."""
    if seconds is None:
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds else "0 s"
    rest, found = round(seconds), list[str]()
    for unit, length in _STEPS:
        count, rest = divmod(rest, length)
        if found or count:
            found.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in found[:2] if part)


def ago(seconds: float) -> str:
    """Returns `12 s ago`, `now` for less than a second."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def amount(number: float) -> str:
    """Returns `0`, `7.5`, `1,204`, `52.1k`, `1.2M`."""
    if number < 10 and number % 1:
        return f"{number:.1f}"
    return f"{number:,.0f}" if number < 9_999.5 else _large(number, "")


def size(number: float) -> str:
    """Returns `12 B`, `1.5 kB`, `48.2 MB`."""
    return f"{number:.0f} B" if number < 999.5 else _large(number, " ") + "B"


def _large(number: float, gap: str) -> str:
    step = 0
    while number >= 999.95 and step < len(_LARGE) - 1:
        number, step = number / 1000, step + 1
    return f"{number:.1f}{gap}{_LARGE[step]}"


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """Returns a bar of `width` characters that is full at a share of 1."""
    full, empty = "\N{FULL BLOCK}\N{LIGHT SHADE}" if unicode else "#-"
    filled = int(max(0.0, min(1.0, share)) * width)
    return full * filled + empty * (width - filled)
