"""The broker's end of the cleaner process: starts it when there is work, and ends it after some time without work.

The process does one job at a time. This module knows nothing of logs: jobs go in, reports come out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, Iterable

from klamm_broker.log.cleaner.job import Cleaned, Job, Report, job_line, line, pieces, read_report
from klamm_broker.log.txn_index import AbortedTxn

log = logging.getLogger(__name__)


class ProcessEnded(Exception):
    """The cleaner process ended in the middle of a job. Carries its exit code: negative for a signal."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the cleaner process ended with exit code {code}")
        self.code = code


class CleanerProcess:
    """At most one child process; `work` starts it if it does not run."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def work(
        self, job: Job, producers: Iterable[tuple[int, int | None, int]], aborted: Iterable[AbortedTxn]
    ) -> AsyncGenerator[Report]:
        """Yields the reports of a job. After a `Cleaned` the process waits until the caller asks for the next report.

        Raises ProcessEnded, OSError when the process cannot be started, ValueError when it sends something unexpected.
        """
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for kind, rows in (("producers", producers), ("aborted", aborted)):
                for piece in pieces(kind, rows):
                    process.stdin.write(piece)
                    await process.stdin.drain()
                    await asyncio.sleep(0)  # others of the loop first
            process.stdin.write(job_line(job))
            while True:
                await process.stdin.drain()
                text = await process.stdout.readline()
                if not text:
                    raise ConnectionResetError
                report = read_report(text)
                yield report
                if not isinstance(report, Cleaned):
                    return
                process.stdin.write(line("next"))
        except ConnectionError:
            self._process = None
            raise ProcessEnded(await process.wait()) from None

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "klamm_broker.log.cleaner",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        log.debug("cleaner process %d started", self._process.pid)
        return self._process

    async def rest(self) -> None:
        """Let the idle process exit, so that it takes no memory."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self) -> None:
        """Kill the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
