"""Source and sink tasks against a real broker: nothing is lost by kill -9, stops commit, offsets are Kafka's."""

import asyncio
import collections
import os
import random
import signal

import pytest
from support.broker import broker, new_name, new_topic  # noqa: F401
from support.connect_worker import free_port
from support.runtime import Watched, install_plugins, task_spec, wait_for, worker_props
from support.runtime_broker import fill, read_all, reader, sink_lines, stored_offsets, whole_lines

from klamm.connect.model import Kind, State, TaskId
from klamm.connect.settings.restart_policy import RestartPolicy

R, X, F = State.RUNNING, State.RESTARTING, State.FAILED
# Tests kill more often than a budget for daily life allows.
PATIENT = RestartPolicy(max_restarts=100, backoff_ms=50, backoff_max_ms=100)


@pytest.fixture(autouse=True)
def plugin_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", install_plugins(tmp_path / "site"))


@pytest.fixture
def offsets_topic(broker):  # noqa: F811
    return new_topic(broker, 25, {"cleanup.policy": "compact"}, name=new_name("offsets"))


async def test_a_graceful_stop_commits_all_and_the_next_start_goes_on_there(broker, offsets_topic):  # noqa: F811
    topic = new_topic(broker)
    # The interval is a minute: only the stop can have committed.
    worker = worker_props(
        broker.bootstrap, **{"offset.storage.topic": offsets_topic, "offset.flush.interval.ms": "60000"}
    )
    async with Watched() as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        task = TaskId(new_name("src"), 0)
        for limit, count in ((1_000, 1_000), (2_500, 1_500)):
            spec = task_spec(task.connector, {"topic": topic, "limit": str(limit)}, worker=worker)
            await w.supervisor.start_task(spec)
            await wait_for(
                lambda n=count: (
                    (p := w.supervisor.progress(task)) and (p.records, p.waiting_for) == (n, "input")
                ),
                lambda: str(w.progress),
            )
            await w.supervisor.stop_task(task)
            key = f'["{task.connector}",{{"task":"0"}}]'.encode()
            assert stored_offsets(broker.bootstrap, offsets_topic) == {key: {"n": limit}}
    values = [int(m.value()) for m in await asyncio.to_thread(read_all, broker.bootstrap, topic)]
    assert values == list(range(2_500)), "nothing lost, nothing twice"
    assert topic in w.last(task).topics


async def test_offsets_land_in_javas_partition(broker, offsets_topic):  # noqa: F811
    worker = worker_props(broker.bootstrap, **{"offset.storage.topic": offsets_topic})
    topic = new_topic(broker)
    async with Watched() as w:
        await w.supervisor.start_task(task_spec("src", {"topic": topic, "limit": "1"}, worker=worker))
        await w.wait_state(TaskId("src", 0), R)
        await wait_for(
            lambda: (p := w.progress.get(TaskId("src", 0))) and p.records == 1, lambda: str(w.progress)
        )
    (message,) = read_all(broker.bootstrap, offsets_topic)
    assert message.key() == b'["src",{"task":"0"}]'
    assert message.value() == b'{"n":1}'
    assert message.partition() == java_partition(message.key(), 25)


