"""A group of one worker of Klamm and one of Apache's: requests forwarded and signed between them, work shared, either one lost."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.connect_worker import STRING, Response, WorkerProcess, wait_for, worker_properties
from support.kafka_connect import KafkaConnectWorker

pytestmark = pytest.mark.usefixtures("apache_kafka")

PIPES = 3
LINES = 50

Start = Callable[[type[WorkerProcess]], WorkerProcess]


@pytest.fixture
def group() -> str:
    return f"mixed-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def start(bootstrap: str, group: str, tmp_path: Path) -> Iterator[Start]:
    properties = worker_properties(
        bootstrap,
        group,
        **{
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            # A killed worker's sink is a member of its consumer group for that long
            "consumer.session.timeout.ms": "6000",
            "key.converter": STRING,
            "value.converter": STRING,
        },
    )
    workers: list[WorkerProcess] = []

    def start(make: type[WorkerProcess]) -> WorkerProcess:
        workers.append(make(properties, tmp_path))
        return workers[-1].wait_ready(60)

    yield start
    for worker in workers:
        worker.end()


def ask(worker: WorkerProcess, method: str, path: str, body: Any = None) -> Response:
    """Asks Apache's worker again as long as it refuses because its group meets: 409, and 500 where it reads a configuration."""
    answers: list[Response] = []

    def answered() -> bool:
        answers.append(worker.request(method, path, body))
        return answers[-1].status != 409 and b"a rebalance is expected" not in answers[-1].body

    wait_for(answered, lambda: f"{answers[-1].content}\n{worker.log[-3000:]}")
    return answers[-1]


class Pipes:
    """Files into topics into files."""

    def __init__(self, group: str, directory: Path) -> None:
        self.group, self.directory = group, directory
        self.fed: list[str] = []
        self.names = [f"{kind}{i}" for i in range(PIPES) for kind in ("source", "sink")]

    def create(self, worker: WorkerProcess) -> None:
        self.feed()
        for i in range(PIPES):
            topic, source, sink = f"{self.group}-{i}", self.directory / f"in{i}", self.directory / f"out{i}"
            for name, config in (
                (f"source{i}", {"connector.class": "FileStreamSource", "file": str(source), "topic": topic}),
                (f"sink{i}", {"connector.class": "FileStreamSink", "file": str(sink), "topics": topic}),
            ):
                answer = ask(
                    worker, "POST", "/connectors", {"name": name, "config": {"tasks.max": "1", **config}}
                )
                assert answer.status == 201, answer.content

    def feed(self) -> None:
        new = [f"line {len(self.fed) + i}" for i in range(LINES)]
        self.fed += new
        for i in range(PIPES):
            with (self.directory / f"in{i}").open("a") as file:
                file.write("".join(f"{line}\n" for line in new))

    def out(self, i: int) -> list[str]:
        path = self.directory / f"out{i}"
        return path.read_text().splitlines() if path.exists() else []

    def wait_through(self, *workers: WorkerProcess) -> None:
        """Waits until every line has come out, at least once (a worker may have been killed)."""
        wait_for(
            lambda: all({*self.out(i)} >= {*self.fed} for i in range(PIPES)),
            lambda: "\n".join(
                [f"{len({*self.out(i)})} of {len(self.fed)} lines" for i in range(PIPES)]
                + [str(statuses(w)) + "\n" + w.log[-3000:] for w in workers]
            ),
        )


def statuses(worker: WorkerProcess) -> dict[str, Any]:
    """Returns the statuses of connectors that have one: Apache's worker leaves it out for a moment."""
    answer = worker.request("GET", "/connectors?expand=status")
    told = answer.json if answer.status == 200 else {}
    return {name: each["status"] for name, each in told.items() if "status" in each}


def gone(worker: WorkerProcess, name: str) -> bool:
    answer = worker.request("GET", "/connectors")
    return answer.status == 200 and name not in answer.json


