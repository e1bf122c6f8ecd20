import ctypes
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm_base import freed_memory
from klamm_mirror.source import task

BUFFERS, ROUNDS = 3, 200
PAGES = BUFFERS * (1 << 20) // 4096

WORK = f"""
import resource, threading
def work():
    for _ in range({ROUNDS}):
        batches = [bytearray(1 << 20) for _ in range({BUFFERS})]
        del batches
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
before = faults()
work()
print(faults() - before)
"""
THREADS = """
together = threading.Barrier(8)
def hold():
    buffers = [bytearray(1 << 20) for _ in range(14)]
    together.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""
KEEP = "from klamm_base.freed_memory import keep_freed\nkeep_freed(16 << 20)\n"

has_glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
pytestmark = pytest.mark.skipif(not has_glibc, reason="only glibc gives back what a process needs again")


def run(program: str) -> list[int]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=plain)
    return [int(word) for word in done.stdout.split()]


def test_a_process_that_keeps_what_it_frees_does_not_fault_it_in_again(processes):
    (kept,), (given_back,) = run(KEEP + WORK), run(WORK)
    assert kept < PAGES  # less than one round's
    assert given_back > ROUNDS // 2 * PAGES  # which this test is about


def test_threads_do_not_keep_it_each(processes):
    megabytes = run(KEEP + WORK + THREADS)[-1]
    assert megabytes < 60  # eight heaps would keep 112


def test_agent_and_mirror_keep_it(monkeypatch, tmp_path):
    class Kept(Exception):
        pass

    def keep_freed(most):
        raise Kept(most)

    monkeypatch.setattr(freed_memory, "keep_freed", keep_freed)
    monkeypatch.setattr(task, "keep_freed", keep_freed)
    monkeypatch.setattr(task, "parse", lambda props: None)
    done = CliRunner().invoke(app, ["agent", "start", str(tmp_path / "agent.toml")])
    assert str(done.exception) == str(16 << 20)
    with pytest.raises(Kept, match=str(task.KEPT_BYTES)):
        task.MirrorSourceTask().start({})
