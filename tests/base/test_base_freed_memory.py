import subprocess
import sys

import pytest

BUFFERS, ROUNDS = 3, 200
PAGES = BUFFERS * (1 << 20) // 4096

WORK = f"""
import resource
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
KEEP = "from klamm_base.freed_memory import keep_freed\nkeep_freed()\n"


def faults(program: str) -> int:
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives back what a process needs again")
def test_a_process_that_keeps_what_it_frees_does_not_fault_it_in_again(processes):
    assert faults(KEEP + WORK) < PAGES  # less than one round's
    assert faults(WORK) > ROUNDS // 2 * PAGES  # which this test is about
