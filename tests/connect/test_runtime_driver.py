"""Driver tasks under the supervisor, against a real broker: orders, offsets, signs of life, kills."""

import asyncio
import collections
import json
import os
import signal
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.connect_worker import free_port
from support.runtime import (
    DRIVER_SINK,
    DRIVER_SOURCE,
    QUICK,
    Watched,
    alive,
    connector_spec,
    install_plugins,
    task_spec,
    wait_for,
    worker_props,
)
from support.runtime_broker import fill, read_all, reader, sink_lines, stored_offsets

from klamm.connect.herding.assignment import Assignment
from klamm.connect.herding.task_requests import TaskRequests
from klamm.connect.model import Kind, State, TaskId
from klamm.connect.settings.restart_policy import RestartPolicy
from klamm.connect.topics.config_topic import ConfigState
from klamm.connect.topics.kafka_log import LogProducer

pytestmark = pytest.mark.usefixtures("processes")

R, P, X, F = State.RUNNING, State.PAUSED, State.RESTARTING, State.FAILED
PATIENT = RestartPolicy(max_restarts=100, backoff_ms=50, backoff_max_ms=100)


@pytest.fixture(autouse=True)
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


@pytest.fixture
def offsets_topic(broker):  # noqa: F811
    return new_topic(broker, 5, {"cleanup.policy": "compact"}, name=new_name("offsets"))


class Worker(Watched):
    """A supervisor whose worker writes the offsets of source tasks, as a whole one does."""

    def __init__(self, bootstrap, offsets, policy=QUICK):
        super().__init__(policy)
        self._writer = LogProducer({"bootstrap.servers": bootstrap, "message.timeout.ms": 500})
        log = SimpleNamespace(topic=offsets)
        self.supervisor._requests = TaskRequests(
            configs=ConfigState(), config_log=log, offset_log=log, producer=self._writer, fence=None,
            assigned=Assignment,
        ).answers  # fmt: skip

    async def __aexit__(self, *error):
        await super().__aexit__(*error)
        await self._writer.close()


def source(broker, offsets, name, **config):  # noqa: F811
    given = {key.replace("__", "."): value for key, value in config.items()}
    worker = worker_props(broker.bootstrap, **{"offset.storage.topic": offsets})
    return task_spec(name, given, plugin=DRIVER_SOURCE, worker=worker)


async def reached(w, task, count, waiting_for=""):
    def there():
        progress = w.supervisor.progress(task)
        return (
            progress is not None and progress.records >= count and waiting_for in {progress.waiting_for, ""}
        )

    await wait_for(there, lambda: f"{w.progress} {w.events}", 60)


async def test_a_driver_runs_pauses_stops_and_goes_on_from_its_offset(broker, offsets_topic, tmp_path):  # noqa: F811
    topic, stopped = new_topic(broker), tmp_path / "stopped"
    task = TaskId(new_name("drv"), 0)
    async with Worker(broker.bootstrap, offsets_topic) as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        config = {"topic": topic, "limit": "300", "task__stopped__file": str(stopped)}
        await w.supervisor.start_task(source(broker, offsets_topic, task.connector, **config))
        await reached(w, task, 300, waiting_for="input")
        progress = w.supervisor.progress(task)
        assert (progress.lag, progress.waiting_for, progress.details) == (0, "input", {"at": 300})
        assert progress.last_ack_ms is not None
        assert w.states(task) == [R]
        assert w.last(task).topics == [topic]
        assert w.last(task).version == "7.8"

        await w.supervisor.set_paused(task, True)
        await w.wait_states(task, R, P)
        await w.supervisor.set_paused(task, False)
        await w.wait_states(task, R, P, R)

        await w.supervisor.stop_task(task)
        assert stopped.exists()
        await w.supervisor.start_task(
            source(broker, offsets_topic, task.connector, **config | {"limit": "500"})
        )
        await reached(w, task, 200)
        await w.supervisor.stop_task(task)
        assert F not in w.states(task)
    key = f'["{task.connector}",{{"task":"0"}}]'.encode()
    assert stored_offsets(broker.bootstrap, offsets_topic) == {key: {"n": 500}}
    assert [int(m.value()) for m in read_all(broker.bootstrap, topic)] == list(range(500))


