"""Some tests of all outcomes, run as `./dev test` runs tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    report.kind = "pure" if "pure" in item.name else "process"
    report.essential, report.starts = False, 0
    return report
"""
TESTS = """
from pathlib import Path

import pytest

def first_time(name):
    path = Path(__file__).with_name(name)
    there = path.exists()
    path.touch()
    return not there

def test_good(): pass
def test_flaky():
    assert not first_time("flaky"), "lost a race"
def test_flaky_pure():
    assert not first_time("flaky_pure")
def test_bad():
    assert False, "always"
def test_skips_then():
    assert not first_time("skips_then")
    pytest.skip("its peer is gone")
def test_hangs_then():
    assert not first_time("hangs_then")
    import time
    time.sleep(60)

def test_stands_still_then_pure():
    if first_time("stands_still_then"):
        import os, signal
        os.kill(os.getpid(), signal.SIGSTOP)
def test_waits_in_c_then_pure():
    if first_time("waits_in_c_then"):
        import signal, time
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(90)

def test_ctrl_c():
    import signal
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN

@pytest.fixture(scope="session")
def server():
    assert not first_time("server"), "it did not start"
@pytest.mark.parametrize("number", range(12))
def test_served(server, number): pass
"""


@pytest.fixture
def run(tmp_path, processes):
    """Run some of the tests above as `./dev test` does: exit code, output and the file of the flaky ones."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def call(*names, workers="0", before=None, **environment):
        command = [sys.executable, "-m", "support.running.session", "-n", workers, "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--color=no", *(f"test_them.py::test_{name}" for name in names)],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
            preexec_fn=before, env={
                "PATH": "", "PYTHONPATH": str(ROOT / "tests"), "KLAMM_TEST_FLAKY": str(tmp_path / "flaky.jsonl"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin",
            }
            | environment,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return call
