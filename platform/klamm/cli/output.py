"""Rows of the administrative commands as table, wide table, JSON, JSON lines, YAML or CSV.

Values keep their types where the format has types: a number is a number, an unknown value is null. Terminals get
plain text, too: it can be copied, and commands start fast. A table is fitted to the terminal, a wide table is not.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

Rows = Sequence[Mapping[str, Any]]
_LEAST_WIDTH = 12  # of a column whose texts are cut
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
# What JSON leaves as it is and YAML breaks a line at, drops or refuses: DEL, C1 controls, separators, surrogates, BOM.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")

# Names come from clients: a terminal must not obey them, and a row is one line.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"


FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="How to print: table, wide, json, jsonl, yaml or csv.")
]


def print_rows(rows: Rows, columns: Sequence[str], format_: Format, *, wide: Sequence[str] = ()) -> None:
    """Print rows. A table has `columns`, a wide one and CSV `wide` too; JSON and YAML have all that is in a row."""
    match format_:
        case Format.TABLE:
            sys.stdout.write(table(rows, columns, room=_terminal_width()))
        case Format.WIDE:
            sys.stdout.write(table(rows, [*columns, *wide]))
        case Format.JSON:
            sys.stdout.write(json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n")
        case Format.JSONL:
            sys.stdout.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        case Format.YAML:
            sys.stdout.write(yaml(list(rows)))
        case Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow([*columns, *wide])
            writer.writerows([_csv_cell(row.get(c)) for c in [*columns, *wide]] for row in rows)


def table(rows: Rows, columns: Sequence[str], *, room: int | None = None) -> str:
    """Return aligned text, numbers to the right; the heads alone when there are no rows.

    Where the lines are wider than `room` (None: no limit), the longest texts are cut and end with an ellipsis.
    """
    heads = [c.upper().replace("_", "-") for c in columns]
    cells = [[cell(row.get(c)) for c in columns] for row in rows]
    right = [_numbers([row.get(c) for row in rows]) for c in columns]
    widths = [max([len(head), *(len(line[i]) for line in cells)]) for i, head in enumerate(heads)]
    if room is not None:
        widths = _narrowed(
            widths, [0 if flush else len(h) for flush, h in zip(right, heads, strict=True)], room
        )
    lines = [
        "  ".join(
            text.rjust(width) if flush else _cut(text, width).ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [heads, *cells]
    ]
    return "\n".join(lines) + "\n"


def _terminal_width() -> int | None:
    """Return the terminal's columns, None where the output is no terminal: piped output is never cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _narrowed(widths: list[int], least: list[int], room: int) -> list[int]:
    """Return widths that fit into `room`, taken from the widest columns of text (those with a `least` width);
    unchanged widths where that is not enough.
    """
    result = list(widths)
    while sum(result) + 2 * (len(result) - 1) > room:
        can = [i for i, low in enumerate(least) if low and result[i] > max(low, _LEAST_WIDTH)]
        if not can:
            return widths  # a table that cannot fit is better whole
        result[max(can, key=lambda i: result[i])] -= 1
    return result


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _numbers(values: Sequence[Any]) -> bool:
    """Return whether all known values of a column are numbers, and there is one."""
    known = [v for v in values if v is not None]
    return bool(known) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)


def cell(value: Any) -> str:
    """Return a value as a table shows it: a hyphen for an unknown or empty value."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(map(cell, value)) or "-"
        case dict():
            return ",".join(f"{k}={cell(v)}" for k, v in value.items()) or "-"
        case str() if not value.isprintable():
            return _UNPRINTABLE.sub(lambda c: c[0].encode("unicode_escape").decode(), value)
        case _:
            return str(value)


def _csv_cell(value: Any) -> Any:
    return "" if value is None else cell(value) if isinstance(value, list | tuple | dict) else value


def yaml(value: Any, indent: int = 0) -> str:
    """Return a JSON value as YAML. Quotes and escapes text as JSON does, which YAML reads the same."""
    pad = "  " * indent
    if isinstance(value, Mapping) and value:
        return "".join(f"{pad}{_key(k)}:{_behind(v, indent)}" for k, v in value.items())
    if isinstance(value, list | tuple) and value:
        return "".join(f"{pad}- {yaml(v, indent + 1).lstrip()}" for v in value)
    return pad + _scalar(value) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and "." not in (text := json.dumps(value)) and "e" in text:
        return text.replace("e", ".0e")  # YAML 1.1 takes 1e-05 for text
    return _NOT_IN_YAML.sub(lambda c: f"\\u{ord(c[0]):04x}", json.dumps(value, ensure_ascii=False))


def _key(key: str) -> str:
    plain = key.replace("_", "").isalnum() and not key[0].isdigit() and key.lower() not in _YAML_WORDS
    return key if plain else _scalar(key)


def _behind(value: Any, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return "\n" + yaml(value, indent + 1)
    return " " + yaml(value)