async def test_one_that_begins_paused_does_nothing_until_it_is_resumed(broker, offsets_topic):  # noqa: F811
    topic, task = new_topic(broker), TaskId(new_name("drv"), 0)
    spec = source(broker, offsets_topic, task.connector, topic=topic, limit="10")
    async with Worker(broker.bootstrap, offsets_topic) as w:
        await w.supervisor.start_task(type(spec).from_json(spec.to_json() | {"paused": True}))
        await w.wait_states(task, P)
        assert read_all(broker.bootstrap, topic) == []
        await w.supervisor.set_paused(task, False)
        await reached(w, task, 10)
        assert w.states(task) == [P, R]


async def test_one_that_has_returned_stays_running_and_follows_orders(broker, offsets_topic):  # noqa: F811
    topic, task = new_topic(broker), TaskId(new_name("drv"), 0)
    spec = source(broker, offsets_topic, task.connector, topic=topic, limit="10", returns="1")
    async with Worker(broker.bootstrap, offsets_topic) as w:
        await w.supervisor.start_task(spec)
        await wait_for(
            lambda: (p := w.supervisor.progress(task)) and p.waiting_for == "done", lambda: str(w.progress)
        )
        assert w.supervisor.progress(task).records == 10
        await w.supervisor.set_paused(task, True)
        await w.wait_states(task, R, P)
        await w.supervisor.set_paused(task, False)
        await w.wait_states(task, R, P, R)
        await w.supervisor.stop_task(task)
        assert w.states(task) == [R, P, R, State.UNASSIGNED]


@pytest.mark.parametrize(("behaviour", "error"), [("data", "DataError"), ("config", "ConfigError")])
async def test_a_driver_that_fails_for_good_is_failed_with_its_trace(broker, offsets_topic, behaviour, error):  # noqa: F811
    task = TaskId(new_name("drv"), 0)
    spec = source(broker, offsets_topic, task.connector, topic="t", behaviour=behaviour, where="run")
    async with Worker(broker.bootstrap, offsets_topic) as w:
        await w.supervisor.start_task(spec)
        await w.wait_states(task, R, F)
        assert error in w.last(task).trace
        assert "at run (" in w.last(task).trace


async def test_another_failure_is_followed_by_a_restart(broker, offsets_topic, tmp_path):  # noqa: F811
    topic, task = new_topic(broker), TaskId(new_name("drv"), 0)
    once = {"behaviour": "unknown", "where": "run", "once": str(tmp_path / "once")}
    async with Worker(broker.bootstrap, offsets_topic) as w:
        await w.supervisor.start_task(
            source(broker, offsets_topic, task.connector, topic=topic, limit="10", **once)
        )
        await reached(w, task, 10)
        assert w.states(task) == [R, X, R]


async def test_a_silent_driver_is_killed_with_what_it_started(broker, offsets_topic, tmp_path):  # noqa: F811
    task, pid_file = TaskId(new_name("drv"), 0), tmp_path / "pid"
    config = {"topic": "t", "behaviour": "sleep", "where": "run"}
    # Longer than it takes to start: that is silent, too.
    silent = source(broker, offsets_topic, task.connector, **config, task__heartbeat__timeout__ms="5000")
    async with Worker(broker.bootstrap, offsets_topic, QUICK) as w:
        await w.supervisor.start_task(silent)
        await w.wait_states(task, R, X)
        assert "No sign of life for 5 s" in w.last(task).trace
        await w.supervisor.stop_task(task)
    config = {"topic": "t", "behaviour": "grandchild", "where": "start", "pid__file": str(pid_file)}
    parent = source(broker, offsets_topic, task.connector, **config)
    async with Worker(broker.bootstrap, offsets_topic, QUICK) as w:
        await w.supervisor.start_task(parent)
        await wait_for(pid_file.exists, lambda: "nothing was started")
        pid = int(await wait_for(pid_file.read_text, lambda: "no pid"))
        os.kill(w.supervisor.pid(task), signal.SIGKILL)
        await wait_for(lambda: not alive(pid), lambda: "the driver's process lives")


