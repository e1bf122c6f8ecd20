"""JSON events on standard output, as Kafka's verifiable clients print them."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def event(name: str, **fields: Any) -> None:
    """Print an event as one line."""
    row = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    sys.stdout.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
    sys.stdout.flush()
