"""`python -m support.mixed.soak --minutes 60`: all parts under mixed load; memory and descriptors at the end as at first.

`klamm up`, a second broker, a mirror between both and an agent run under lines of a log that rotates, records,
transactions, compaction, members that join and leave, topics that come and go, connectors that are changed and
restarted, REST and silent clients. The exit code is 1 when a part holds more memory, descriptors or threads at the end
than after its first minutes. With `--write` the table goes into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.mixed.growth import Course, grew, look
from support.mixed.load import Load
from support.mixed.parts import Parts

PAGE: Final = Path(__file__).parents[3] / "docs/reliability.md"
BEGIN, END = "<!-- soak/mixed -->", "<!-- end soak/mixed -->"  # bench/bars.py looks there
EVERY_S: Final = 5.0
WINDOW_S: Final = 300.0
"""The span whose median counts: the time from one look of the broker for old segments to the next."""


@dataclass(slots=True)
class Soak:
    """The courses of all parts and what the load did."""

    settled_s: float
    minutes: float
    courses: dict[str, Course] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    warned: dict[str, Counter[str]] = field(default_factory=dict)

    def run(self) -> None:
        """Runs the load and looks at the parts until the time is over. Raises AssertionError when something ended."""
        with tempfile.TemporaryDirectory(prefix="klamm-mixed-") as work, Parts(Path(work)) as parts:
            with Load(parts, Path(work)) as load:
                began = time.monotonic()
                while (at_s := time.monotonic() - began) < self.minutes * 60:
                    load.check()
                    for name, family in parts.families().items():
                        self.courses.setdefault(name, Course()).looks.append(look(family, at_s))
                    if int(at_s / 60) != int((at_s - EVERY_S) / 60):
                        self._say(at_s)
                    time.sleep(EVERY_S)
                self.done = {kind.name: kind.done for kind in load.kinds}
            self.warned = parts.said()

    def _say(self, at_s: float) -> None:
        now = [
            f"{name} {c.looks[-1].mb:.0f} MB {c.looks[-1].descriptors}" for name, c in self.courses.items()
        ]
        print(
            f"{time.strftime('%H:%M:%S', time.gmtime())} {at_s / 60:3.0f} min: {', '.join(now)}", flush=True
        )

    def rows(self) -> list[tuple[str, list[str], str]]:
        """Returns for each part its name, what grew, and its row of the table."""
        rows = []
        for name, course in self.courses.items():
            early = course.between(self.settled_s, self.settled_s + WINDOW_S)
            late = course.between(self.minutes * 60 - WINDOW_S, self.minutes * 60)
            pairs = (f"{early.mb:,.0f} → {late.mb:,.0f}", f"{early.descriptors:,} → {late.descriptors:,}", f"{early.threads} → {late.threads}")  # fmt: skip
            rows.append((name, grew(early, late), f"| {name} | {' | '.join(pairs)} |"))
        return rows

    def table(self) -> str:
        """Returns the figures after the first minutes and at the end, and the load, as Markdown."""
        lines = ["| part | memory, MB | descriptors | threads |", "|---|---|---|---|"]
        lines += [row for _, _, row in self.rows()]
        lines += [
            "",
            "| load | times |",
            "|---|---|",
            *(f"| {what} | {n:,} |" for what, n in self.done.items()),
            "",
            "| minutes | parts that have grown |",
            "|---|---|",
            f"| {self.minutes:.0f} | {sum(bool(said) for _, said, _ in self.rows())} |",
        ]
        lines.append(
            f"\n{self.minutes:.0f} minutes; medians of {WINDOW_S:.0f} s after the first {self.settled_s / 60:.0f} minutes, and at the "
            "end. Memory is the sum of the proportional set sizes of a part's processes."
        )
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak mixed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--settled", type=float, default=5, help="minutes after which memory counts (default 5)"
    )
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    soak = Soak(settled_s=asked.settled * 60, minutes=asked.minutes)
    if asked.minutes < asked.settled + 2 * WINDOW_S / 60:
        parser.error(
            f"--minutes {asked.minutes:g}: at least {2 * WINDOW_S / 60:g} more than --settled {asked.settled:g}"
        )
    soak.run()
    print(soak.table())
    for name, complaints in soak.warned.items():
        for text, n in complaints.most_common(10):
            print(f"{name} logged {n} times: {text}")
    found = {name: said for name, said, _ in soak.rows() if said}
    for name, said in found.items():
        print(f"{name} grew: {'; '.join(said)}")
    if asked.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n{soak.table()}\n{END}{tail}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
