"""The public test kit itself: its clock, its worker, what it says when something does not happen."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from klamm.testing import EmbeddedWorker, FakeClock, WorkerFailed
from klamm.testing.connector_suite import assert_at_least_once
from klamm.testing.exposed import expose
from klamm.testing.topics import Sent, TopicReader, send
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.testing import MemorySourceContext

TESTS = Path(__file__).parents[1]


class TestClock:
    def test_time_passes_only_when_somebody_waits(self, fake_clock: FakeClock) -> None:
        wall, mono = fake_clock.time(), fake_clock.monotonic()
        time.sleep(0.01)
        assert (fake_clock.time(), fake_clock.monotonic()) == (wall, mono)
        fake_clock.sleep(2)
        fake_clock.advance(0.5)
        assert fake_clock.time() == wall + 2.5
        assert fake_clock.monotonic_ns() == int((mono + 2.5) * 1e9)
        assert fake_clock.now_ms() == int((wall + 2.5) * 1000)
        assert fake_clock.waits == [2]

    def test_the_wall_clock_may_be_set_back(self, fake_clock: FakeClock) -> None:
        fake_clock.advance(10)
        fake_clock.set_wall(1000)
        assert (fake_clock.time(), fake_clock.monotonic()) == (1000, 10)
        with pytest.raises(ValueError, match="cannot pass by -1 s"):
            fake_clock.advance(-1)

    def test_an_event_waits_by_it(self, fake_clock: FakeClock) -> None:
        context = MemorySourceContext({}, stopping=fake_clock.event())
        began = time.monotonic()
        assert not context.stopping.wait(3600)
        assert time.monotonic() - began < 60
        assert fake_clock.monotonic() == 3600
        context.stopping.set()
        assert context.stopping.wait(3600)
        assert fake_clock.monotonic() == 3600

    def test_an_event_without_a_time_is_waited_for(self, fake_clock: FakeClock) -> None:
        event = fake_clock.event()
        threading.Timer(0.02, event.set).start()
        assert event.wait()

    def test_it_takes_the_place_of_time_in_a_module(
        self, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import klamm.testing.process as module

        fake_clock.install(monkeypatch, "klamm.testing.process")
        assert module.time.monotonic() == 0
        assert module.time.strftime("%Y", module.time.gmtime(0)) == "1970"  # the rest is the real module's
        monkeypatch.undo()
        assert module.time is time

    def test_names_that_were_imported_cannot_be_replaced(
        self, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ValueError, match=r"klamm\.testing\.cases has no `import time`"):
            fake_clock.install(monkeypatch, "klamm.testing.cases")


class TestExposing:
    def test_installed_classes_need_nothing(self, tmp_path: Path) -> None:
        expose([FileStreamSourceConnector, StringConverter], tmp_path / "none")
        assert not (tmp_path / "none").exists()

    @pytest.mark.usefixtures("processes")
    def test_others_are_found_by_an_entry_point(self, tmp_path: Path) -> None:
        from support.runtime_plugins import CountingDriverSourceConnector

        path = expose([CountingDriverSourceConnector], tmp_path)
        assert path[0] == str(tmp_path)
        assert str(TESTS) in path
        code = (
            "from klamm_plugins.discovery import PluginManager; m = PluginManager.load();"
            "print(m.find_connector('CountingDriverSourceConnector').__module__, m.broken)"
        )
        env = {"PYTHONPATH": ":".join(path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout == "support.runtime_plugins []\n"

    def test_what_no_child_can_import_is_refused(self, tmp_path: Path) -> None:
        class Local(FileStreamSourceConnector):
            pass

        with pytest.raises(ValueError, match=r"<locals>\.Local: another process cannot import it"):
            expose([Local], tmp_path)
        with pytest.raises(
            ValueError, match=r"no connector, converter, transform, predicate or mirror plugin"
        ):
            expose([threading.Thread], tmp_path)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([1, 2, 4], "1 records are lost, the first is 3"),
        ([1, 3, 2, 4], "out of order"),
        ([1, 2, 3, 1, 3, 4], "left out"),
    ],
)
def test_the_check_of_at_least_once_sees_what_is_wrong(found: list[int], said: str) -> None:
    assert_at_least_once([1, 2, 1, 2, 3, 2, 3, 4], [1, 2, 3, 4])
    with pytest.raises(AssertionError, match=said):
        assert_at_least_once(found, [1, 2, 3, 4])


def test_a_worker_says_what_is_wrong(
    klamm_worker: EmbeddedWorker, klamm_topic: str, klamm_bootstrap: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkerFailed, match=r"(?s)connector x is refused \(400\): .*batch\.size"):
        klamm_worker.create("x", {"connector.class": "FileStreamSource", "topic": "t", "batch.size": "0"})
    send(klamm_bootstrap, klamm_topic, [Sent(0, None, b"no JSON")])
    config = {"connector.class": "FileStreamSink", "topics": klamm_topic, "file": str(tmp_path / "out")}
    klamm_worker.create("x", config)
    klamm_worker.wait(lambda: "FAILED" in klamm_worker.states("x"), "failure", "x")
    with pytest.raises(WorkerFailed, match=r"(?s)connector x has failed.*DataError"):
        klamm_worker.wait_running("x")
    klamm_worker.delete("x")
    assert klamm_worker.status("x") == {}
    with pytest.raises(WorkerFailed, match="PUT /connectors/x/pause: 404"):
        klamm_worker.pause("x")


def test_a_reader_sees_what_was_sent(klamm_topic: str, klamm_bootstrap: str) -> None:
    send(klamm_bootstrap, klamm_topic, [Sent(0, b"k", b"v"), Sent(0, None, None)])
    with TopicReader(klamm_bootstrap, klamm_topic) as reader:
        reader.wait_for(2)
        assert [(m.key(), m.value()) for m in reader.seen] == [(b"k", b"v"), (None, None)]


def test_a_worker_that_cannot_start_says_why(klamm_bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match=r"did not start:\n.*group\.id: String must be non-empty"):
        EmbeddedWorker(klamm_bootstrap, config={"group.id": ""}, directory=tmp_path).start()