def java_partition(key, count):
    """Computes the partition of Java's default partitioner, independently of librdkafka."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    for i in range(0, len(key) // 4 * 4, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = key[len(key) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % count


def test_the_partitioner_written_down_here_agrees_with_kafkas_recording():
    assert java_partition(b'["src",{"filename":"/x"}]', 1) == 0
    # From a topic that Apache Kafka Connect wrote: status-connector-snk in partition 4 of 5.
    assert java_partition(b"status-connector-snk", 5) == 4
    assert java_partition(b"status-connector-stp", 5) == 4


async def test_kill_9_of_a_source_task_under_load_loses_nothing(broker, offsets_topic):  # noqa: F811
    topic, total = new_topic(broker, 3), 24_000
    worker = worker_props(
        broker.bootstrap, **{"offset.storage.topic": offsets_topic, "offset.flush.interval.ms": "50"}
    )
    rng = random.Random(7)
    async with Watched(PATIENT) as w:
        w.offsets = reader(broker.bootstrap, offsets_topic)
        task = TaskId(new_name("src"), 0)
        config = {"topic": topic, "limit": str(total), "batch": "300", "pace.s": "0.01"}
        await w.supervisor.start_task(task_spec(task.connector, config, worker=worker))
        kills = 0
        while kills < 3:
            await w.wait_state(task, R)
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            if (pid := w.supervisor.pid(task)) is not None:
                os.kill(pid, signal.SIGKILL)
                kills += 1
                await w.wait_state(task, X)
        key = f'["{task.connector}",{{"task":"0"}}]'.encode()
        await wait_for(
            lambda: stored_offsets(broker.bootstrap, offsets_topic).get(key) == {"n": total},
            lambda: str(w.events[-5:]),
        )
    assert [e.attempt for e in w.events if e.state is X] == [1, 2, 3]
    counts = collections.Counter(int(m.value()) for m in read_all(broker.bootstrap, topic))
    assert sorted(counts) == list(range(total)), "at least once: every record is there"


async def test_a_sink_delivers_in_order_commits_on_stop_and_goes_on_there(broker, tmp_path):  # noqa: F811
    topic, out = new_topic(broker, 2), tmp_path / "out"
    fill(broker.bootstrap, topic, [f"a{n}" for n in range(1_000)], partitions=2)
    worker = worker_props(broker.bootstrap, **{"offset.flush.interval.ms": "60000"})
    async with Watched() as w:
        name = new_name("snk")
        task = TaskId(name, 0)
        spec = task_spec(name, {"topics": topic, "file": str(out)}, kind=Kind.SINK, worker=worker)
        await w.supervisor.start_task(spec)
        await wait_for(lambda: (p := w.progress.get(task)) and p.records == 1_000, lambda: str(w.progress))
        await wait_for(lambda: w.progress[task].lag == 0, lambda: str(w.progress))
        await w.supervisor.stop_task(task)
        assert len(sink_lines(out)) == 1_000
        fill(broker.bootstrap, topic, [f"b{n}" for n in range(10)], partitions=2)
        await w.supervisor.start_task(spec)
        await wait_for(
            lambda: w.supervisor.progress(task) and w.supervisor.progress(task).records == 10,
            lambda: str(w.progress),
        )
        await w.supervisor.stop_task(task)
    lines = sink_lines(out)
    assert len(lines) == 1_010
    for partition in (0, 1):
        assert [o for _, p, o, _ in lines if p == partition] == list(range(505))
    assert topic in w.last(task).topics


async def test_a_sink_reads_the_topics_that_match_as_java_reads_the_pattern_also_new_ones(broker, tmp_path):  # noqa: F811
    stem, out = new_name("log"), tmp_path / "out"
    for name in ("1", "x"):
        fill(broker.bootstrap, new_topic(broker, name=f"{stem}-{name}"), [f"in {name}"])
    config = {
        "topics.regex": stem + r"-\d+", "file": str(out), "consumer.override.metadata.max.age.ms": "100",
    }  # fmt: skip
    async with Watched() as w:
        spec = task_spec(new_name("snk"), config, kind=Kind.SINK, worker=worker_props(broker.bootstrap))
        await w.supervisor.start_task(spec)
        await wait_for(lambda: sink_lines(out), lambda: str(w.events), 60)
        fill(broker.bootstrap, new_topic(broker, name=f"{stem}-22"), ["in 22"])
        await wait_for(lambda: len(sink_lines(out)) == 2, lambda: str(w.events), 60)
        await w.supervisor.stop_task(spec.id)
    assert [(topic, value) for topic, _, _, value in sink_lines(out)] == [
        (f"{stem}-1", "in 1"),
        (f"{stem}-22", "in 22"),
    ]


async def test_kill_9_of_a_sink_task_loses_nothing(broker, tmp_path):  # noqa: F811
    topic, out, total = new_topic(broker), tmp_path / "out", 20_000
    fill(broker.bootstrap, topic, [str(n) for n in range(total)])
    worker = worker_props(broker.bootstrap, **{"consumer.session.timeout.ms": "6000"})
    async with Watched(PATIENT) as w:
        name = new_name("snk")
        task = TaskId(name, 0)
        spec = task_spec(name, {"topics": topic, "file": str(out)}, kind=Kind.SINK, worker=worker)
        await w.supervisor.start_task(spec)
        await wait_for(lambda: sink_lines(out), lambda: str(w.progress), 60)
        os.kill(w.supervisor.pid(task), signal.SIGKILL)
        await w.wait_states(task, R, X, R)
        fill(broker.bootstrap, topic, ["last"])
        await wait_for(lambda: '"last"]\n' in out.read_text(), lambda: f"{w.events}", 60)
    assert {v for *_, v in whole_lines(out)} >= {str(n) for n in range(total)} | {"last"}


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
async def test_a_sink_with_offsets_of_its_own_begins_where_it_says(broker, tmp_path, strategy):  # noqa: F811
    topic, out = new_topic(broker, 2), tmp_path / "out"
    fill(broker.bootstrap, topic, [str(n) for n in range(100)], partitions=2)
    worker = worker_props(broker.bootstrap, **{"consumer.partition.assignment.strategy": strategy})
    async with Watched() as w:
        name = new_name("snk")
        config = {"topics": topic, "file": str(out), "begin": "40", "pause": "1"}
        await w.supervisor.start_task(task_spec(name, config, kind=Kind.SINK, worker=worker))
        task = TaskId(name, 0)
        await wait_for(lambda: (p := w.progress.get(task)) and p.records >= 10, lambda: str(w.events), 60)
        await w.supervisor.stop_task(task)
        assert R in w.states(task)
        assert F not in w.states(task)
    assert [(p, o) for _, p, o, _ in sink_lines(out)] == [(0, o) for o in range(40, 50)]


async def test_a_busy_sink_gets_the_same_batch_again(broker, tmp_path):  # noqa: F811
    topic, out = new_topic(broker), tmp_path / "out"
    fill(broker.bootstrap, topic, [str(n) for n in range(100)])
    async with Watched() as w:
        name = new_name("snk")
        config = {
            "topics": topic, "file": str(out),
            "behaviour": "retriable", "where": "put", "once": str(tmp_path / "once"),
        }  # fmt: skip
        await w.supervisor.start_task(
            task_spec(name, config, kind=Kind.SINK, worker=worker_props(broker.bootstrap))
        )
        task = TaskId(name, 0)
        await wait_for(lambda: (p := w.progress.get(task)) and p.records == 100, lambda: str(w.events), 60)
        assert w.states(task) == [R]
    assert [v for *_, v in sink_lines(out)] == [str(n) for n in range(100)]


async def test_a_failed_flush_rewinds_and_delivers_again(broker, tmp_path):  # noqa: F811
    topic, out = new_topic(broker), tmp_path / "out"
    fill(broker.bootstrap, topic, [str(n) for n in range(100)])
    async with Watched() as w:
        name = new_name("snk")
        config = {
            "topics": topic, "file": str(out),
            "behaviour": "connect", "where": "flush", "once": str(tmp_path / "once"),
        }  # fmt: skip
        await w.supervisor.start_task(
            task_spec(name, config, kind=Kind.SINK, worker=worker_props(broker.bootstrap))
        )
        task = TaskId(name, 0)
        await wait_for(lambda: (p := w.progress.get(task)) and p.records >= 200, lambda: str(w.progress), 60)
        await w.supervisor.stop_task(task)
        assert F not in w.states(task)
    assert collections.Counter(v for *_, v in sink_lines(out)) == {str(n): 2 for n in range(100)}


async def test_a_poison_record_fails_the_sink_at_once_and_its_place_is_named(broker, tmp_path):  # noqa: F811
    topic = new_topic(broker)
    fill(broker.bootstrap, topic, [b'{"ok": 1}', b"line of text"])
    worker = worker_props(
        broker.bootstrap,
        **{
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        },
    )
    async with Watched() as w:
        name = new_name("snk")
        config = {"topics": topic, "file": str(tmp_path / "out")}
        await w.supervisor.start_task(task_spec(name, config, kind=Kind.SINK, worker=worker))
        await w.wait_states(TaskId(name, 0), R, F)
        first, *rest = w.last(TaskId(name, 0)).trace.splitlines()
        said = "ConnectError: Tolerance exceeded in error handler: Error in stage VALUE_CONVERTER for topic"
        assert f"{said} {topic}, partition 0, offset 1: " in first
        cause = next(line for line in rest if line.startswith("Caused by: "))
        assert f"VALUE_CONVERTER for topic {topic}, partition 0, offset 1" in cause


async def test_two_sink_tasks_share_a_topic_and_take_over_from_each_other(broker, tmp_path):  # noqa: F811
    topic = new_topic(broker, 4)
    name = new_name("snk")
    worker = worker_props(broker.bootstrap, **{"consumer.heartbeat.interval.ms": "300"})
    async with Watched() as w:
        outs = [tmp_path / "0", tmp_path / "1"]
        for n in (0, 1):
            config = {"topics": topic, "file": str(outs[n])}
            await w.supervisor.start_task(task_spec(name, config, kind=Kind.SINK, worker=worker, number=n))
        sent = 0

        def feed():
            nonlocal sent
            fill(broker.bootstrap, topic, [str(n) for n in range(sent, sent + 8)], partitions=4)
            sent += 8
            return all(sink_lines(out) for out in outs)

        await wait_for(feed, lambda: "one task has everything", 60)
        await w.supervisor.stop_task(TaskId(name, 0))
        fill(broker.bootstrap, topic, ["after"] * 4, partitions=4)
        await wait_for(
            lambda: [v for *_, v in sink_lines(outs[1])].count("after") == 4, lambda: "not taken over"
        )
    seen = collections.Counter(v for out in outs for *_, v in sink_lines(out))
    assert set(seen) == {str(n) for n in range(sent)} | {"after"}
    assert seen["after"] == 4


@pytest.mark.usefixtures("processes")
async def test_a_source_waits_out_a_broker_that_is_away(tmp_path):
    from klamm.testing import EmbeddedBroker

    data = tmp_path / "data"
    port = free_port()
    first = EmbeddedBroker(data, port=port)
    first.__enter__()
    try:
        topic = new_topic(first)
        worker = worker_props(first.bootstrap)
        async with Watched() as w:
            task = TaskId("src", 0)
            await w.supervisor.start_task(
                task_spec("src", {"topic": topic, "pace.s": "0.02", "batch": "50"}, worker=worker)
            )
            await wait_for(lambda: (p := w.progress.get(task)) and p.records > 0, lambda: str(w.progress), 60)
            first.__exit__(None, None, None)
            at = w.progress[task].records
            first = EmbeddedBroker(data, port=port)
            first.__enter__()
            await wait_for(lambda: w.progress[task].records > at + 500, lambda: str(w.progress), 60)
            assert w.states(task) == [R]
            await w.supervisor.stop_task(task)
        values = [int(m.value()) for m in read_all(first.bootstrap, topic)]
        assert sorted(set(values)) == list(range(max(values) + 1)), "no gap"
    finally:
        first.__exit__(None, None, None)
