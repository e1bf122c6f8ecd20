"""Line numbers of the keys in a TOML file, since tomllib tells none, and suggestions for misspelt names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_TABLE: Final = re.compile(r"\s*\[(\[?)\s*([\w.\"-]+)\s*\]")
_KEY: Final = re.compile(r"\s*\"?([\w.-]+)\"?\s*=")
_LONG: Final = re.compile(r'"""|' + r"'''")


class TomlLines:
    """Line numbers by table and key. Tables are written as in `inputs[0].parse`; "" is the top of the file."""

    def __init__(self, text: str) -> None:
        self._lines = key_lines(text)

    def line(self, at: str, key: str) -> int | None:
        """Returns the line of a key, or else of the innermost table around it that has a line of its own."""
        found = self._lines.get((at, key)) or self._lines.get((at, ""))
        while found is None and at:
            at, _, name = at.rpartition(".")
            name = name.partition("[")[0]
            found = self._lines.get((at, name)) or (self._lines.get((at, "")) if at else None)
        return found

    def find(self, place: str) -> int | None:
        """Returns the line of a place such as `outputs[0].options.batch.size`, however the file writes it; else of the table
        around it.
        """
        parts = place.split(".")
        for end in range(len(parts), 0, -1):
            for cut in range(end, -1, -1):
                at, key = ".".join(parts[:cut]), ".".join(parts[cut:end])
                if (found := self._lines.get((at, key))) is not None:
                    return found
        return None


def key_lines(text: str) -> dict[tuple[str, str], int]:
    """Returns line numbers by (table, key); the key of a table's own line is empty. Lines inside a multi-line text have
    none.
    """
    lines: dict[tuple[str, str], int] = {}
    count: dict[str, int] = {}
    table, open_text = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        inside = bool(open_text)
        open_text = _still_open(line, open_text)
        if inside:
            continue
        if match := _TABLE.match(line):
            table = _place(match[2], count)
            if match[1]:
                count[table] = count.get(table, -1) + 1
                table = f"{table}[{count[table]}]"
            lines.setdefault((table, ""), number)
        elif match := _KEY.match(line):
            lines.setdefault((table, match[1]), number)
    return lines


def _place(name: str, count: dict[str, int]) -> str:
    """Returns the place of a table's name: `[inputs.multiline]` belongs to the last input before it."""
    *above, last = name.split(".")
    table = ""
    for part in above:
        table = f"{table}.{part}" if table else part
        if table in count:
            table = f"{table}[{count[table]}]"
    return f"{table}.{last}" if table else last


def _still_open(line: str, mark: str) -> str:
    """Returns the quotes of a text that goes on in the next line; "" for none."""
    if not mark and line.lstrip().startswith("#"):
        return ""
    for found in _LONG.findall(line):
        if not mark:
            mark = found
        elif found == mark:
            mark = ""
    return mark


def meant(name: str, known: Iterable[str]) -> str:
    """Returns `did you mean hosts?`, or the names to choose from."""
    names = list(known)
    by_lower = {n.lower(): n for n in names}
    import difflib  # takes milliseconds, and is for errors only

    near = difflib.get_close_matches(name.lower(), list(by_lower), 1)
    return f"did you mean {by_lower[near[0]]}?" if near else f"known are {', '.join(names)}"
