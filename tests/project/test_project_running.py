"""The choice and the run of tests: kinds, the essential ones, changes, slices, and tests that lost a race."""

from __future__ import annotations

import json
import math
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers
from support import essential, kinds, needs, starts
from support.running import changed, slices
from support.running.__main__ import main, parts, pytest_arguments

ROOT = Path(__file__).parents[2]
PARTS = {"broker": ("tests/broker",), "spark": ("tests/spark", "tests/connectors/spark")}


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_lost_a_race_is_run_again_and_named(run, tmp_path, workers, capsys):
    code, said = run("good", "flaky", workers=workers)
    assert code == 0, said
    assert "FLAKY test_them.py::test_flaky: AssertionError: lost a race" in said
    assert '>       assert not first_time("flaky"), "lost a race"' in said, "how it failed"
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


def test_a_test_that_skips_itself_when_it_is_run_again_has_not_passed(run):
    code, said = run("skips_then", "good")
    assert code == 1
    assert said.count("SKIPPED test_them.py::test_skips_then") == 2
    assert re.search(r"1 failed, 1 passed in", said)


def test_a_server_that_did_not_start_once_is_one_failure_of_all_its_tests(run):
    code, said = run("served", "good")
    assert code == 0, said
    assert said.count("run again, alone (1): passed test_them.py::test_served[0] and 11 more") == 1
    assert re.search(r"1 passed, 12 flaky in", said)


def test_nothing_is_run_again_long_after_the_end_of_the_budget(run):
    code, said = run("bad", KLAMM_CI_STARTED=str(time.time() - 661), KLAMM_CI_BUDGET_MINUTES="1")
    assert code == 1
    assert "not run again, since CI's budget is used: test_them.py::test_bad" in said
    code, said = run("flaky", KLAMM_CI_STARTED=str(time.time() - 90), KLAMM_CI_BUDGET_MINUTES="1")
    assert code == 0, said
    code, said = run("hangs_then", KLAMM_CI_STARTED=str(time.time() - 652), KLAMM_CI_BUDGET_MINUTES="1")
    assert code == 1
    assert "ended, since CI's budget is used" in said or "not run again, since CI's budget is used" in said


