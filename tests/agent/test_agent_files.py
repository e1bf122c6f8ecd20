"""The content of files, through a whole agent: stack traces, containers, UTF-16, archives, and the order of old files."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from agent.harness import AgentProcess, arrived
from confluent_kafka import Consumer, TopicPartition
from support.broker import new_topic, wait_until

from klamm_agent.config.braces import braces
from klamm_agent.config.inputs import Input
from klamm_agent.files.open_files import OpenFiles
from klamm_agent.files.scan import Scanner
from klamm_agent.files.tracked import Limits
from klamm_agent.files.tracker import Tracker


@pytest.fixture
def agent(tmp_path, broker):
    agents = []

    def make(topic, **options):
        agents.append(AgentProcess(tmp_path / f"agent{len(agents)}", broker.bootstrap, topic, **options))
        return agents[-1]

    yield make
    for each in agents:
        each.close()


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Returns values of the first `count` records of a topic of one partition, in their order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"read-{topic}", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    try:
        while len(found) < count and time.monotonic() < deadline:
            found += [m.value() for m in consumer.consume(1000, 0.2) if not m.error()]
    finally:
        consumer.close()
    return found


TRACE = 'ERROR no\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: {}\n'


def test_traces_containers_and_wide_text_in_one_agent(agent, broker):
    lines, pods, wide = (new_topic(broker, 1) for _ in range(3))
    a = agent(
        lines,
        more=f"""multiline = {{ preset = "python", timeout = "10m" }}
