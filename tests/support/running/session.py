"""One run of pytest with the plugins of this package: `python -m support.running.session ARGUMENTS`, with PYTHONPATH=tests."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from support.running.again import Again
from support.running.slowest import Slowest
from support.running.stuck import Stuck


def run(arguments: list[str]) -> int:
    """Runs pytest in this process and returns its exit code."""
    # Without bytecode each of the processes compiles all tests again, which takes half a minute.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell lets its jobs in the background ignore Ctrl-C, and all their children with them; tests send it to some.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Our own way here is none for the processes that tests start.
    os.environ.pop("PYTHONPATH", None)
    # These two are not pytest's: the processes of xdist would not know them.
    show, write = (option in arguments for option in ("--slowest", "--write-durations"))
    arguments = [word for word in arguments if word not in {"--slowest", "--write-durations"}]
    # The order of tests/support/kinds.py, and not that of xdist, which puts the files with the fewest tests last.
    arguments = ["--no-loadscope-reorder", *arguments]
    return int(pytest.main(arguments, plugins=[Again(), Slowest(show=show, write=write), Stuck()]))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
