"""What the embedded broker and worker share: the first line that a process prints."""

from __future__ import annotations

import os
import selectors
import subprocess
import time


def first_line(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    """The first line of standard output; what there is when the process ends or the time is over."""
    assert process.stdout is not None
    fd, data = process.stdout.fileno(), b""
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:  # select() fails where many files are open
        selector.register(fd, selectors.EVENT_READ)
        while b"\n" not in data and (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            part = os.read(fd, 4096)
            if not part:
                break
            data += part
    return data.partition(b"\n")[0].decode()
