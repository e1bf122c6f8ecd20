"""`klamm mirror offsets`: shown, previewed and set, while the mirror runs and while nothing does."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server, klamm
from support.mirror import committed, mirror_file, produce, read_all, read_as

from klamm.connect.topics.config_topic import TargetState
from klamm.mirror import files
from klamm.mirror.flow import FlowWorker
from klamm.mirror.places import claimed, place_of
from klamm_mirror.settings.mm2_config import SOURCE

pytestmark = pytest.mark.usefixtures("processes")

YESTERDAY_MS = (int(time.time()) - 86_400) * 1000


class Mirror:
    """A flow of one topic between clusters with names of their own."""

    def __init__(self, folder: Path, source: Any, target: Any, partitions: int = 1) -> None:
        a, b = new_name("a"), new_name("b")
        self.flow, self.topic = f"{a}->{b}", new_topic(source, partitions)
        self.remote = f"{a}.{self.topic}"
        clusters = {a: source.bootstrap, b: target.bootstrap}
        settings = {
            f"{self.flow}.enabled": "true", "topics": self.topic, "emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false", "emit.checkpoints.enabled": "false",
            "sync.group.offsets.enabled": "false",
        }  # fmt: skip
        self.path = mirror_file(folder / "mm2.properties", clusters, settings)

    def offsets(self, command: str, *args: str, code: int = 0) -> Any:
        done = klamm("mirror", "offsets", command, str(self.path), self.flow, *args, "-o", "json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def next_offset(self) -> int | None:
        [row] = self.offsets("list")
        return row["offset"]


def names(count: int) -> list[str]:
    return [f"v{i}" for i in range(count)]


def test_a_running_flow_goes_back_and_on_by_itself(source, target, tmp_path):
    mirror = Mirror(tmp_path, source, target)
    produce(source.bootstrap, mirror.topic, names(1000))
    with Server("mirror", "start", str(mirror.path)) as server:
        wait_until(lambda: mirror.next_offset() == 1000, "all is copied and committed")
        [row] = mirror.offsets("list")
        assert (row["start"], row["end"], row["lag"]) == (0, 1000, 0)
        [shown] = mirror.offsets("set", "--to-offset", "900")
        assert (shown["offset"], shown["new_offset"]) == (1000, 900)
        assert mirror.next_offset() == 1000  # it was a dry run
        mirror.offsets("set", "--to-offset", "900", "--execute")
        values = read_all(target.bootstrap, mirror.remote, lambda found: len(found) >= 1100)
        assert values == [*names(1000), *names(1000)[900:]]
        produce(source.bootstrap, mirror.topic, ["more"])
        assert read_all(target.bootstrap, mirror.remote, lambda found: len(found) >= 1101)[-1] == "more"
        assert server.stop() == 0


def test_a_flow_that_does_not_run_begins_where_it_was_set_to(source, target, tmp_path):
    mirror = Mirror(tmp_path, source, target, partitions=2)
    assert [row["offset"] for row in mirror.offsets("list")] == [None, None]
    produce_to_one(source.bootstrap, mirror.topic, names(300))
    # Before the first start, too
    mirror.offsets("set", "--partition", "0", "--to-offset", "200", "--execute")
    with Server("mirror", "start", str(mirror.path)):
        assert read_all(target.bootstrap, mirror.remote, lambda found: len(found) >= 100) == names(300)[200:]
    rows = mirror.offsets("reset", "--topic", mirror.topic, "--execute")
    assert (0, 300, None) in [(r["partition"], r["offset"], r["new_offset"]) for r in rows]
    assert mirror.offsets("list")[0]["offset"] is None
    mirror.offsets("set", "--to-latest", "--execute")
    assert [r["offset"] for r in mirror.offsets("list")] == [300, 0]
    mirror.offsets("set", "--to-earliest", "--execute")
    with Server("mirror", "start", str(mirror.path)):
        again = read_all(target.bootstrap, mirror.remote, lambda found: len(found) >= 400)
        assert again == [*names(300)[200:], *names(300)]


def produce_to_one(bootstrap: str, topic: str, values: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for i, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=0, timestamp=YESTERDAY_MS + i * 1000)
    assert producer.flush(60) == 0


def test_a_time_and_ends(source, target, tmp_path):
    mirror = Mirror(tmp_path, source, target)
    produce_to_one(source.bootstrap, mirror.topic, names(100))
    moment = datetime.fromtimestamp(YESTERDAY_MS / 1000 + 30.5, UTC).isoformat(timespec="milliseconds")
    [row] = mirror.offsets("set", "--to-datetime", moment)
    assert row["new_offset"] == 31
    [row] = mirror.offsets("set", "--to-offset", "5000")
    assert row["new_offset"] == 100
    assert "none was given" in mirror.offsets("set", code=2)
    assert "matches" in mirror.offsets("list", "--topic", "other", code=1)


def test_a_process_that_was_killed_while_it_set_offsets_leaves_no_stopped_flow(source, target, tmp_path):
    mirror = Mirror(tmp_path, source, target)
    produce(source.bootstrap, mirror.topic, names(10))
    config, place = files.load(mirror.path), place_of(mirror.path, mirror.flow)

    async def stop_and_die() -> None:
        worker = FlowWorker(config.flow(mirror.flow), place, config)
        service = await worker.start_at_rest()
        place.altering.touch()
        await service.set_target(SOURCE, TargetState.STOPPED)
        await worker.stop()

    with claimed(place):
        asyncio.run(stop_and_die())
    with Server("mirror", "start", str(mirror.path)):
        assert read_all(target.bootstrap, mirror.remote, lambda found: len(found) >= 10) == names(10)
    assert not place.altering.exists()


def test_groups_follow_into_the_copies_after_offsets_went_back(source, target, tmp_path):
    mirror, group = Mirror(tmp_path, source, target), new_name("group")
    a = mirror.flow.partition("->")[0]
    text = mirror.path.read_text().replace("emit.checkpoints.enabled=false", f"groups={group}")
    mirror.path.write_text(
        text.replace("sync.group.offsets.enabled=false", "sync.group.offsets.enabled=true")
    )
    produce(source.bootstrap, mirror.topic, names(1000))
    read_as(source.bootstrap, group, mirror.topic, lambda values: len(values) >= 400)
    at = committed(source.bootstrap, group, mirror.topic)
    with Server("mirror", "start", str(mirror.path)) as server:
        there = partial(committed, target.bootstrap, group, f"{a}.{mirror.topic}")
        wait_until(lambda: there() == at, "the group's offset")
        mirror.offsets("set", "--to-offset", "100", "--execute")
        # The copies from 100 on lie behind the first 1000.
        wait_until(lambda: there() == 1000 + at - 100, "its offset in the new copies")
        mirror.offsets("reset", "--execute")
        wait_until(lambda: there() == 1900 + at, "its offset after the reset")
        mirror.offsets("set", "--to-latest", "--execute")
        produce(source.bootstrap, mirror.topic, ["last"])
        read_as(source.bootstrap, group, mirror.topic, lambda values: "last" in values)
        wait_until(lambda: there() == 2901, "its offset at the end")
        assert server.stop() == 0