async def test_kill_9_of_a_driver_goes_on_from_the_committed_offset(broker, offsets_topic):  # noqa: F811
    topic, task, total = new_topic(broker), TaskId(new_name("drv"), 0), 2_000
    config = {"topic": topic, "limit": str(total), "pace__s": "0.02"}
    key = f'["{task.connector}",{{"task":"0"}}]'.encode()
    async with Worker(broker.bootstrap, offsets_topic, PATIENT) as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        await w.supervisor.start_task(source(broker, offsets_topic, task.connector, **config))
        for _ in range(3):
            await wait_for(lambda: w.supervisor.pid(task), lambda: str(w.events))
            before = w.states(task).count(X)
            os.kill(w.supervisor.pid(task), signal.SIGKILL)
            await wait_for(lambda n=before: w.states(task).count(X) > n, lambda: str(w.events))
            await w.wait_state(task, R)
            await asyncio.sleep(0.2)  # it works for a while before it is killed
        await wait_for(
            lambda: stored_offsets(broker.bootstrap, offsets_topic).get(key) == {"n": total},
            lambda: str(w.events),
        )
    counts = collections.Counter(int(m.value()) for m in read_all(broker.bootstrap, topic))
    assert sorted(counts) == list(range(total))
    assert max(counts.values()) <= 4, "only the batch that was under way comes again"


async def test_a_sinks_driver_keeps_its_offsets_in_the_group(broker, tmp_path):  # noqa: F811
    topic, out = new_topic(broker), tmp_path / "out"
    name = new_name("drv")
    task = TaskId(name, 0)
    fill(broker.bootstrap, topic, [f"a{n}" for n in range(100)])
    spec = task_spec(
        name, {"topics": topic, "file": str(out)},
        kind=Kind.SINK, plugin=DRIVER_SINK, worker=worker_props(broker.bootstrap),
    )  # fmt: skip
    async with Watched() as w:
        await w.supervisor.start_task(spec)
        await reached(w, task, 100)
        assert group_offsets(broker.bootstrap, f"connect-{name}") == {(topic, 0): 100}
        await w.supervisor.stop_task(task)
        fill(broker.bootstrap, topic, [f"b{n}" for n in range(10)])
        await w.supervisor.start_task(spec)
        await reached(w, task, 10)
        assert w.last(task).topics == [topic]
        os.kill(w.supervisor.pid(task), signal.SIGKILL)
        await w.wait_state(task, X)
        fill(broker.bootstrap, topic, ["c"])
        await wait_for(lambda: '"c"]\n' in out.read_text(), lambda: str(w.events))
    assert [o for o, _ in sink_lines(out)] == list(range(111))


def group_offsets(bootstrap, group):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {(p.topic, p.partition): p.offset for p in answer.topic_partitions}


async def test_offsets_that_are_none_are_refused_in_a_sentence(broker, monkeypatch):  # noqa: F811
    from support.runtime_fakes import RecordingControl

    from klamm.connect.child.driver_offsets import GroupOffsets, TopicOffsets
    from klamm_plugins.errors import ConnectError

    control = RecordingControl()
    try:
        spec = task_spec("d", {"topics": "t"}, worker=worker_props(broker.bootstrap))
        group = GroupOffsets(control, spec)
        for partition, offset, said in [
            ({"topic": "t"}, {"kafka_offset": 1}, "kafka_topic"),
            ({"kafka_topic": "t", "kafka_partition": 0}, None, "kafka_offset"),
            ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": -1}, "kafka_offset"),
        ]:
            with pytest.raises(ConnectError, match=said):
                group.commit([(partition, offset)])
        with pytest.raises(ConnectError, match="can hold only JSON values"):
            TopicOffsets(control, spec).commit([({"p": 1}, {"n": object()})])
    finally:
        control.close()


