"""The generator: it conforms, it is reproducible, and it keeps its rate and its end."""

import pytest
from klamm_example.datagen import DatagenSourceConnector, DatagenSourceTask, make_order

from klamm_plugins.testing import MemorySourceContext, SourceConformance


class TestConformance(SourceConformance):
    connector = DatagenSourceConnector

    def props(self, tmp_path):
        return {"topic": "orders", "rate": "0"}

    def produce(self, tmp_path, count):
        pass  # it makes up its records


@pytest.fixture
def start():
    def start(**props):
        connector = DatagenSourceConnector()
        connector.start({"topic": "orders", **props})
        config = connector.task_configs(1)[0]
        task = DatagenSourceTask()
        task.initialize(MemorySourceContext(config))
        task.start(config)
        return task

    return start


def test_the_same_seed_makes_the_same_orders(start):
    first, second = start(rate="0", seed="7").poll(), start(rate="0", seed="7").poll()
    assert [r.value for r in first] == [r.value for r in second]
    assert first[3].value == make_order(7, 0, 3)
    assert first[0].value != start(rate="0", seed="8").poll()[0].value
    first[0].value.validate()


def test_it_ends_after_count(start):
    task = start(rate="0", count="5")
    assert task.lag() == 5
    assert len(task.poll()) == 5
    assert task.lag() == 0
    task.context.stopping.set()
    assert task.poll() is None


def test_it_keeps_its_rate(start, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("klamm_example.datagen.time.monotonic", lambda: now[0])
    task = start(rate="10")
    task.context.stopping.set()  # so that it does not wait
    assert len(task.poll()) == 1
    assert task.poll() is None
    now[0] += 1.0
    assert len(task.poll()) == 10
    now[0] += 1000.0
    assert len(task.poll()) == 1000, "a batch has a limit"
