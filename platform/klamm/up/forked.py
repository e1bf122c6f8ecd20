"""A child that was forked, with the part of `asyncio.subprocess.Process` that its keeper uses."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress

from klamm.up import child
from klamm_base.forking import Forked, fork


class ForkedChild:
    """See the module. Without `attach` it is only a process; `attach` binds it to the running loop."""

    def __init__(self, forked: Forked, output: int) -> None:
        self._forked = forked
        self._output = output
        self._ended = asyncio.Event()
        self.stdout: asyncio.StreamReader | None = None

    @property
    def returncode(self) -> int | None:
        """The exit code, once the process has ended."""
        return self._forked.returncode

    async def attach(self) -> None:
        """Reads its output and waits for its end, by this loop."""
        loop = asyncio.get_running_loop()
        reader = self.stdout = asyncio.StreamReader()
        pipe = os.fdopen(self._output, "rb", 0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)

        def reap() -> None:
            self._forked.wait()
            with suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(self._ended.set)

        threading.Thread(target=reap, daemon=True, name=f"wait for {self._forked.pid}").start()

    async def wait(self) -> int:
        """Waits for the end; returns the exit code."""
        await self._ended.wait()
        assert self.returncode is not None, "reaped"
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal if the process has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._forked.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


def forked(args: tuple[str, ...], pipe: int) -> ForkedChild:
    """Forks a child that runs a `klamm` command line, and ends when `pipe`, which its parent holds, ends. Raises OSError."""
    output, output_peer = os.pipe()
    try:
        process = fork(
            lambda: child.run(pipe, args), title=" ".join(["klamm", *args]), output=output_peer, keep=[pipe]
        )
    finally:
        os.close(output_peer)
    return ForkedChild(process, output)
