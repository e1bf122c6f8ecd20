"""KafkaHandler's spool: records wait on disk while no broker takes them, and go out later, from this process or the next."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import uuid

import pytest
from support.broker import new_topic, wait_until
from support.forks import log_in_child

from klamm.logging import KafkaHandler
from klamm.testing import EmbeddedBroker
from klamm.testing.topics import TopicReader
from klamm_agent.handler.client import Returned
from klamm_agent.handler.store import Store
from klamm_base.errors import ConfigError

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def make(tmp_path):
    made = []

    def handler(bootstrap, topic, **options):
        found = KafkaHandler(bootstrap, topic, spool=tmp_path / "spool", **options)
        found.setFormatter(logging.Formatter("%(message)s"))
        logger = logging.getLogger(f"spool.{uuid.uuid4().hex[:8]}")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(found)
        made.append((logger, found))
        return logger, found

    yield handler
    for logger, found in made:
        logger.removeHandler(found)
        found.close()


def arrived(bootstrap, topic, count):
    """Returns so many different values, in the order of their first arrival: delivery is at least once."""
    with TopicReader(bootstrap, topic) as reader:

        def different():
            reader.read()
            return list(dict.fromkeys(m.value().decode() for m in reader.seen))

        return wait_until(lambda: len(found := different()) >= count and found, f"{count} values in {topic}")


@pytest.mark.usefixtures("processes")
def test_what_was_logged_while_the_broker_was_away_arrives_in_order(tmp_path, make):
    broker = EmbeddedBroker(tmp_path / "broker").start()
    try:
        topic = new_topic(broker)
        logger, handler = make(
            broker.bootstrap, topic, config={"message.timeout.ms": 30_000}, flush_timeout=60
        )
        logger.info("before")
        handler.flush()
        broker.stop()
        for i in range(500):
            logger.info("away %d", i)
        wait_until(lambda: handler.statistics()["spooled"] == 500, f"the spool: {handler.statistics()}")
        assert handler.statistics()["away"]
        broker.start()
        for i in range(5):
            logger.info("back %d", i)
        wait_until(
            lambda: handler.statistics()["spooled"] == 0 and not handler.statistics()["queued"], "the rest"
        )
        handler.flush()
        found = arrived(broker.bootstrap, topic, 506)
        assert found == ["before", *(f"away {i}" for i in range(500)), *(f"back {i}" for i in range(5))]
        assert handler.dropped == 0
    finally:
        broker.stop()


def test_the_next_process_sends_what_an_ended_one_left(make, broker, tmp_path):
    topic = new_topic(broker)
    for n in range(2):
        logger, handler = make(NOWHERE, topic, flush_timeout=0.2)
        for i in range(50):
            logger.info("%d/%d", n, i)
        handler.close()
        assert handler.dropped == 0
    assert list((tmp_path / "spool").rglob("*.log")), "what klamm log dump reads"
    logger, handler = make(broker.bootstrap, topic)
    logger.info("now")
    expected = ["now", *(f"{n}/{i}" for n in range(2) for i in range(50))]
    assert sorted(arrived(broker.bootstrap, topic, 101)) == sorted(expected)
    wait_until(lambda: handler.statistics()["spooled"] == 0, "the spool to be empty")


def test_a_spool_is_sent_without_a_pause_between_its_parts(make, broker, monkeypatch):
    monkeypatch.setattr("klamm_agent.handler.shipper._IDLE_S", 600.0)  # one pause, and it would not end
    monkeypatch.setattr("klamm_agent.handler.store._READ_RECORDS", 20)
    topic = new_topic(broker)
    logger, handler = make(NOWHERE, topic, flush_timeout=0.2)
    for i in range(400):
        logger.info("%d", i)
        if i % 10 == 9:  # batches of a few records
            wait_until(lambda: not handler._shipper._queue or not i, "the queue")
    handler.close()
    _, handler = make(broker.bootstrap, topic)
    handler._shipper.put(b"400")
    assert arrived(broker.bootstrap, topic, 401) == [str(i) for i in range(401)]


def test_batches_of_a_record_each_are_read_back_together(tmp_path):
    store = Store(tmp_path, "t", 1 << 20, fsync=False)
    for i in range(500):
        store.add([Returned(b"%d" % i, i, "", False)], drop="newest")
    found = store.read()
    assert [r.value for r in found.records] == [b"%d" % i for i in range(500)]
    assert (found.end, found.lost) == (500, 0)
    assert store.read() is None
    store.rewind()
    assert len(store.read().records) == 500, "what was not delivered is read again"
    store.delivered(found.end)
    assert store.records == 0
    store.close()


def test_damage_costs_what_is_damaged(tmp_path):
    store = Store(tmp_path, "t", 1 << 20, fsync=False)
    for i in range(10):
        store.add([Returned(b"%d" % i, i, "", False)], drop="newest")
    log = next(tmp_path.rglob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 255
    log.write_bytes(data)
    found = store.read()
    assert [r.value for r in found.records] == [b"%d" % i for i in range(5)]
    assert (found.end, found.lost) == (10, 5)
    assert "byte" in found.damaged
    store.close()


@pytest.mark.usefixtures("processes")
def test_what_is_in_flight_when_a_spool_is_found_is_not_lost(make, tmp_path):
    broker = EmbeddedBroker(tmp_path / "broker").start()
    try:
        topic = new_topic(broker)
        logger, handler = make(
            broker.bootstrap, topic, config={"message.timeout.ms": 30_000}, flush_timeout=60
        )
        logger.info("before")
        handler.flush()
        left, other = make(NOWHERE, topic, flush_timeout=0.1)
        left.info("left")
        other.close()
        broker.stop()
        for i in range(5):
            logger.info("flying %d", i)
        shipper = handler._shipper
        wait_until(lambda: shipper._away or shipper._client.in_flight == 5, "the client")
        shipper._store._looked_at = float("-inf")
        wait_until(lambda: shipper._away, "the handler to give up")
        broker.start()
        expected = {"before", "left", *(f"flying {i}" for i in range(5))}
        assert set(arrived(broker.bootstrap, topic, 7)) == expected
    finally:
        broker.stop()


def test_two_processes_have_folders_of_their_own_and_a_killed_ones_is_taken_over(make, broker, tmp_path):
    topic = new_topic(broker)
    script = (
        "import logging, time; from klamm.logging import KafkaHandler\n"
        f"h = KafkaHandler('{NOWHERE}', '{topic}', spool={str(tmp_path / 'spool')!r})\n"
        "h.setFormatter(logging.Formatter('%(message)s')); l = logging.getLogger('x'); l.addHandler(h)\n"
        "for i in range(100): l.warning('other %d', i)\n"
        "while h.statistics()['spooled'] < 100: time.sleep(0.01)\n"
        "print('spooled', flush=True); time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"spooled\n"
        logger, handler = make(NOWHERE, topic, flush_timeout=0.1)
        logger.info("mine")
        handler.close()
        folders = {p.parent.parent.name for p in (tmp_path / "spool").rglob("*.log")}
        assert folders == {"000", "001"}
        logger, handler = make(broker.bootstrap, topic)
        logger.info("now")
        assert sorted(arrived(broker.bootstrap, topic, 2)) == ["mine", "now"], "the other process lives"
        handler.close()
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
    logger, handler = make(broker.bootstrap, topic)
    logger.info("last")
    assert len(arrived(broker.bootstrap, topic, 103)) == 103


@pytest.mark.parametrize("drop", ["newest", "oldest"])
def test_a_full_spool_drops_by_policy_and_counts(make, tmp_path, broker, capsys, drop):
    topic = new_topic(broker)
    logger, handler = make(NOWHERE, topic, spool_bytes=300_000, drop=drop, flush_timeout=0.1)
    count = 4000
    for i in range(count):
        logger.info("%d %s", i, os.urandom(100).hex())
        if i % 500 == 0:
            wait_until(lambda: not handler._shipper._queue or handler.statistics()["away"], "the queue")
    handler.close()
    assert 0 < handler.dropped < count
    assert set(handler.statistics()["drops"]) == {"the spool is full"}
    assert "dropped: the spool is full" in capsys.readouterr().err
    _, reader = make(broker.bootstrap, topic)
    reader._shipper.put(b"last")
    left = count - handler.dropped
    numbers = [int(v.split()[0]) for v in arrived(broker.bootstrap, topic, left + 1) if v != "last"]
    assert len(numbers) == left
    assert numbers[0 if drop == "newest" else -1] == (0 if drop == "newest" else count - 1)
    assert numbers == sorted(numbers)


def test_a_full_queue_keeps_the_newest_when_asked(make, capsys):
    handler = KafkaHandler(NOWHERE, "t", queue_bytes=64 * 1024, drop="oldest", flush_timeout=0.1)
    for i in range(3000):
        handler._shipper.put(b"%d" % i)
    assert handler._shipper._queue[-1] == b"2999"
    handler.close()
    assert handler.dropped == 3000
    assert "dropped" in capsys.readouterr().err


def test_a_record_that_is_too_large_is_dropped_and_the_others_arrive(make, broker, capsys):
    topic = new_topic(broker, config={"max.message.bytes": "20000"})
    logger, handler = make(
        broker.bootstrap, topic, config={"linger.ms": 0, "compression.type": "none", "batch.size": 1}
    )
    logger.info("x" * 2_000_000)
    logger.info("small")
    assert arrived(broker.bootstrap, topic, 1) == ["small"]
    handler.flush()
    assert handler.dropped == 1
    assert "too large" in capsys.readouterr().err.lower()


@pytest.mark.usefixtures("processes")
def test_a_fork_while_spooling_leaves_the_folder_to_the_parent(make, tmp_path):
    logger, handler = make(NOWHERE, "forked", flush_timeout=0.2)
    logger.info("parent 1")
    wait_until(lambda: handler.statistics()["spooled"] == 1, "the spool")
    assert log_in_child(logger, handler) == 0
    logger.info("parent 2")
    wait_until(lambda: handler.statistics()["spooled"] == 2, "the spool")
    assert {p.parent.parent.name for p in (tmp_path / "spool").rglob("*.log")} == {"000", "001"}


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"spool .* cannot be used"):
        KafkaHandler(NOWHERE, "t", spool=tmp_path / "file")
    with pytest.raises(ConfigError, match="drop = 'some': one of newest, oldest"):
        KafkaHandler(NOWHERE, "t", drop="some")
