"""When a run of the demonstration ends although lines are still under way."""

from __future__ import annotations

from types import SimpleNamespace

from klamm.demo.logs import pipeline as module
from klamm.demo.logs.measure import Reading
from klamm.demo.logs.pipeline import Pipeline


class Slow(Pipeline):
    """Documents arrive in steps with long pauses; a clock that the loop moves."""

    def __init__(self, documents: list[int], monkeypatch) -> None:
        self.now, self.documents = 0.0, documents
        self.generator = SimpleNamespace(done=True)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += 100

    def check(self) -> None:
        pass

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
    assert end.seconds == 400
