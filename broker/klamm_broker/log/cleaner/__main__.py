"""The cleaner process: `python -m klamm_broker.log.cleaner`. The broker starts it and sends jobs to its standard input.

It exits at the end of its input, and also in the middle of a job when its parent is gone: a broker that starts after a
crash must find nobody at work in its directories.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, BinaryIO

from klamm_broker.log.cleaner.filter import LastRecord
from klamm_broker.log.cleaner.job import Cleaned, Failed, Job, read_job, read_line, report_line
from klamm_broker.log.cleaner.work import Round
from klamm_broker.log.errors import CorruptFile, StorageError
from klamm_broker.log.txn_index import AbortedTxn
from klamm_kafka.wire.errors import ProtocolError


class _Gone(Exception):
    """The broker is gone."""


class Process:
    """Reads jobs and answers with reports. `parent` is the broker's process id."""

    def __init__(self, inputs: BinaryIO, outputs: BinaryIO, parent: int) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._parent = parent
        self._producers: dict[int, LastRecord] = {}
        self._aborted: list[AbortedTxn] = []

    def serve(self) -> None:
        """Work until the input ends. Raises _Gone or OSError when the broker goes in the middle of a job."""
        while text := self._inputs.readline():
            kind, content = read_line(text)
            if kind == "job":
                self._work(read_job(content))
                self._producers, self._aborted = {}, []
            else:
                self._take(kind, content)

    def _take(self, kind: str, rows: list[Any]) -> None:
        if kind == "producers":
            self._producers.update((producer, LastRecord(offset, epoch)) for producer, offset, epoch in rows)
        elif kind == "aborted":
            self._aborted += (AbortedTxn(*row) for row in rows)
        else:
            raise ValueError(f"a line of unknown kind {kind!r}")

    def _work(self, job: Job) -> None:
        try:
            self._send(report_line(self._round(job).run()))
        except (ProtocolError, CorruptFile) as e:
            self._send(report_line(Failed(kind="data", reason=str(e))))
        except (BrokenPipeError, _Gone):
            raise _Gone from None
        except (OSError, StorageError) as e:
            self._send(report_line(Failed(kind="io", reason=str(e))))

    def _round(self, job: Job) -> Round:
        return Round(
            job, self._producers, self._aborted, in_place=self._hand_over, still_wanted=self._check_parent
        )

    def _hand_over(self, cleaned: Cleaned) -> None:
        self._send(report_line(cleaned))
        if not self._inputs.readline():
            raise _Gone

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            raise _Gone

    def _send(self, text: bytes) -> None:
        self._outputs.write(text)
        self._outputs.flush()


def main() -> int:
    """Returns 0 at the end of the input; 1 when the broker has gone or this program has a defect."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which stops us
    os.nice(5)  # work that clients wait for goes first
    try:
        Process(sys.stdin.buffer, sys.stdout.buffer, os.getppid()).serve()
    except (_Gone, BrokenPipeError):
        return 1
    except BaseException:
        sys.stderr.write(f"log cleaner: {traceback.format_exc()}")
        return 1
    return 0


if __name__ == "__main__":
    os._exit(main())  # flush nothing at exit to a broker that may be gone
