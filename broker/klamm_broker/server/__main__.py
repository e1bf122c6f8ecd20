"""`python -m klamm_broker.server [--stop-with-stdin] [key=value]…`: a broker without the command line around it.

`klamm.testing` starts this; people use `klamm broker start`. With `--stop-with-stdin` the broker stops when its
standard input ends. That happens when the process at the other end is gone, for whatever reason.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from klamm_base import logs
from klamm_base.errors import KlammError
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.main import run


def main(arguments: list[str]) -> int:
    """Runs a broker with these properties and returns the exit code."""
    logs.configure()
    if "--stop-with-stdin" in arguments:
        arguments.remove("--stop-with-stdin")
        threading.Thread(target=_stop_with_stdin, daemon=True).start()
    try:
        run(BrokerConfig.load(dict(argument.split("=", 1) for argument in arguments)))
    except KlammError as e:
        logging.getLogger(__name__).critical("%s", e)
        return 1
    return 0


def _stop_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
