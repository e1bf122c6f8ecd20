"""A web server's access log that grows: numbered lines at a steady rate, written by a thread."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

TICK_S: Final = 0.05
_PATHS: Final = ("/", "/cart", "/checkout", "/search?q=gorge", "/static/app.js", "/api/v1/orders", "/straße")
_STATUS: Final = (200, 200, 200, 200, 200, 304, 404, 500)


class Feed:
    """Writes `rate` lines a second for `seconds`. `lines` is the number of lines in the file. Use it in a `with` block."""

    def __init__(self, path: Path, *, rate: int, seconds: float) -> None:
        self.path = path
        self.lines = 0
        self.total = max(1, int(rate * seconds))
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="feed")

    def __enter__(self) -> Feed:
        self.path.touch()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def done(self) -> bool:
        """True once all lines are written."""
        return not self._thread.is_alive()

    def _write(self) -> None:
        random_ = random.Random(1915)
        begin = time.monotonic()
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            while self.lines < self.total and not self._stop.is_set():
                due = min(self.total, int((time.monotonic() - begin + TICK_S) * self._rate))
                stamp = datetime.now(tz=UTC).strftime("%d/%b/%Y:%H:%M:%S %z")
                file.writelines(_line(number, stamp, random_) for number in range(self.lines, due))
                file.flush()
                self.lines = due
                self._stop.wait(TICK_S)


def _line(number: int, stamp: str, random_: random.Random) -> str:
    address = f"10.{random_.randrange(256)}.{random_.randrange(256)}.{random_.randrange(1, 255)}"
    path, status = random_.choice(_PATHS), random_.choice(_STATUS)
    return f'{address} - - [{stamp}] "GET {path} HTTP/1.1" {status} {random_.randrange(90, 90_000)} seq={number}\n'