async def test_a_worker_gives_offsets_up_that_no_broker_takes():
    worker = Worker(f"127.0.0.1:{free_port()}", "offs")
    async with worker:
        write = worker.supervisor._requests["write_offsets"]
        assert await write({"records": [('["d",{"p":1}]', '{"n":1}')]}) is False


def test_a_task_repeats_offsets_that_its_worker_gave_up(monkeypatch):
    from support.runtime_fakes import RecordingControl

    from klamm.connect.child.driver_offsets import TopicOffsets

    control, asked, answers = RecordingControl(), [], [False, True]

    def ask(method, params):
        asked.append((method, params["records"]))
        answer = Future()
        answer.set_result(answers[len(asked) - 1])
        return answer

    try:
        monkeypatch.setattr(control, "ask", ask)
        offsets = TopicOffsets(control, task_spec("d", {}, worker=worker_props("127.0.0.1:1")))
        offsets.commit([({"p": 1}, {"n": 1}), ({"p": 2}, None)])
        assert asked == [("write_offsets", [('["d",{"p":1}]', '{"n":1}'), ('["d",{"p":2}]', None)])] * 2
    finally:
        control.close()


async def test_a_commit_waits_for_a_broker_that_is_away(tmp_path):
    from klamm.testing import EmbeddedBroker

    port = free_port()
    first = EmbeddedBroker(tmp_path / "data", port=port)
    first.__enter__()
    try:
        topic = new_topic(first)
        offsets = new_topic(first, 1, {"cleanup.policy": "compact"}, name="offs")
        task = TaskId("drv", 0)
        async with Worker(first.bootstrap, offsets) as w:
            await w.supervisor.start_task(
                source(first, offsets, "drv", topic=topic, pace__s="0.02", batch="10")
            )
            await reached(w, task, 50)
            first.__exit__(None, None, None)
            at = w.progress[task].records
            first = EmbeddedBroker(tmp_path / "data", port=port)
            first.__enter__()
            await reached(w, task, at + 100)
            await w.supervisor.stop_task(task)
            assert F not in w.states(task)
            assert X not in w.states(task)
        (stored,) = stored_offsets(first.bootstrap, offsets).values()
        values = [int(m.value()) for m in read_all(first.bootstrap, topic)]
        assert sorted(set(values)) == list(range(max(values) + 1))
        assert stored["n"] <= max(values) + 1
    finally:
        first.__exit__(None, None, None)


async def test_a_sinks_commit_shows_life_while_the_broker_is_away_and_ends_with_the_task(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from support.runtime_fakes import RecordingControl

    from klamm.connect.child.driver_offsets import GroupOffsets
    from klamm.testing import EmbeddedBroker
    from klamm_plugins.errors import RetriableError

    control = RecordingControl()
    group = None
    place = {"kafka_topic": "t", "kafka_partition": 0}
    try:
        with EmbeddedBroker(tmp_path / "data") as mine:
            new_topic(mine, name="t")
            spec = task_spec("d", {"topics": "t"}, worker=worker_props(mine.bootstrap), kind=Kind.SINK)
            group = GroupOffsets(control, spec)
            group.commit([(place, {"kafka_offset": 1})])
            assert group.read([place]) == [{"kafka_offset": 1}]

        def commit():
            with pytest.raises(RetriableError) as e:
                group.commit([(place, {"kafka_offset": 2})])
            return str(e.value)

        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(commit)
            beats = control.vitals.beats
            try:
                await wait_for(
                    lambda: control.vitals.beats > beats + 5, lambda: f"{control.vitals.report()}", 60
                )
            finally:
                control.ask_to_stop(0.0)
            said = committing.result(60)
        assert said == "Offsets of group connect-d could not be committed before the task had to stop"
    finally:
        if group is not None:
            group.close()
        control.close()


async def test_a_connector_names_the_class_of_its_drivers_for_the_tasks():
    spec = connector_spec("c", {"connector.class": DRIVER_SOURCE})
    async with Watched() as w:
        await w.supervisor.start_connector(spec)
        (config,) = await w.supervisor.task_configs("c", 1)
    assert config["task.class"] == "support.runtime_plugins.CountingDriver"
    assert json.loads(json.dumps(config)) == config
