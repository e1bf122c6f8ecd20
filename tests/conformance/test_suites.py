"""The test suites of other clients against our broker: what their allow-lists name must pass.

The runners are <client>/run.py, what is known to fail is in <client>/FINDINGS.md, docs/conformance.md has the counts. The
first run of a suite gets and builds it, which takes minutes (librdkafka: five).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.suites import CANNOT_RUN, Outcome, judge, read_allowed

HERE = Path(__file__).parent
CLIENTS = ["franz-go", "java", "kafka-python", "librdkafka"]


@pytest.mark.usefixtures("client_suite")
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_finds_what_it_expects(client: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / client / "run.py"), "--broker", "klamm", "--logs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT_RUN:
        pytest.skip(done.stderr.strip()[-500:])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\nlogs: {tmp_path}"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_allow_list_can_be_read(client: str) -> None:
    allowed = read_allowed(HERE / client / "tests.allow")
    assert any(not slow for slow in allowed.values()), "a default run would run nothing"
    assert (HERE / client / "FINDINGS.md").stat().st_size


def test_a_listed_test_that_fails_or_is_missing_is_a_regression() -> None:
    outcomes = [
        Outcome(name="good", state="pass"),
        Outcome(name="bad", state="fail", note="expected 1, got 2"),
        Outcome(name="left", state="skip", note="no such version"),
        Outcome(name="unlisted", state="fail"),
    ]
    assert judge(outcomes, ["good", "bad", "left", "gone"]) == [
        "bad: fail expected 1, got 2",
        "left: skip no such version",
        "gone: did not run",
    ]


@pytest.mark.parametrize("line", ["name fast", "name slow twice", "name\nname"])
def test_a_bad_line_of_an_allow_list_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "tests.allow"
    path.write_text(f"# comment\n{line}\n")
    with pytest.raises(ValueError, match=r"tests\.allow:[23]: "):
        read_allowed(path)
