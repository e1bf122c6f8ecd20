"""JSON events on standard output, as Kafka's verifiable clients print them."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any


def event(name: str, **fields: Any) -> None:
    """Print an event as one line."""
    row = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    sys.stdout.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Stop:
    """Set by SIGTERM and SIGINT, while it is used as a context."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __enter__(self) -> Stop:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
