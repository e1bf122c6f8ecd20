"""A forked child that logs: what a handler does in it."""

from __future__ import annotations

import logging
import os
import signal

from support.broker import wait_until

from klamm.logging import KafkaHandler


def log_in_child(logger: logging.Logger, handler: KafkaHandler) -> int:
    """Fork; the child logs `child`, closes the handler and ends with the number of records dropped. Its exit code.

    A child that does not end within a minute is killed and fails the test.
    """
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            logger.info("child")
            handler.close()
            code = handler.dropped
        finally:
            os._exit(code)
    ended = False
    try:
        done = wait_until(lambda: (found := os.waitpid(pid, os.WNOHANG))[0] and found, "the child's end")
        ended = True
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(done[1])
