"""Reads figures back from the tables of docs/performance.md, so that a summary can say nothing else than its sections."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACKETS = re.compile(r"\([^)]*\)")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a section: what stands above it, and its cells by row (the first cell) and column (the header)."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]

    def cell(self, row: str, column: str) -> str:
        """Returns a cell. `row` and `column` may be beginnings of names. Raises KeyError when there is none."""
        cells = next((cells for name, cells in self.rows.items() if name.startswith(row)), None)
        place = next((n for n, name in enumerate(self.columns) if name.startswith(column)), None)
        if cells is None or place is None:
            raise KeyError(f"{row} / {column}")
        return cells[place]


def section(page: str, name: str) -> str:
    """Returns the text between the marks of a section. Raises KeyError when the page has none."""
    head, mark = f"<!-- {name} -->", f"<!-- end {name} -->"
    if head not in page:
        raise KeyError(name)
    return page.split(head, 1)[1].split(mark, 1)[0]


def tables(text: str) -> list[Table]:
    """Returns the tables of a section in their order. A table's title is the last line with text above it."""
    found: list[Table] = []
    title = ""
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if len(block) > 2:
            rows = {cells[0]: tuple(cells) for cells in block[2:]}
            found.append(Table(title, tuple(block[0]), rows))
        block = []
        title = line.strip() or title
    return found


def numbers(cell: str) -> list[float]:
    """Returns the figures of a cell: `547 (536-559), 170 (147-193)` has 547 and 170."""
    return [float(number.replace(",", "")) for number in _NUMBER.findall(_BRACKETS.sub("", cell))]
