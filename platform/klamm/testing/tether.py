"""Runs a command that must not outlive its owner: `python -m klamm.testing.tether [--user UID] COMMAND...`.

The command gets SIGTERM when our standard input ends, because its owner has ended, or when we get SIGTERM. SIGKILL follows after
ten seconds. Our exit code is the command's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Final

PATIENCE_S: Final = 10.0


def run(command: list[str], user: int | None = None) -> int:
    """Runs the command, as this user id if one is given (which takes root). Returns its exit code, negative for a signal."""
    groups: list[int] | None = None if user is None else []
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, user=user, group=user, extra_groups=groups)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def wait_for_owner() -> None:
        # Not sys.stdin: the interpreter aborts at its end while a thread holds that lock.
        while os.read(0, 4096):
            pass
        end()

    def on_signal(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=end, daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the owner, too, who then lets go of us
    threading.Thread(target=wait_for_owner, daemon=True).start()
    return process.wait()


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--user"]:
        return run(arguments[2:], int(arguments[1]))
    return run(arguments)


if __name__ == "__main__":
    code = main()
    sys.exit(code if code >= 0 else 128 - code)
