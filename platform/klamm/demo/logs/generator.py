"""The services that log, as a process of its own.

    python -m klamm.demo.logs.generator DIRECTORY SEED START_MS RATE TOTAL ROTATIONS

Writes each line of that plan when it is due, and rotates each file ROTATIONS times, spread over the run. Reports on standard
output, as JSON lines, how many lines it has written. Ends early when its standard input ends, because then the process that
started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm.demo.logs.lines import SERVICES, Line, Lines, Plan
from klamm.demo.logs.rotation import LogFile

TICK_S: Final = 0.05
SAY_S: Final = 0.2


class Generator:
    """Writes a plan's lines into the files of their services."""

    def __init__(self, directory: Path, plan: Plan, rotations: int) -> None:
        self._plan = plan
        self._lines = iter(Lines(plan))
        self._files = {s.name: LogFile(directory / s.file, s.rotation) for s in SERVICES}
        self._rotate_at = [plan.total * (n + 1) // (rotations + 1) for n in range(rotations)]
        self.written = 0

    @property
    def done(self) -> bool:
        return self.written >= self._plan.total

    @property
    def rotations(self) -> int:
        """The number of rotations so far, over all files."""
        return sum(f.rotations for f in self._files.values())

    def write_due(self, now_ms: int) -> None:
        """Writes the lines that are due, and rotates where the plan says so."""
        while not self.done:
            # Writes a tick's lines, but never past a rotation
            until = min([self._plan.total, *self._rotate_at[:1]])
            due = min(until, (now_ms - self._plan.start_ms) * self._plan.rate // 1000)
            if due > self.written:
                self._write(due - self.written)
            if self.written < until:
                return
            if self._rotate_at[:1] == [self.written]:
                self._rotate_at.pop(0)
                for file in self._files.values():
                    file.rotate()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _write(self, number: int) -> None:
        batches: dict[str, list[bytes]] = {}
        for line in _take(self._lines, number):
            batches.setdefault(line.service.name, []).append(line.data)
        for name, lines in batches.items():
            self._files[name].write(lines)
        self.written += number


def _take(lines: Iterator[Line], number: int) -> Iterator[Line]:
    for _ in range(number):
        yield next(lines)


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _say(generator: Generator) -> None:
    event = {"lines": generator.written, "rotations": generator.rotations, "done": generator.done}
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Runs the plan of the command line."""
    directory, *numbers = sys.argv[1:]
    seed, start_ms, rate, total, rotations = map(int, numbers)
    threading.Thread(target=_leave_with_parent, daemon=True, name="parent-watch").start()
    plan = Plan(seed=seed, start_ms=start_ms, rate=rate, total=total)
    generator, said = Generator(Path(directory), plan, rotations), 0.0
    while not generator.done:
        generator.write_due(int(time.time() * 1000))
        if time.monotonic() - said > SAY_S:
            said = time.monotonic()
            _say(generator)
        time.sleep(TICK_S)
    generator.close()
    _say(generator)


if __name__ == "__main__":
    main()