@pytest.mark.parametrize("workers", ["0", "1"])
def test_ctrl_c_works_in_tests_that_a_shell_runs_in_the_background(run, workers):
    code, said = run("ctrl_c", workers=workers, before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert code == 0, said


def test_values_of_our_modules_can_be_kept_out_of_the_cases_of_ci():
    """tests/conftest.py replaces this function of Hypothesis: a release without it would make the cases differ, and take long."""
    assert "is_local_module_file" in providers._get_local_constants.__code__.co_names


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
        "[pytest]\naddopts = --import-mode=importlib -p no:schemathesis\nasyncio_mode = auto\n"
        f"pythonpath = {shlex.quote(str(ROOT / 'tests'))}\nmarkers =\n    {chr(10).join('    ' + m for m in [*kinds.KINDS, 'essential', 'needs'])}\n"
    )
    (folder / "test_it.py").write_text(
        "import os, subprocess, sys\n"
        "def test_pure(): subprocess.run([sys.executable, '-c', ''])\n"
        "def test_process(processes): subprocess.run([sys.executable, '-c', ''])\n"
        "def test_fork():\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)\n"
    )
    (folder / "test_late.py").write_text(
        "import subprocess, sys, pytest\n"
        "@pytest.fixture\n"
        "def late():\n    yield\n    subprocess.run([sys.executable, '-c', ''])\n"
        "def test_late(late): pass\n"
    )
    (folder / "test_text.txt").write_text(">>> 1 + 1\n2\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "pure or process", "-p", "no:cacheprovider", str(folder)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 failed, 3 passed, 1 error" in done.stdout, done.stdout  # a doctest among those that passed
    assert done.stdout.count("it takes the fixture `processes`, or that of its peer") >= 3
    assert "ERROR at teardown of test_late" in done.stdout


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


def test_a_part_after_changed_is_no_revision(monkeypatch):
    asked = []
    monkeypatch.setattr(
        changed, "changed_files", lambda revision=None: asked.append(revision) or ["tests/base/test_grok.py"]
    )
    assert pytest_arguments(["--changed", "broker"], PARTS)[6:] == ["tests/base/test_grok.py", "tests/broker"]
    assert pytest_arguments(["--changed", "v1", "-x"], PARTS)[6:] == ["tests/base/test_grok.py", "-x"]
    assert pytest_arguments(["--changed", "tests/cli"], PARTS)[6:] == ["tests/base/test_grok.py", "tests/cli"]
    assert asked == [None, "v1", None]


def test_an_unknown_revision_is_wrong_use(capsys, monkeypatch):
    monkeypatch.setattr(changed, "git", lambda *words: [])
    assert main(["--changed", "nosuchrev"]) == 2
    assert capsys.readouterr().err == (
        "dev: 'nosuchrev' is no commit that git knows here, and no part of the tests\n"
    )


def test_a_change_without_tests_is_no_failure(capsys, monkeypatch):
    monkeypatch.setattr(changed, "changed_files", lambda revision=None: [])
    assert main(["--changed"]) == 0
    assert capsys.readouterr().err == "dev: no test reaches what has changed\n"


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


def test_every_kind_of_process_has_an_essential_test():
    for kind, names in essential.PROCESSES.items():
        assert names, kind
        for name in names:
            path, *inside = name.partition("[")[0].split("::")
            assert essential.is_essential(name), name
            text = (ROOT / path).read_text()
            assert all(re.search(rf"^\s*(async )?def {word}\b", text, re.MULTILINE) for word in inside), name


@pytest.mark.parametrize("said", ["", "\nCannot connect\n"])
def test_a_docker_that_says_nothing_is_a_reason_to_skip(said, monkeypatch):
    monkeypatch.setattr(
        needs.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", said)
    )
    with pytest.raises(pytest.skip.Exception, match=said.strip() or "`docker info` ended with 1"):
        needs.docker_engine.__wrapped__()


def test_a_missing_java_says_what_to_install(monkeypatch):
    monkeypatch.setattr(needs.shutil, "which", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="apt-get install default-jdk-headless"):
        needs.java_runtime.__wrapped__()


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
    composed = changed.tests_reached(["compose/compose.yaml"])
    assert "tests/compose/test_compose_up.py" in composed
    assert {Path(f).parent.name for f in composed} == {"compose", "project"}
    everything = changed.tests_reached(["pyproject.toml"])
    assert set(everything) > set(composed)
    assert everything == changed.tests_reached(["tests/support/starts.py"])  # tests/conftest.py imports it


@pytest.mark.parametrize(
    ("path", "test", "other"),
    [
        ("tests/support/WireOracle.java", "broker/test_wire_against_kafka", "cli/test_kafka_tools"),
        ("tests/support/KafkaTools.java", "cli/test_console_tools", "base/test_grok"),
        ("tests/fixtures/kafka-4.3.1/clean.tar.xz", "broker/test_log_kafka_fixtures", "base/test_grok"),
        ("tests/fixtures/protobuf/proto3.bin", "plugins/test_plugin_protobuf", "base/test_grok"),
        ("tests/fixtures/stores/client.jks", "base/test_base_security", "broker/test_wire_batch"),
        ("tests/fixtures/connect_transforms/cases.py", "plugins/test_plugin_transforms_against_kafka", "base/test_grok"),
        ("tests/peers/fetch_kafka.sh", "broker/test_wire_against_kafka", "nobody"),
        ("tests/peers/fetch_elasticsearch.sh", "connectors/elasticsearch/test_elasticsearch_sink", "base/test_base_files"),
        ("tests/connectors/fixtures/recorded_configs.json", "connectors/test_connector_file", "base/test_grok"),
        ("examples/agent.toml", "agent/test_agent_config", "broker/test_wire_batch"),
        ("examples/plugin/src/klamm_example/hide.py", "plugins/test_plugin_example", "broker/test_wire_batch"),
        ("tests/support/mariadb.py", "connectors/mysql/test_mysql_pipeline", "broker/test_wire_batch"),
        ("tests/support/spark.py", "spark/test_spark_lookup", "broker/test_wire_batch"),
        ("tests/support/elasticsearch.py", "spark/test_spark_elasticsearch", "broker/test_wire_batch"),
        ("platform/klamm/testing/fixtures.py", "connectors/test_connector_conformance", "broker/test_wire_batch"),
        ("tests/support/clusters.py", "mirror/test_mirror_source", "mirror/test_mirror_formats"),  # by conftest.py
    ],
)  # fmt: skip
def test_a_change_reaches_what_no_import_shows(path, test, other):
    assert (ROOT / path).exists()
    reached = changed.tests_reached([path])
    assert f"tests/{test}.py" in reached
    assert f"tests/{other}.py" not in reached
    assert (ROOT / f"tests/{other}.py").exists() or other == "nobody"


def test_a_file_of_the_tests_that_nobody_names_reaches_everything():
    path = f"tests/support/{'Z' * 9}.java"  # so that this test does not name it
    assert changed.tests_reached([path]) == changed.tests_reached(["pyproject.toml"])
    assert changed.steps_to_tests([path])["tests/base/test_grok.py"] == changed.FAR


def test_a_changed_test_is_closer_than_those_that_a_change_reaches():
    steps = changed.steps_to_tests(["tests/broker/test_wire_batch.py", "base/klamm_base/grok.py"])
    assert steps["tests/broker/test_wire_batch.py"] == 0
    assert steps["tests/base/test_grok.py"] == 1
    assert max(steps.values()) > 1


KNOWN = {f"tests/{folder}/test_{n}.py": 100.0 for folder in "abc" for n in range(5)}
MEASURED = {path: float(s) for path, s in json.loads(slices.DURATIONS.read_text()).items()}


def test_slices_are_of_one_folder_and_short():
    found = slices.cut(KNOWN, KNOWN)
    assert [f for one in found for f in one.files] == sorted(KNOWN)
    assert all(
        len({Path(f).parent for f in one.files}) == 1 and sum(one.seconds.values()) <= slices.SLICE_S
        for one in found
    )
    assert slices.cut(["tests/a/test_x.py"], {})[0].seconds == {"tests/a/test_x.py": slices.UNKNOWN_S}


def test_a_slice_takes_as_long_as_its_longest_file():
    assert slices.Slice({"a": 100.0, "b": 10.0}).wall_s == slices.START_S + 100
    assert slices.Slice({"a": 100.0, "b": 90.0, "c": 90.0}).wall_s == slices.START_S + 140


def ran(made, left_s):
    """Yields the files of the slices that `run` would start."""
    now = 0.0
    for one in made.first + made.turn:
        if slices.fits(one, now=now, until=left_s):
            now += one.wall_s
            yield from one.files


@pytest.mark.parametrize("left_s", [600, 700, 900, 1500])
@pytest.mark.parametrize("reached", [{}, dict.fromkeys(MEASURED, 1)], ids=["nothing", "everything"])
def test_some_fifty_commits_run_every_file(left_s, reached):
    for first in (0, 1000, 123_456):
        seen = set()
        for commits in range(first, first + 50):
            made = slices.plan(MEASURED, reached, MEASURED, commits=commits, left_s=left_s)
            assert sorted(f for one in made.first + made.turn for f in one.files) == sorted(MEASURED)
            seen |= set(ran(made, left_s))
        assert seen == set(MEASURED), sorted(set(MEASURED) - seen)


def test_each_slice_begins_a_turn():
    for count in range(1, 60):
        all_of_them = [slices.Slice({str(n): 1.0}) for n in range(count)]
        begun = [slices._turn(all_of_them, commits)[0].files for commits in range(count)]
        assert len(set(begun)) == count
        assert math.isclose(sum(one.wall_s for one in slices._turn(all_of_them, 3)), count * 21)


def test_a_shallow_clone_takes_turns_by_the_hash_of_the_commit(monkeypatch):
    said = {"--is-shallow-repository": ["true"], "HEAD": ["beef"], "--count": ["1"]}
    monkeypatch.setattr(changed, "git", lambda *words: said[words[1]])
    assert slices._commits() == 0xBEEF
    said["--is-shallow-repository"] = ["false"]
    assert slices._commits() == 1


def test_the_closest_files_come_first():
    reached = {"tests/b/test_3.py": 0, "tests/a/test_1.py": 1, "tests/c/test_0.py": 2}
    known = KNOWN | {"tests/c/test_0.py": 1.0}
    made = slices.plan(KNOWN, reached, known, commits=7, left_s=800)
    assert [one.files for one in made.first] == [(file,) for file in reached]
    assert not {f for one in made.turn for f in one.files} & set(reached)


def test_a_change_that_reaches_everything_starves_nobody():
    made = slices.plan(KNOWN, dict.fromkeys(KNOWN, 1), KNOWN, commits=7, left_s=600)
    assert 0 < sum(one.wall_s for one in made.first) <= 600 * slices.CHANGED_SHARE
    assert made.turn


def test_a_slice_that_hangs_is_ended(tmp_path, processes, capfd):
    file = tmp_path / "test_hangs.py"
    file.write_text("import time\ndef test_hangs(): time.sleep(300)\n")
    began = time.monotonic()
    assert slices._pytest(["-p", "no:cacheprovider", str(file)], time.time() + 4) is None
    assert time.monotonic() - began < 100


def test_a_slice_that_was_ended_is_a_failure_and_says_so(monkeypatch, capsys):
    for name, value in {
        "_files": lambda: ["tests/base/test_grok.py"],
        "_commits": lambda: 1,
        "_pytest": lambda arguments, deadline: None,
    }.items():
        monkeypatch.setattr(slices, name, value)
    monkeypatch.setattr(changed, "files_of_commits", lambda *, hours: [])
    monkeypatch.setenv("KLAMM_CI_STARTED", str(time.time()))
    assert slices.run() == 1
    assert "ended, since it still ran 10 minutes after the end of the budget" in capsys.readouterr().out


def test_an_unknown_part_is_named(capsys):
    assert main(["nosuchpart"]) == 2
    assert "there is no part nosuchpart; there are agent, backup, base, broker, " in capsys.readouterr().err
    assert pytest_arguments(["tests/base/test_base_properties.py::test_x"], PARTS)