[[inputs]]
paths = ["pods/*/*/*.log"]
topic = "{pods}"
container = "auto"
format = "json"
[[inputs]]
paths = ["wide/*.{{txt,text}}"]
topic = "{wide}"
encoding = "utf-16"
""",
    )
    a.config.write_text(a.config.read_text().replace('"1500ms"', '"10m"'))  # nothing is final for now
    (a.folder / "logs").mkdir()
    log = a.folder / "logs/x.log"
    log.write_text("INFO start\n" + TRACE.format(1)[:40])
    pod = a.folder / "pods/shop_web-1_0a1b/app/0.log"
    pod.parent.mkdir(parents=True)
    rows = ["stdout P hel", "stderr F oops", "stdout F lo"]
    pod.write_text("".join(f"2026-01-01T00:00:0{i}.5Z {row}\n" for i, row in enumerate(rows)))
    (a.folder / "wide").mkdir()
    (a.folder / "wide/x.text").write_bytes("wörter\r\n😀\n".encode("utf-16"))
    a.start()
    assert values(broker.bootstrap, lines, 1) == [b"INFO start"]
    with log.open("a") as file:
        file.write(TRACE.format(1)[40:])
        file.flush()
        a.kill()  # while the trace is held back
        file.write("INFO two\n" + TRACE.format(2))
    a.config.write_text(a.config.read_text().replace('timeout = "10m"', 'timeout = "300ms"'))
    a.start()
    expected = [b"INFO start", TRACE.format(1)[:-1].encode(), b"INFO two", TRACE.format(2)[:-1].encode()]
    found = values(broker.bootstrap, lines, len(expected))
    assert list(dict.fromkeys(found)) == expected[: len(set(found))]
    a.caught_up()
    documents = [json.loads(v) for v in values(broker.bootstrap, pods, 2)][:2]
    assert [(d["message"], d["@timestamp"], d["stream"]) for d in documents] == [
        ("hello", "2026-01-01T00:00:00.500Z", "stdout"),
        ("oops", "2026-01-01T00:00:01.500Z", "stderr"),
    ]
    assert documents[0]["kubernetes"]["pod"] == {"name": "web-1", "uid": "0a1b"}
    assert values(broker.bootstrap, wide, 2)[:2] == ["wörter".encode(), "😀".encode()]
    assert a.stop() == 0
    assert set(values(broker.bootstrap, lines, len(expected))) <= set(expected)


def pack(path: Path) -> None:
    """Packs as gzip does."""
    there = path.stat()
    target = path.with_name(path.name + ".gz")
    with gzip.open(target, "wb", 1) as packed:
        packed.write(path.read_bytes())
    os.utime(target, ns=(there.st_atime_ns, there.st_mtime_ns))
    path.unlink()


def test_a_rotation_to_an_archive_while_the_agent_is_away(agent, broker):
    topic = new_topic(broker, 1)
    a = agent(topic, more='exclude = []\n[[inputs]]\npaths = ["logs/*.gz"]\ntopic = "' + topic + '"')
    folder = a.folder / "logs"
    folder.mkdir()
    (folder / "x.log").write_text("".join(f"r-{i:06d} {'x' * 40}\n" for i in range(2000)))
    a.start()
    a.has_acknowledged(folder / "x.log")
    assert a.stop() == 0
    with (folder / "x.log").open("a") as file:
        file.write("".join(f"r-{i:06d} {'x' * 40}\n" for i in range(2000, 3000)))
    (folder / "x.log").rename(folder / "x.log.1")
    pack(folder / "x.log.1")
    (folder / "x.log").write_text("".join(f"r-{i:06d} new\n" for i in range(3000, 3100)))
    a.start()
    wait_until(lambda: a.status().get("acked", 0) >= 1100, "the rest and the new file")
    a.caught_up()
    assert a.stop() == 0
    found = arrived(broker.bootstrap, topic)
    assert len(found) == 3100
    assert set(found.values()) == {1}
    assert not (a.state / "gaps.jsonl").exists()


def test_random_rotations_with_archives_and_kills_lose_nothing(agent, broker):
    topic = new_topic(broker, 2)
    a = agent(
        topic,
        more=f'multiline = "python"\n[[inputs]]\npaths = ["logs/**/*.log.*"]\ntopic = "{topic}"\nmultiline = "python"',
    )
    folder = a.folder / "logs"
    folder.mkdir()
    path, rng = folder / "x.log", random.Random(7)
    a.start()
    count = rotations = 0
    for step in range(150):
        with path.open("a") as file:
            for _ in range(rng.randint(1, 400)):
                trace = (
                    f'\nTraceback (most recent call last):\n  File "a.py", line {count}\nValueError: x'
                    if count % 50 == 0
                    else ""
                )
                file.write(f"k-{count:08d} ERROR {'y' * 60}{trace}\n")
                count += 1
        if rng.random() < 0.3:
            rotations += 1
            path.rename(folder / f"x.log.{rotations}")
        for old in sorted(folder.glob("x.log.*[0-9]"))[:-1]:
            if rng.random() < 0.3:
                pack(old)
        if step % 40 == 20:
            a.process.send_signal(signal.SIGKILL)
            a._ended()
            a.start()
        time.sleep(rng.random() * 0.1)
    a.caught_up(timeout_s=90)
    assert a.stop() == 0
    found = arrived(broker.bootstrap, topic)
    assert {f"k-{i:08d}" for i in range(count)} - found.keys() == set()
    assert set(found) - {f"k-{i:08d}" for i in range(count)} == set(), "no line of a trace stands by itself"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("x/{a,b{1,2}}.{log,txt}", [f"x/{n}.{e}" for n in ("a", "b1", "b2") for e in ("log", "txt")]),
        ("{a}", ["{a}"]),
        ("a}b{c,d", ["a}b{c,d"]),
        ("a{,.1}", ["a", "a.1"]),
    ],
)
def test_braces(pattern, expected):
    assert braces(pattern) == expected


def world(folder: Path, order: str, most: int = 512) -> tuple[Tracker, Scanner, OpenFiles]:
    def fail(path: str, error: OSError) -> None:
        raise AssertionError(f"{path}: {error}")

    tracker = Tracker([Limits(order=order)])
    return (
        tracker,
        Scanner((Input(paths=(f"{folder}/*",), topic="t"),), fail),
        OpenFiles(tracker, fail, 50, most),
    )


@pytest.mark.parametrize(
    ("order", "expected"), [("oldest_first", "aabbcc"), ("newest_first", "ccbbaa"), ("parallel", "abcabc")]
)
@pytest.mark.parametrize("most", [512, 1])
def test_old_files_are_read_in_the_order_that_is_asked_for(tmp_path, order, expected, most):
    for i, name in enumerate("abc"):
        text = "".join(f"{name} {'x' * 45}\n" for _ in range(2)).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if (name, order) == ("a", "oldest_first") else text)
        os.utime(path, (1000 + i, 1000 + i))
    tracker, scanner, opened = world(tmp_path, order, most)
    read = ""
    for turn in range(20):
        tracker.observe(scanner.scan(), float(turn), 2000.0)
        opened.open_new(float(turn))
        for file in opened.changed(float(turn)):
            if (block := opened.read(file, float(turn))) is not None:
                read += block.data[:1].decode()
    opened.close_all()
    if most == 1 and order == "parallel":
        expected = "aabbcc"  # the oldest is opened first, and there is room for no other
    assert read == expected
