"""How the tests are chosen and run: kinds, the essential ones, changes, slices, and what happens to one that lost a race."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import essential, kinds, starts
from support.running import changed, slices
from support.running.__main__ import parts, pytest_arguments

ROOT = Path(__file__).parents[2]
PARTS = {"broker": ("tests/broker",), "spark": ("tests/spark", "tests/connectors/spark")}

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
"""


@pytest.fixture
def run(tmp_path, processes):
    """Run some of the tests above as `./dev test` does: exit code, output and the file of the flaky ones."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def call(*names, workers="0"):
        command = [sys.executable, "-m", "support.running.session", "-n", workers, "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--color=no", *(f"test_them.py::test_{name}" for name in names)],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
            env={"PATH": "", "PYTHONPATH": str(ROOT / "tests"), "KLAMM_TEST_FLAKY": str(tmp_path / "flaky.jsonl")},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return call


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_lost_a_race_is_run_again_and_named(run, tmp_path, workers, capsys):
    code, said = run("good", "flaky", workers=workers)
    assert code == 0, said
    assert "FLAKY test_them.py::test_flaky: AssertionError: lost a race" in said
    assert re.search(r"1 passed, 1 flaky in", said)
    slices.print_flaky(tmp_path / "flaky.jsonl")
    assert capsys.readouterr().out == (
        "\n== flaky tests: 1\nFLAKY test_them.py::test_flaky: AssertionError: lost a race\n"
    )


def test_a_test_that_fails_three_times_is_red(run, tmp_path):
    code, said = run("bad", "flaky", "good")
    assert code == 1
    assert said.count("run again, alone") == 3
    assert re.search(r"1 failed, 1 passed, 1 flaky in", said)
    assert "FLAKY test_them.py::test_bad" not in said


def test_a_pure_test_is_never_run_again(run):
    code, said = run("flaky_pure", "good")
    assert code == 1
    assert "run again" not in said
    assert re.search(r"1 failed, 1 passed in", said)


def test_a_start_of_a_process_is_seen_and_that_of_an_older_thread_is_not(processes):
    before = starts._now
    try:
        seen = starts.begin()
        subprocess.run([sys.executable, "-c", ""], check=True)
        assert seen.count == 1
        assert seen.first.startswith("subprocess.Popen in project/test_project_running.py:")
    finally:
        starts._now = before


def test_a_pure_test_that_starts_a_process_fails_with_what_it_should_ask_for(tmp_path, processes):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").symlink_to(ROOT / "tests/conftest.py")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nasyncio_mode = auto\n"
        f"pythonpath = {ROOT / 'tests'}\nmarkers =\n    {chr(10).join('    ' + m for m in [*kinds.KINDS, 'essential', 'needs'])}\n"
    )
    (folder / "test_it.py").write_text(
        "import os, subprocess, sys\n"
        "def test_pure(): subprocess.run([sys.executable, '-c', ''])\n"
        "def test_process(processes): subprocess.run([sys.executable, '-c', ''])\n"
        "def test_fork():\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("it takes the fixture `processes`, or that of its peer") >= 2


@pytest.mark.parametrize(
    ("words", "marks", "rest"),
    [
        ([], "pure or essential", []),
        (["-k", "x"], "pure or essential", ["-k", "x"]),
        (["tests/base"], "not suite and not soak", ["tests/base"]),
        (["spark", "-x"], "not suite and not soak", ["tests/spark", "tests/connectors/spark", "-x"]),
        (["--process", "broker"], "process", ["tests/broker"]),
        (["--peers"], "peer", []),
        (["--suites"], "suite", []),
        (["--soak"], "soak", []),
        (["--all", "--slowest"], "not suite and not soak", ["--slowest"]),
        (["--slow"], "process or peer", []),
        (["--process", "--peers"], "process or peer", []),
    ],
)
def test_words_choose_tests(words, marks, rest, monkeypatch):
    monkeypatch.setenv("KLAMM_TEST_WORKERS", "4")
    assert pytest_arguments(words, PARTS) == ["-m", marks, "-n", "4", "--dist", "loadfile", *rest]


def test_every_part_has_a_folder():
    assert {"base", "broker", "connect", "mirror", "agent", "spark", "connectors", "plugins", "cli"} <= set(
        parts()
    )


def test_every_capability_of_the_readme_has_tests_that_are_there():
    readme = (ROOT / "README.md").read_text().partition("## What is here\n")[2].partition("\n## ")[0]
    capabilities = re.findall(r"^- \*\*(.+?)\*\*", readme, re.MULTILINE)
    assert [c.removesuffix(" of these") for c in capabilities] == [
        n for n in essential.ESSENTIAL if n != "project"
    ]
    for name in essential.NAMES:
        path, *inside = name.partition("[")[0].split("::")
        text = (ROOT / path).read_text()
        assert all(
            re.search(rf"^\s*(async )?(def|class) {re.escape(word)}\b", text, re.MULTILINE) for word in inside
        ), name


def test_a_name_stands_for_its_parameters_and_what_is_inside_of_it():
    name = "tests/broker/test_server_kill.py::test_nothing_acknowledged_is_lost"
    assert essential.is_essential(f"{name}[False]")
    assert not essential.is_essential(f"{name}[True]")
    assert essential.is_essential("tests/broker/test_admin_clients.py::test_x[a::b]")
    assert essential.is_essential("tests/connectors/test_connector_conformance.py::TestFileSink::test_x")
    assert not essential.is_essential(
        "tests/connectors/test_connector_conformance.py::TestFileSource::test_x"
    )


def test_a_change_reaches_what_imports_it():
    reached = changed.tests_reached(["connectors/klamm_connectors/sql/__init__.py"])
    assert "tests/connectors/sql/test_sql_sink.py" in reached
    assert "tests/broker/test_wire_messages.py" not in reached
    assert changed.tests_reached(["tests/base/test_grok.py"]) == ["tests/base/test_grok.py"]
    assert "tests/project/test_project_layout.py" in changed.tests_reached(["docs/cli.md"])
    assert {Path(f).parent.name for f in changed.tests_reached(["tests/cli/conftest.py"])} == {"cli"}
    assert {Path(f).parent.name for f in changed.tests_reached(["compose/compose.yaml"])} == {"compose"}


KNOWN = {f"tests/{folder}/test_{n}.py": 100.0 for folder in "abc" for n in range(5)}


def test_slices_are_of_one_folder_and_short():
    found = slices.cut(KNOWN, KNOWN)
    assert [f for one in found for f in one.files] == sorted(KNOWN)
    assert all(
        len({Path(f).parent for f in one.files}) == 1 and one.seconds <= slices.SLICE_S for one in found
    )
    assert slices.cut(["tests/a/test_x.py"], {})[0].seconds == slices.UNKNOWN_S


def test_a_few_commits_run_all_slices_and_changed_files_come_first():
    changed_file = "tests/b/test_3.py"
    seen = set()
    for commits in range(100, 108):
        made = slices.plan(KNOWN, [changed_file], KNOWN, commits=commits, left_s=400)
        assert [one.files for one in made.first] == [(changed_file,)]
        assert {f for one in made.first + made.turn for f in one.files} == set(KNOWN)
        used = sum(one.wall_s for one in made.first)
        for one in made.turn:
            used += one.wall_s
            if used > 400:
                break
            seen |= set(one.files)
    assert seen == set(KNOWN) - {changed_file}


def test_a_change_that_reaches_everything_starves_nobody():
    made = slices.plan(KNOWN, KNOWN, KNOWN, commits=7, left_s=600)
    assert 0 < sum(one.wall_s for one in made.first) <= 600 * slices.CHANGED_SHARE
    assert made.turn
