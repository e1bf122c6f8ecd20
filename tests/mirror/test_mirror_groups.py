"""Members of groups of each kind move to the target and go on with the very next record; Connect's sinks, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from support.broker import new_name, new_topic, wait_until
from support.connect_worker import WorkerProcess, worker_properties
from support.klamm import Server
from support.mirror import committed, mirror_file
from support.mirroring_once import read_committed

from klamm_kafka.client import Cluster
from klamm_mirror.move.group_offsets import with_members

pytestmark = pytest.mark.usefixtures("processes")

STRING = "org.apache.kafka.connect.storage.StringConverter"
KINDS: dict[str, dict[str, object]] = {
    "classic": {},
    "static": {"group.instance.id": "one", "session.timeout.ms": 6_000},
    "consumer": {"group.protocol": "consumer"},
    "static consumer": {"group.protocol": "consumer", "group.instance.id": "one"},
}


def write(bootstrap: str, topic: str, first: int, count: int) -> list[str]:
    """Writes numbered records in transactions of ten; one that is aborted follows each, so offsets have holes."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": new_name("writer")})
    producer.init_transactions(60)
    names = [f"r{i}" for i in range(first, first + count)]
    for start in range(0, count, 10):
        producer.begin_transaction()
        for name in names[start : start + 10]:
            producer.produce(topic, name.encode())
        producer.commit_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, b"aborted")
        producer.flush(60)
        producer.abort_transaction(60)
    return names


def read(bootstrap: str, group: str, topic: str, count: int, kind: str) -> list[str]:
    """Reads so many records as a member of the group, commits behind the last of them, and leaves."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", **KINDS[kind]})
    consumer.subscribe([topic])
    found: list[str] = []

    def more() -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            found.append(message.value().decode())
            if len(found) == count:
                consumer.commit(message=message, asynchronous=False)
        return len(found) >= count

    try:
        wait_until(more, f"{count} records")
    finally:
        consumer.close()
    return found


class Sink:
    """A worker with a FileStreamSink, whose group is `connect-NAME`."""

    def __init__(self, bootstrap: str, name: str, topic: str, file: Path, path: Path) -> None:
        path.mkdir()
        more = {
            "key.converter": STRING,
            "value.converter": STRING,
            "consumer.isolation.level": "read_committed",
        }
        self.file = file
        self.worker = WorkerProcess(worker_properties(bootstrap, new_name("w"), **more), path).wait_ready()
        config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(file)}
        answer = self.worker.request("POST", "/connectors", {"name": name, "config": config})
        assert answer.status == 201, answer.body

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_every_kind_are_seen(source, kind):
    topic, group = new_topic(source), new_name("group")

    async def reading() -> bool:
        async with Cluster(source.bootstrap) as cluster:
            return await with_members(cluster, lambda name: name == group) == [group]

    config = {"bootstrap.servers": source.bootstrap, "group.id": group, **KINDS[kind]}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "a member")
        assert asyncio.run(reading())
    finally:
        consumer.close()
    if "static" not in kind:  # a static member only goes for a while
        assert not asyncio.run(reading())


def test_members_of_every_kind_go_on_with_the_next_record(source, target, tmp_path: Path):
    a, b = new_name("a"), new_name("b")
    topic, sink_name = new_topic(source), new_name("sink")
    sent = write(source.bootstrap, topic, 0, 200)
    groups = {kind: new_name("group") for kind in KINDS}
    taken = {kind: 50 + 13 * i for i, kind in enumerate(KINDS)}
    for kind, group in groups.items():
        assert read(source.bootstrap, group, topic, taken[kind], kind) == sent[: taken[kind]]
    sink = Sink(source.bootstrap, sink_name, topic, tmp_path / "at-a", tmp_path / "wa")
    try:
        wait_until(lambda: sink.lines() == sent, "all records in the sink's file")
        wait_until(lambda: committed(source.bootstrap, f"connect-{sink_name}", topic) > 200, "its commit")
    finally:
        sink.worker.end()
    assert sink.lines() == sent
    sent += write(source.bootstrap, topic, 200, 100)
    flows = {
        f"{a}->{b}.enabled": "true", "topics": topic, "groups.exclude": "none", "emit.heartbeats.enabled": "false",
        "groups": ",".join([*groups.values(), f"connect-{sink_name}"]),
        "replication.policy.class": "IdentityReplicationPolicy", f"{b}.exactly.once.source.support": "enabled",
    }  # fmt: skip
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    expected = {groups[kind]: sent[taken[kind]] for kind in KINDS} | {f"connect-{sink_name}": "r200"}
    with Server("mirror", "start", str(path)):
        wait_until(lambda: len(read_committed(target.bootstrap, topic)) == 300, "the copy")
        there = {value.decode(): offset for offset, value in read_committed(target.bootstrap, topic)}
        for group, name in expected.items():
            # where the next record is not the one behind the last, any offset between them means the same
            wait_until(
                lambda group=group, name=name: (
                    there[f"r{int(name[1:]) - 1}"] < committed(target.bootstrap, group, topic) <= there[name]
                ),
                f"the offset of {group}",
            )
    for kind, group in groups.items():
        rest = sent[taken[kind] :]
        assert read(target.bootstrap, group, topic, len(rest), kind) == rest
    sink = Sink(target.bootstrap, sink_name, topic, tmp_path / "at-b", tmp_path / "wb")
    try:
        wait_until(lambda: len(sink.lines()) >= 100, "the rest in the sink's file")
    finally:
        sink.worker.end()
    assert sink.lines() == sent[200:]