def owners(worker: WorkerProcess) -> list[tuple[str, str]]:
    """State and worker of each task."""
    return [(t["state"], t["worker_id"]) for s in statuses(worker).values() for t in s["tasks"]]


def all_run_at(worker: WorkerProcess, *ids: str, timeout_s: float = 60) -> None:
    """Waits until all tasks run, and just these workers have some."""

    def reached() -> bool:
        found = owners(worker)
        return (
            len(found) == 2 * PIPES
            and {state for state, _ in found} == {"RUNNING"}
            and {at for _, at in found} == {*ids}
        )

    wait_for(reached, lambda: f"{owners(worker)}, wanted at {ids}\n{worker.log[-3000:]}", timeout_s)


def worker_id(worker: WorkerProcess) -> str:
    return f"127.0.0.1:{worker.port}"


@pytest.mark.parametrize(
    ("first", "second"),
    [(KafkaConnectWorker, WorkerProcess), (WorkerProcess, KafkaConnectWorker)],
    ids=["Apache's leads", "ours leads"],
)
def test_group_of_both(
    start: Start, group: str, tmp_path: Path, first: type[WorkerProcess], second: type[WorkerProcess]
) -> None:
    leader, follower = start(first), start(second)
    pipes = Pipes(group, tmp_path)
    pipes.create(follower)  # forwarded, and the task configs of what runs at the follower are signed and sent
    all_run_at(leader, worker_id(leader), worker_id(follower))
    all_run_at(follower, worker_id(leader), worker_id(follower))
    pipes.wait_through(leader, follower)

    # What concerns a task of the other worker is forwarded, in both directions
    for asked, other in ((leader, follower), (follower, leader)):
        name = next(n for n, s in statuses(asked).items() if s["tasks"][0]["worker_id"] == worker_id(other))
        answer = ask(asked, "POST", f"/connectors/{name}/tasks/0/restart")
        assert answer.status == 204, answer.content
        answer = ask(asked, "POST", f"/connectors/{name}/restart?includeTasks=true")
        assert answer.status == 202, answer.content
    all_run_at(leader, worker_id(leader), worker_id(follower))
    config = follower.get("/connectors/sink0/config") | {"errors.log.enable": "true"}
    assert ask(follower, "PUT", "/connectors/sink0/config", config).status == 200
    assert ask(leader, "GET", "/connectors/sink0/config").json == config
    pipes.feed()
    pipes.wait_through(leader, follower)
    for asked, other in ((leader, follower), (follower, leader)):
        assert ask(asked, "PUT", "/connectors/sink1/pause").status == 202
        other.wait_state("sink1", "PAUSED", "PAUSED")
        assert ask(other, "PUT", "/connectors/sink1/resume").status == 202
        asked.wait_state("sink1", "RUNNING", "RUNNING")
        assert ask(asked, "PUT", "/connectors/sink1/stop").status == 204
        other.wait_state("sink1", "STOPPED")
        assert ask(asked, "PUT", "/connectors/sink1/resume").status == 202
        other.wait_state("sink1", "RUNNING", "RUNNING")
        extra = {"connector.class": "FileStreamSink", "file": str(tmp_path / "x"), "topics": "x"}
        assert ask(asked, "POST", "/connectors", {"name": "extra", "config": extra}).status == 201
        other.wait_state("extra", "RUNNING", "RUNNING")
        assert ask(other, "DELETE", "/connectors/extra").status == 204
        wait_for(lambda a=asked: gone(a, "extra"), lambda a=asked: a.log[-2000:], 60)
    all_run_at(leader, worker_id(leader), worker_id(follower))

    leader.stop(signal.SIGKILL)
    all_run_at(follower, worker_id(follower))
    pipes.feed()
    pipes.wait_through(follower)
    assert ask(follower, "DELETE", "/connectors/source0").status == 204
    wait_for(lambda: gone(follower, "source0"), lambda: follower.log[-2000:], 60)
