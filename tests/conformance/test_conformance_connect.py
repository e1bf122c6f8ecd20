"""Apache's Connect worker on our broker, and pipelines that move between Apache's worker and ours.

Both keep connectors, offsets and states in the same three topics in the same format; so does the group that each
sink reads with. Stop one worker, start the other on the same group and topics: everything goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, new_topic, wait_until
from support.connect_worker import STRING, Response, WorkerProcess, worker_properties
from support.kafka_connect import KafkaConnectWorker

from klamm.testing import EmbeddedBroker

pytestmark = pytest.mark.usefixtures("apache_kafka")
Start = Callable[[type[WorkerProcess]], WorkerProcess]
LINES = 5000


@pytest.fixture
def start(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[Start]:
    """Start a worker; all of a test have the same group and topics."""
    properties = worker_properties(broker.bootstrap, new_name("connect"))
    properties |= {"key.converter": STRING, "value.converter": STRING}
    started: list[WorkerProcess] = []

    def run(kind: type[WorkerProcess]) -> WorkerProcess:
        worker = kind(properties, tmp_path)
        started.append(worker)
        return worker.wait_ready()

    yield run
    for worker in started:
        worker.end()


class Pipeline:
    """A file, a topic and a file: what goes in at one end must come out at the other.

    The lines are ASCII: Kafka's source counts characters where it later skips bytes, so that it cannot itself go on
    in other files.
    """

    def __init__(self, directory: Path, broker: EmbeddedBroker) -> None:
        self.topic = new_topic(broker)
        self.source, self.sink = directory / "in.txt", directory / "out.txt"
        self.fed: list[str] = []
        self.feed(LINES)

    def feed(self, count: int) -> None:
        lines = [f"line {len(self.fed) + n} of the file that moves" for n in range(count)]
        self.fed += lines
        with self.source.open("a") as f:
            f.writelines(f"{line}\n" for line in lines)

    def create(self, worker: WorkerProcess) -> None:
        for name, config in (
            (
                "source",
                {"connector.class": "FileStreamSource", "file": str(self.source), "topic": self.topic},
            ),
            ("sink", {"connector.class": "FileStreamSink", "file": str(self.sink), "topics": self.topic}),
        ):
            body = {"name": f"{self.topic}-{name}", "config": {"tasks.max": "1", **config}}
            # Apache's worker refuses it while the group is about to rebalance
            answer = wait_until(partial(self.taken, worker, body), "a group that takes connectors")
            assert answer.status == 201, answer.content
        self.wait_running(worker)

    @staticmethod
    def taken(worker: WorkerProcess, body: dict[str, Any]) -> Response | None:
        answer = worker.request("POST", "/connectors", body)
        return None if answer.status == 409 else answer

    def wait_running(self, worker: WorkerProcess) -> None:
        for name in ("source", "sink"):
            worker.wait_state(f"{self.topic}-{name}", "RUNNING", "RUNNING")

    def wait_through(self, worker: WorkerProcess) -> None:
        """Waits until everything fed so far has come out: not a line less, not one more, in order (one partition)."""

        def arrived() -> bool:
            return self.sink.exists() and len(self.out()) >= len(self.fed)

        try:
            wait_until(arrived, "all lines to come out", timeout_s=60)
        except pytest.fail.Exception as error:
            error.add_note(
                f"{len(self.out())} of {len(self.fed)} lines; the worker says:\n{worker.log[-3000:]}"
            )
            raise
        assert self.out() == self.fed

    def out(self) -> list[str]:
        """Returns whole lines: a line that is just being written is none yet."""
        return self.sink.read_text().split("\n")[:-1] if self.sink.exists() else []


@pytest.mark.parametrize(
    ("first", "second"),
    [(KafkaConnectWorker, WorkerProcess), (WorkerProcess, KafkaConnectWorker)],
    ids=["from Apache's worker to ours", "from our worker to Apache's"],
)
def test_a_pipeline_moves_between_workers(
    start: Start,
    tmp_path: Path,
    broker: EmbeddedBroker,
    first: type[WorkerProcess],
    second: type[WorkerProcess],
) -> None:
    pipeline = Pipeline(tmp_path, broker)
    before = start(first)
    pipeline.create(before)
    pipeline.wait_through(before)
    configs = {name: before.get(f"/connectors/{name}/config") for name in before.get("/connectors")}
    sink = f"{pipeline.topic}-sink"
    assert before.request("PUT", f"/connectors/{sink}/pause").status == 202
    before.wait_state(sink, "PAUSED", "PAUSED")
    assert before.stop() in {0, 143}

    pipeline.feed(LINES)
    after = start(second)
    after.wait_state(sink, "PAUSED", "PAUSED")
    assert after.request("PUT", f"/connectors/{sink}/resume").status == 202
    pipeline.wait_running(after)
    pipeline.wait_through(after)
    assert {name: after.get(f"/connectors/{name}/config") for name in after.get("/connectors")} == configs
    done = {
        "partition": {"filename": str(pipeline.source)},
        "offset": {"position": pipeline.source.stat().st_size},
    }
    committed = lambda: after.get(f"/connectors/{pipeline.topic}-source/offsets")["offsets"]
    wait_until(lambda: committed() == [done], "the source's position to be committed")
