"""The process of an `EmbeddedWorker`. The first line of its standard input holds its properties as JSON.

It stops as on SIGTERM when its standard input ends, which happens when its owner ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from klamm.connect.config import WorkerConfig
from klamm.connect.worker import main
from klamm_base import logs
from klamm_base.errors import ConfigError


def run() -> int:
    """Runs the worker, and returns the exit code."""
    logs.configure()
    properties = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_stop_with_owner, name="owner", daemon=True).start()
    try:
        config = WorkerConfig.from_properties(properties)
    except ConfigError as e:
        sys.stderr.write(f"{e}\n")
        return 2
    return main(config)


def _stop_with_owner() -> None:
    """Waits until standard input ends, then sends this process SIGTERM."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run())
