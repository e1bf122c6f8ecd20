"""Forked processes: they have what they were given, and nothing else of the process that forked them."""

import subprocess
import sys

import pytest

PARENT = """
import os, signal, sys
from pathlib import Path
from klamm_base.forking import fork

def body():
    fds = sorted(int(fd.name) for fd in Path("/dev/fd").iterdir())
    there = [fd for fd in fds if fd > 2 and os.path.exists(f"/dev/fd/{fd}")]
    print(there == [kept], sys.stdin.read() == "", os.getsid(0) == os.getpid(), flush=True)
    END

_ = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
kept, lost = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
out, out_peer = os.pipe()
print("not twice")
forked = fork(body, title="fork", output=out_peer, keep=[kept])
os.close(out_peer)
print(os.fdopen(out).read().strip())
print(forked.wait())
"""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('said')", 1),
        ("raise RuntimeError('said')", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_a_fork_has_what_it_was_given_and_says_how_it_ended(end, code):
    done = subprocess.run(
        [sys.executable, "-c", PARENT.replace("END", end)],
        stdin=subprocess.PIPE, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["not twice", "True True True", str(code)]
    assert ("said" in done.stderr) == ("said" in end)
