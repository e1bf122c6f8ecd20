"""Processes of the pipeline: what is said when one fails, and that none outlives its owner. Rates, choice of target."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest
from support.klamm import gone

from klamm.demo.logs.kind import Kind
from klamm.demo.logs.lines import SERVICES, Plan
from klamm.demo.logs.measure import Meter, Reading
from klamm.demo.logs.process import Process, StageFailed
from klamm.demo.logs.show import View
from klamm.demo.logs.stages import GeneratorStage, SparkStage, agent_toml
from klamm.demo.logs.target import choose
from klamm_agent.config.agent import AgentConfig
from klamm_base.errors import KlammError
from klamm_spark.model import Job, Output, Source


def wait_for(found, within_s=60):
    until = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < until
        time.sleep(0.05)


def plan(total: int) -> Plan:
    return Plan(seed=1, start_ms=int(time.time() * 1000), rate=1000, total=total)


@pytest.mark.usefixtures("processes")
def test_a_stage_that_is_done_is_none_that_failed(tmp_path):
    stage = GeneratorStage(tmp_path / "logs", plan(200), tmp_path / "log")
    stage.process.start()
    assert stage.process.wait(60) == 0
    wait_for(lambda: stage.done)
    stage.process.check()
    assert (stage.lines, stage.rotations) == (200, 6)
    stage.process.stop()


@pytest.mark.usefixtures("processes")
def test_a_stage_that_was_killed_is_named_and_starts_again(tmp_path):
    stage = GeneratorStage(tmp_path / "logs", plan(100_000), tmp_path / "log")
    stage.process.start()
    psutil.Process(stage.process.pid).kill()
    stage.process.wait(60)
    with pytest.raises(StageFailed, match=r"stage generator: the process ended \(signal SIGKILL\)"):
        stage.process.check()
    stage.process.kill()
    stage.process.start()
    wait_for(lambda: stage.lines > 0)
    stage.process.stop()
    assert not stage.process.running


@pytest.mark.usefixtures("processes")
def test_the_end_of_its_log_is_said(tmp_path):
    process = Process("generator", "klamm.demo.logs.generator", ["here", "no number"], tmp_path / "log")
    process.start()
    assert process.wait(60) == 1
    with pytest.raises(StageFailed, match="ValueError"):
        process.check()
    process.stop()


@pytest.mark.usefixtures("processes")
def test_no_process_outlives_its_owner(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from klamm.demo.logs.process import Process
log = Path({str(tmp_path / "log")!r})
words = [{str(tmp_path / "logs")!r}, "1", str(int(time.time() * 1000)), "10", "100000", "0"]
generator = Process("generator", "klamm.demo.logs.generator", words, log)
sleeper = Process("agent", "klamm.up.child", ["consume", "t", "-b", "127.0.0.1:9"], log, watched=True)
generator.start()
sleeper.start()
print(generator.pid, sleeper.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(p) for p in owner.stdout.readline().split()]
        assert len(pids) == 2
        owner.kill()
    assert all(gone(pid) for pid in pids)


def spark_stage(tmp_path) -> SparkStage:
    job = Job("j", "c", Source("b", ("logs.app",)), (Output("events", "klamm"), Output("rates", "klamm")))
    return SparkStage(job, tmp_path / "log", {})


def test_spark_is_as_far_as_its_slowest_query(tmp_path):
    stage = spark_stage(tmp_path)
    stage._on_line('{"event": "started", "queries": ["events"], "spark": "4", "java": 17}')
    assert stage.started
    assert stage.least_read() == 0
    stage._on_line('{"event": "progress", "query": "events", "offsets": {"logs.app": {"0": 5, "1": 2}}}')
    assert (stage.read("events"), stage.least_read()) == (7, 0)
    stage._on_line('{"event": "progress", "query": "rates", "offsets": {"logs.app": {"0": 1}}}')
    assert stage.least_read() == 1
    stage._on_line('{"event": "lag", "query": "rates", "lag": {}}')
    assert stage.least_read() == 1, "what else it says is for others"


def test_what_another_start_does_not_mend_is_not_started_again(tmp_path):
    stage = spark_stage(tmp_path)
    stage._on_line(
        '{"event": "failed", "error": "ConfigError", "message": "no such key", "retriable": false}'
    )
    with pytest.raises(StageFailed, match="stage Spark: ConfigError: no such key"):
        stage.mend()
    assert stage.restarts == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_the_view_says_that_the_driver_was_started_again(terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    reading = Reading(stage="Spark", total=1, rate=0, lag=6, unit="records", note="batch 1", restarts=1)
    with View(10) as view:
        view.show([reading])
    assert ", started again 1 of 3 times" in capsys.readouterr().out


def test_the_agents_configuration_is_one(tmp_path):
    path = tmp_path / "agent.toml"
    path.write_text(agent_toml(tmp_path / 'a "b"', tmp_path / "state", "127.0.0.1:9092"))
    config = AgentConfig.load(path)
    assert [i.topic for i in config.inputs] == ["logs.access", "logs.app"]
    assert {p for i in config.inputs for p in i.paths} == {
        str(tmp_path / 'a "b"' / f"{s.file}*") for s in SERVICES
    }


def test_rates_are_of_the_last_seconds():
    meter = Meter()
    assert meter.rate(0.0, 0) == 0
    assert meter.rate(2.0, 200) == 100
    for second in range(3, 20):
        last = meter.rate(float(second), 200 + 10 * (second - 2))
    assert last == pytest.approx(10)
    assert meter.rate(20.0, 0) == 0  # begun anew


def test_a_target_that_was_named_must_be_there(monkeypatch, tmp_path):
    assert choose(Kind.SQLITE, None).kind is Kind.SQLITE
    with pytest.raises(KlammError, match="does not answer as Elasticsearch"):
        choose(Kind.AUTO, "http://127.0.0.1:9")
    monkeypatch.setattr("klamm.demo.logs.target.DEFAULT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ELASTICSEARCH_HOME", str(tmp_path))
    fallen = choose(Kind.AUTO, None)
    assert fallen.kind is Kind.SQLITE
    assert "no Elasticsearch" in fallen.why
    with pytest.raises(KlammError, match="none can be started"):
        choose(Kind.ELASTICSEARCH, None)
