"""Test processes in which nothing happens: CI ends them. The waits are too long for every `./dev test`."""

import re
import time


def test_a_test_process_that_stands_still_is_ended_in_ci_and_its_test_run_again(run):
    ci = {"KLAMM_CI_STARTED": str(time.time()), "KLAMM_TEST_QUIET_S": "8"}
    code, said = run("good", "stands_still_then_pure", "waits_in_c_then_pure", workers="1", **ci)
    assert code == 0, said
    for name in ("stands_still_then_pure", "waits_in_c_then_pure"):
        assert re.search(
            rf"nothing happened for 8 s, .* began and did not end: test_them.py::test_{name}\n", said
        )
        assert f"FLAKY test_them.py::test_{name}: worker" in said, said
    assert re.search(r'File ".*test_them.py", line \d+ in test_waits_in_c_then_pure', said), "where it stood"
