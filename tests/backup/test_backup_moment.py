"""The moment of a backup: whatever an application has not done when it is taken is done after a restore."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.backups import backup, committed, read, write_transaction
from support.broker import new_topic

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition as Place
from klamm.admin.topics import list_topics
from klamm.admin.transactions import Listing
from klamm.backup import moment as asking
from klamm.backup.cluster_state import Configs, topic_configs
from klamm.backup.model import Group, GroupOffset
from klamm.backup.order import OFFSETS, USUAL, by_key, by_name, ranks
from klamm.backup.order import SCHEMAS as OF_SCHEMAS
from klamm.backup.reading import Source
from klamm_kafka.client import Cluster
from klamm_kafka.wire.offset_specs import EARLIEST

SOURCE, IN, OUT, SCHEMAS = (Place(name, 0) for name in ("connect-offsets", "in", "out", "_schemas"))
COMPACT = {"cleanup.policy": "compact"}


class Busy:
    """A cluster whose applications do a round of work before any answer for a partition, each round in the order in which they must.

    A source writes a record of a new schema to `in`, then its offset. A group writes the record of the round before to `out`, then commits.
    """

    def __init__(self) -> None:
        self.ends = dict.fromkeys((SCHEMAS, OUT, IN, SOURCE), 0)
        self.committed = 0
        self.unstable = 0
        self.decided: list[list[Listing]] = []

    def work(self) -> None:
        self.ends[OUT] = self.ends[IN]
        self.committed = self.ends[OUT] + self.unstable
        self.ends[SCHEMAS] += 1
        self.ends[IN] += 1
        self.ends[SOURCE] += 1

    async def offsets(self, _admin, places, timestamp, **_committed):
        return {tp: 0 if timestamp == EARLIEST else self.end(tp) for tp in places}

    def end(self, tp: Place) -> int:
        self.work()
        return self.ends[tp]

    async def groups(self, _admin, places):
        self.work()
        rows = (GroupOffset(topic="in", partition=0, offset=self.committed),)
        return (Group(name="g", offsets=rows),) if IN in places else ()

    async def transactions(self, _admin, *, states):
        assert states == ["PrepareCommit"]
        self.work()
        return self.decided.pop(0) if self.decided else []

    async def sizes(self, _admin, _places):
        return {}


def taken(busy: Busy, monkeypatch) -> asking.Moment:
    """Return the moment of a backup of that cluster."""
    monkeypatch.setattr(asking, "known_offsets", busy.offsets)
    monkeypatch.setattr(asking.cluster_state, "groups", busy.groups)
    monkeypatch.setattr(asking, "list_transactions", busy.transactions)
    monkeypatch.setattr(asking.cluster_state, "sizes", busy.sizes)
    plain, compact = Configs(own={}, effective={}), Configs(own=COMPACT, effective=COMPACT)
    configs = {tp.topic: compact if tp in (SOURCE, SCHEMAS) else plain for tp in busy.ends}
    rank = {name: by_name(name, own) for name, own in configs.items()}
    return asyncio.run(asking.moment(None, list(busy.ends), configs, rank, {}))


def test_what_says_done_is_asked_for_before_what_was_done(monkeypatch):
    found = taken(Busy(), monkeypatch)
    ends = {tp: log.end for tp, log in found.logs.items()}
    (offset,) = found.groups[0].offsets
    assert offset.offset <= ends[OUT], "a record that the group has done is not in its output"
    assert ends[SOURCE] <= ends[IN], "a record that the source has done is not in its topic"
    assert max(ends[IN], ends[OUT]) <= ends[SCHEMAS], "a record has a schema that is not there"


def test_an_offset_behind_the_last_stable_one_becomes_that(monkeypatch):
    """A group that reads uncommitted records is ahead of what a backup holds."""
    busy = Busy()
    busy.unstable = 1000
    found = taken(busy, monkeypatch)
    assert found.groups[0].offsets[0].offset == found.logs[IN].end


class Ending(Busy):
    """A cluster with a transaction that is committed in the group's partition, and in that of its output some answers later."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.committed = 5
        self.ends[IN] = 5
        row = Listing(transactional_id="copier", coordinator=1, producer_id=7, state="PrepareCommit")
        self.decided = [[row] for _ in range(answers)]

    def work(self) -> None:
        self.ends[OUT] = 0 if self.decided else 5


def test_an_offset_is_not_ahead_of_the_output_of_its_transaction(monkeypatch):
    monkeypatch.setattr(asking, "DECIDED_PAUSE_S", 0)
    found = taken(Ending(3), monkeypatch)
    assert (found.groups[0].offsets[0].offset, found.logs[OUT].end, found.said) == (5, 5, ())


