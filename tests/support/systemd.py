"""A real systemd as process 1 of a process and mount namespace of its own: `with Systemd() as systemd`. Tests take the fixture `systemd_host`.

It sees this machine's files, but has no units except those that tests install: the folders of units are empty ones of its own,
and so is /run. It needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_START = """
set -e
for each in /run /etc/systemd /usr/lib/systemd/system /usr/lib/systemd/system-generators; do mount -t tmpfs tmpfs $each; done
mkdir -p /etc/systemd/system /run/lock
cd /usr/lib/systemd/system
for each in sysinit basic shutdown umount network-online time-sync sockets timers paths slices; do
  printf '[Unit]\\nDefaultDependencies=no\\n' > $each.target
done
printf '[Unit]\\nRequires=sysinit.target\\nAfter=sysinit.target\\nDefaultDependencies=no\\n' > basic.target
printf '[Unit]\\nRequires=basic.target\\nAfter=basic.target\\nDefaultDependencies=no\\nAllowIsolate=yes\\n' > multi-user.target
exec env container=klamm /lib/systemd/systemd --system --unit=multi-user.target --log-target=null --show-status=no
"""
WAIT_S = 30.0
KLAMM = Path(sys.executable).with_name("klamm")


def why_not() -> str | None:
    """Returns why there can be no such systemd here; None: it can be started."""
    if not Path("/lib/systemd/systemd").exists() or shutil.which("systemd-analyze") is None:
        return "needs systemd (Debian: apt-get install systemd)"
    if os.geteuid() != 0:
        return "needs root to start a systemd of its own: run the tests as root"
    probe = [
        "unshare",
        "-pfm",
        "--mount-proc",
        "--propagation",
        "private",
        "mount",
        "-t",
        "tmpfs",
        "tmpfs",
        "/run",
    ]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "this machine forbids namespaces, which a systemd of its own needs"
    return None


class Systemd:
    """Use in `with`: its end ends all that it started."""

    def __enter__(self) -> Systemd:
        words = [
            "unshare",
            "-pfm",
            "--mount-proc",
            "--propagation",
            "private",
            "--kill-child",
            "bash",
            "-c",
            _START,
        ]
        self._outer = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._pid = self._wait_for_child()
            self.wait(lambda: self.run("systemctl", "is-system-running").stdout.strip() == "running")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, and all in its namespace with it."""
        with contextlib.suppress(AttributeError, ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._outer.kill()
        self._outer.wait()
        for group in Path("/sys/fs/cgroup").glob("*/system.slice/klamm*"):  # as systemd would remove them
            with contextlib.suppress(OSError):
                group.rmdir()

    def run(self, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a command in its namespaces."""
        inside = ["nsenter", "-t", str(self._pid), "-m", "-p", *words]
        return subprocess.run(inside, capture_output=True, text=True, timeout=timeout_s, check=False)

    def klamm(self, *words: str) -> str:
        """Runs `klamm` there; returns its output. Raises AssertionError with what it said."""
        done = self.run(str(KLAMM), *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def show(self, unit: str, key: str) -> str:
        """Returns a property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={key}", "--value").stdout.strip()

    def signal(self, unit: str, number: str) -> None:
        """Sends a signal to a service's main process."""
        assert self.run("systemctl", "kill", "--kill-who=main", f"--signal={number}", unit).returncode == 0

    def wait(self, condition: object) -> None:
        """Waits until a condition holds. Raises AssertionError after WAIT_S."""
        assert callable(condition)
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.1)

    def _wait_for_child(self) -> int:
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        self.wait(lambda: children.read_text().strip())
        return int(children.read_text().split()[0])


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Gives a folder outside of /tmp, which services do not see."""
    folder = Path("/srv") / f"klamm-test-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
