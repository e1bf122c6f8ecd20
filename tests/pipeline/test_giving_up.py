"""A run of the demonstration ends although lines are still under way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from klamm.demo.logs import main
from klamm.demo.logs import pipeline as module
from klamm.demo.logs.kind import Kind
from klamm.demo.logs.main import Settings
from klamm.demo.logs.measure import Reading
from klamm.demo.logs.pipeline import Drained, Pipeline
from klamm.demo.logs.target import Choice, SqliteTarget
from klamm.demo.patience import cpu_seconds
from klamm.demo.platform import NoAnswer
from klamm_base.errors import ConfigError, KlammError


class Slow(Pipeline):
    """Documents arrive in steps with long pauses; a clock that the loop moves."""

    def __init__(self, documents: list[int], monkeypatch) -> None:
        self.now, self.documents = 0.0, documents
        self.generator = SimpleNamespace(done=True)
        self.cpu_s_per_step, self.silent = 0.0, False
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += 100

    def check(self) -> None:
        if self.silent:
            raise NoAnswer("GET /connectors: timed out")

    def _cpu_s(self) -> float:
        return self.now / 100 * self.cpu_s_per_step

    def readings(self, now: float) -> list[Reading]:
        there = self.documents.pop(0) if len(self.documents) > 1 else self.documents[0]
        self.there = there
        return [Reading(stage="target", total=there, rate=0, lag=10 - there, unit="lines", note="")]

    def drained(self) -> bool:
        return self.there == 10


def test_what_moves_is_waited_for(monkeypatch):
    end = Slow([0, 0, 1, 1, 5, 5, 9, 9, 10], monkeypatch).run(lambda readings: None, patience_s=250)
    assert (end.seconds, end.gave_up) == (800, ())


def test_what_stands_still_is_given_up_and_told(monkeypatch):
    end = Slow([0, 4, 4], monkeypatch).run(lambda readings: None, patience_s=250)
    assert [r.lag for r in end.gave_up] == [6]
    assert (end.stage, end.why) == ("target", "")
    assert end.seconds == 400


def test_what_computes_is_waited_for_but_not_for_ever(monkeypatch):
    slow = Slow([0, 4, 4], monkeypatch)
    slow.cpu_s_per_step = 20  # a fifth of a core
    assert slow.run(lambda readings: None, patience_s=250).seconds == 100 + 1_600
    slow = Slow([0] * 12 + [10], monkeypatch)
    slow.cpu_s_per_step = 20
    assert slow.run(lambda readings: None, patience_s=250).gave_up == ()


def test_a_stage_that_moves_without_a_total_is_waited_for(monkeypatch):
    slow = Slow([0], monkeypatch)
    readings = slow.readings
    monkeypatch.setattr(
        slow, "readings", lambda now: [replace(readings(now)[0], mark=(min(int(now), 2000),))]
    )
    assert slow.run(lambda readings: None, patience_s=250).seconds == 2_300


def test_a_server_that_does_not_answer_is_asked_again(monkeypatch):
    slow = Slow([0, 10], monkeypatch)
    slow.silent = True
    end = slow.run(lambda readings: setattr(slow, "silent", False), patience_s=250)
    assert end.why == "GET /connectors: timed out"
    assert end.seconds == 300


def test_a_generator_that_hangs_is_named(monkeypatch):
    slow = Slow([0], monkeypatch)
    slow.generator.done = False
    assert slow.run(lambda readings: None, patience_s=250).stage == "generator"


def test_the_cpu_of_a_session_is_counted(processes):
    words = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(words, start_new_session=True) as spinning:
        try:
            until = time.monotonic() + 60
            while cpu_seconds({spinning.pid}) < 0.2 and time.monotonic() < until:
                time.sleep(0.05)
            assert cpu_seconds({spinning.pid}) >= 0.2
        finally:
            spinning.kill()
    assert cpu_seconds({spinning.pid}) == 0


def test_a_database_that_nobody_has_made_holds_no_documents(tmp_path):
    target = SqliteTarget(tmp_path / "documents.db")
    assert (list(target.documents()), list(target.rates()), target.count()) == ([], [], 0)
    with closing(sqlite3.connect(target.file)) as database:
        database.execute("CREATE TABLE events (event_id TEXT)")
    assert (list(target.documents()), list(target.rates()), target.count()) == ([], [], 0)


def test_the_logs_of_a_run_that_failed_stay(tmp_path, monkeypatch, capsys):
    def fail(settings: Settings, directory: Path) -> None:
        (directory / "spark.log").write_text("the reason")
        (directory / "documents.db").touch()
        (directory / "logs").mkdir()
        (directory / "logs/app.log").touch()
        raise KlammError("stage Spark: it stood still")

    monkeypatch.setattr(main, "_run", fail)
    with pytest.raises(KlammError, match="stage Spark"):
        main.run(Settings(data_dir=tmp_path))
    (directory,) = tmp_path.iterdir()
    assert [path.name for path in directory.iterdir()] == ["spark.log"]
    assert f"demo: the logs of all stages are in {directory}" in capsys.readouterr().err
    for before_anything_ran in (ConfigError("no"), KeyboardInterrupt()):
        monkeypatch.setattr(main, "_run", Mock(side_effect=before_anything_ran))
        with suppress(ConfigError):
            main.run(Settings(data_dir=tmp_path))
        assert list(tmp_path.iterdir()) == [directory]


def test_the_stage_that_stands_still_is_in_the_report():
    end = Drained(
        5.0, gave_up=[Reading(stage="Spark", total=1, rate=0, lag=6, unit="records")], stage="Spark"
    )
    said = "\n".join(main._notes(Choice(Kind.ELASTICSEARCH, "why"), 0, end, keep=False))
    assert "given up: stage Spark stands still; nothing has moved for 300 s" in said
    assert "still under way, and not lost: Spark 6 records" in said