def test_a_transaction_that_does_not_end_is_waited_for_so_long_and_said(monkeypatch):
    monkeypatch.setattr(asking, "DECIDED_PAUSE_S", 0)
    monkeypatch.setattr(asking, "DECIDED_S", 0.05)
    found = taken(Ending(10**5), monkeypatch)
    assert "transactions of copier are decided" in "".join(found.said)


@pytest.mark.parametrize(
    ("key", "rank"),
    [
        (b'["source",{"file":"a"}]', OFFSETS),
        (b'{"keytype":"NOOP","magic":0}', OF_SCHEMAS),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', OF_SCHEMAS),
        (b'["a","b"]', USUAL), (b'{"id":1}', USUAL), (b"7", USUAL), (b"\xff", USUAL), (b"", USUAL),
    ],
)  # fmt: skip
def test_a_key_tells_what_a_compacted_topic_holds(key, rank):
    assert by_key(key) == rank


def test_topics_of_registries_and_workers_are_known_whatever_their_names_are(broker):
    """The worker's record is in one of three partitions, behind an aborted one of somebody else."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    contents = {
        "registry-store": [(0, b'{"keytype":"NOOP","magic":0}')],
        "worker-positions": [(1, b'["source",{"file":"a"}]')],
        "table": [(0, b"key")],
        "empty": [],
    }
    made = [NewTopic(name, 3, config={"cleanup.policy": "compact"}) for name in contents]
    for done in client.create_topics(made).values():
        done.result(30)
    write_transaction(broker.bootstrap, "worker-positions", [b"v"], commit=False)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name, rows in contents.items():
        for partition, key in rows:
            producer.produce(name, b"v", key, partition=partition)
    assert producer.flush(30) == 0

    async def run() -> dict[str, int]:
        async with Admin(broker.bootstrap) as admin, Cluster(broker.bootstrap) as cluster:
            topics = [t for t in await list_topics(admin) if t.name in contents]
            places = [Place(t.name, p.number) for t in topics for p in t.partitions]
            configs = await topic_configs(admin, [t.name for t in topics])
            return await ranks(admin, Source(cluster, {t.name: t.id for t in topics}), places, configs)

    assert asyncio.run(run()) == {
        "registry-store": OF_SCHEMAS, "worker-positions": OFFSETS, "table": USUAL, "empty": USUAL,
    }  # fmt: skip


# ---- a broker under load


class Load:
    """A producer to `source`, and a consumer that writes each record to `target` before it commits the next offset."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self._bootstrap, self._source, self._target = bootstrap, source, target
        self._over = threading.Event()
        self.done = 0
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._process)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 2})
        numbers = itertools.count()
        while not self._over.wait(0.005):
            for number in itertools.islice(numbers, 20):
                producer.produce(self._source, b"%d" % number, partition=number % 2)
            producer.poll(0)
        producer.flush(30)

    def _process(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "load", "enable.auto.commit": False, "auto.offset.reset": "earliest"})  # fmt: skip
        consumer.assign([TopicPartition(self._source, p, 0) for p in (0, 1)])
        while not self._over.is_set():
            for message in consumer.consume(5, 0.1):
                producer.produce(self._target, message.value(), partition=0)
                producer.flush(30)
                consumer.commit(message, asynchronous=False)
                self.done += 1
        consumer.close()


def rest_of(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Return what a consumer of the group reads of both partitions, from where the group stands up to the ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "load", "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True})  # fmt: skip
    consumer.assign([TopicPartition(topic, p) for p in (0, 1)])
    rows: dict[int, list[bytes]] = {0: [], 1: []}
    left = {0, 1}
    while left:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left.discard(message.partition())
        else:
            rows[message.partition()].append(message.value())
    consumer.close()
    return rows


def test_after_a_restore_a_group_reads_every_record_that_it_had_not_done(broker, tmp_path):
    """Backups are taken while a producer writes and a consumer commits behind every record that it has done."""
    source, target, at = new_topic(broker, 2), new_topic(broker), ("-b", broker.bootstrap)
    with Load(broker.bootstrap, source, target) as load:
        done = [0]
        for _ in range(2):
            backup("create", tmp_path / "b", *at, "-t", source, "-t", target)
            assert load.done > done[-1], "nothing was done meanwhile"
            done.append(load.done)
    backups = sorted(p.name for p in (tmp_path / "b" / "manifests").iterdir())
    for i, name in enumerate(backups):
        backup("restore", tmp_path / "b", *at, "--backup", name, "--prefix", f"r{i}-")
        written = {row[3] for row in read(broker.bootstrap, f"r{i}-{target}")[0]}
        wanted = {row[3] for rows in read(broker.bootstrap, f"r{i}-{source}", 2).values() for row in rows}
        rest = rest_of(broker.bootstrap, f"r{i}-{source}")
        assert wanted - written <= {value for rows in rest.values() for value in rows}
        assert max(committed(broker.bootstrap, "load", [(f"r{i}-{source}", p) for p in (0, 1)])) > 0
