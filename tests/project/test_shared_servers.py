"""A server that several test processes share: started once, and ended with the last of its users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support import shared
from support.broker import wait_until

pytestmark = pytest.mark.usefixtures("processes")
USER = """
import sys, time
from pathlib import Path
from support import shared
with shared.use(Path(sys.argv[1]), "support.shared_pid") as said:
    print(said["pid"], flush=True)
    time.sleep(600)
"""


class User:
    """A process that uses the server; `pid` is that of the server."""

    def __init__(self, place: Path) -> None:
        words = [sys.executable, "-c", USER, str(place)]
        self._process = subprocess.Popen(words, cwd=shared.TESTS, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self.pid = int(said.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def test_it_is_started_once_and_ends_with_its_last_user_even_when_all_are_killed(tmp_path: Path) -> None:
    users = []
    try:
        users.append(User(tmp_path))
        with shared.use(tmp_path, "support.shared_pid") as said:
            users.append(User(tmp_path))
            users[0].kill()
        users.append(User(tmp_path))
        assert {user.pid for user in users} == {said["pid"]}
        users[1].kill()
        users.append(User(tmp_path))
        assert users[-1].pid == said["pid"], "one uses it still"
        for user in users:
            assert running(said["pid"])
            user.kill()
        wait_until(lambda: not running(said["pid"]), "the server to end")
        with shared.use(tmp_path, "support.shared_pid") as again:
            assert again["pid"] != said["pid"]
        wait_until(lambda: not running(again["pid"]), "the next server to end")
    finally:
        for user in users:
            user.kill()


def running(pid: int) -> bool:
    """False for a zombie, too, whose owner was killed or has not asked for it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_that_does_not_start_is_said_and_the_next_user_tries_again(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            pytest.raises(RuntimeError, match="No module named"),
            shared.use(tmp_path, "support.nothing"),
        ):
            pass
