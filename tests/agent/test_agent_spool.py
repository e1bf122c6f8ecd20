"""The disk spool: a queue that survives kills, in Kafka's format, and what the agent does with it."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import time

import pytest
from agent.harness import KLAMM, AgentProcess, Writer, arrived
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker import new_topic, wait_until
from support.private import not_private, umask

from klamm.testing import EmbeddedBroker
from klamm_agent.config.producer import ProducerSettings
from klamm_agent.config.spool import SpoolSettings
from klamm_agent.delivery.batches import Origin, Share
from klamm_agent.delivery.encode import encode_batch
from klamm_agent.delivery.sender import Sender
from klamm_agent.delivery.spool.segment import Damaged
from klamm_agent.delivery.spool.spool import Spool, SpoolError
from klamm_agent.delivery.spooling import ranges
from klamm_kafka.wire.batch import decode_records, stamp
from klamm_kafka.wire.compression import Compression


def origin(i, path="/x.log"):
    return Origin(path, (1, 2), i * 10, i * 10 + 10)


def batch(i, count=2, size=10):
    data = encode_batch([(None, [b"%06d" % i + b"x" * size] * count)], 7, Compression.NONE)
    stamp(data, -1, -1, -1)
    return data


def put(spool, i, topic="t", **options):
    return spool.append(topic, batch(i, **options), options.get("count", 2), [Share(origin(i), 2)], None)


def number(found):
    return int(decode_records(found.data)[0].value[:6])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_is_a_queue_whatever_happens(tmp_path_factory, data):
    """Against a list: written, read and acknowledged in any order of steps, closed and killed between."""
    path = tmp_path_factory.mktemp("spool")
    spool = Spool(path, 1 << 20, fsync=False)
    spool._segment = 300
    model, cursor, acked, ends = [], 0, 0, []
    for step in data.draw(st.lists(st.sampled_from("wwwrrraskt"), max_size=40)):
        if step == "w":
            ends.append(put(spool, len(model)))
            model.append(len(model))
        elif step == "r" and spool.is_unread("t"):
            found = spool.read("t")
            assert number(found) == model[cursor]
            assert found.shares == [Share(origin(model[cursor]), 2)]
            assert found.end == ends[cursor]
            cursor += 1
        elif step == "a" and acked < cursor:
            acked += 1
            spool.acknowledged("t", ends[acked - 1])
        elif step == "s":
            spool.save()
        elif step in "kt" and model:
            if step == "k":
                spool.save()
            for queue in spool._topics.values():  # as the system does it for a process that is killed
                for segment in queue._segments:
                    segment.close()
            spool._topics.clear()
            spool.close()
            logs = sorted((path / "t-0").glob("*.log"))
            if step == "t" and logs:
                with logs[-1].open("ab") as file:
                    file.write(batch(999_999)[: data.draw(st.integers(1, 80))])
            spool = Spool(path, 1 << 20, fsync=False)
            spool._segment = 300
            if not spool.is_unread("t"):
                cursor = acked = len(model)
                continue
            again = number(spool.read("t"))
            assert again <= acked, "what is not acknowledged comes again"
            cursor = again + 1
            acked = again
    while spool.is_unread("t"):
        assert number(spool.read("t")) == model[cursor]
        cursor += 1
    assert cursor == len(model)
    spool.close()


def test_one_spool_for_one_agent(tmp_path):
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    with pytest.raises(SpoolError, match="is used by another agent"):
        Spool(tmp_path, 1 << 20, fsync=True)
    spool.close()


def test_damage_is_told_with_what_is_lost(tmp_path):
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    for i in range(5):
        put(spool, i)
    assert spool.sync()
    log = tmp_path / "t-0/00000000000000000000.log"
    content = bytearray(log.read_bytes())
    at = len(batch(0)) * 2 + 70
    content[at] ^= 1
    log.write_bytes(content)
    assert [number(spool.read("t")) for _ in range(2)] == [0, 1]
    found = spool.read("t")
    assert isinstance(found, Damaged)
    assert found.shares == [Share(origin(i), 2) for i in (2, 3, 4)]
    assert not spool.is_unread("t")
    assert number_after(spool) == 5
    spool.close()


def number_after(spool):
    put(spool, 5)
    return number(spool.read("t"))


def test_the_oldest_unread_segments_give_way(tmp_path):
    spool = Spool(tmp_path, 1 << 20, fsync=False)
    spool._segment = 3 * len(batch(0))
    for i in range(9):
        put(spool, i)
    assert number(spool.read("t")) == 0
    given_up = []
    assert not spool.drop_oldest(lambda topic, shares: False), "nothing goes that is not in the ledger"
    for _ in range(3):
        assert spool.drop_oldest(lambda topic, shares: given_up.append((topic, ranges(shares))) or True)
    assert given_up == [
        ("t", [(Origin("/x.log", (1, 2), 10, 30), 4)]),
        ("t", [(Origin("/x.log", (1, 2), 30, 60), 6)]),
        ("t", [(Origin("/x.log", (1, 2), 60, 90), 6)]),
    ]
    assert not spool.drop_oldest(lambda topic, shares: True)
    assert number_after(spool) == 5
    spool.close()


def test_a_disk_that_is_full_takes_nothing_half(tmp_path):
    spool = Spool(tmp_path, 1 << 30, fsync=True)
    put(spool, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(SpoolError, match="cannot be written: File too large"):
            put(spool, 1, size=4000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    put(spool, 2)
    assert spool.sync()
    spool.close()
    again = Spool(tmp_path, 1 << 30, fsync=True)
    assert [number(again.read("t")) for _ in range(2)] == [0, 2]
    assert not again.is_unread("t")
    again.close()


def shares_of_all(spool):
    found = []
    while spool.is_unread("t"):
        found.append(spool.read("t").shares)
    return found


def test_a_torn_line_of_origins_takes_no_other_along(tmp_path):
    """A line that a kill cut, and lines of batches that were never written, are no origins of later batches."""
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    put(spool, 0)
    spool.close()
    origins = tmp_path / "t-0/00000000000000000000.origins"
    whole = origins.read_bytes()
    lost = [f'[{at},null,[["/x.log",1,2,70,80,2]]]\n' for at in (2, 3, 9)]
    origins.write_bytes(whole + "".join(lost).encode() + b'[11,null,[["/x.l')
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    assert origins.read_bytes() == whole
    for i in (1, 2):
        put(spool, i)
    spool.close()
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    assert shares_of_all(spool) == [[Share(origin(i), 2)] for i in range(3)]
    spool.close()


def test_origins_whose_segment_is_gone_are_nobodys(tmp_path):
    """A kill between the removal of a segment's two files: a new segment may begin at the same offset."""
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    put(spool, 0)
    put(spool, 1)
    spool.close()
    (tmp_path / "t-0/00000000000000000000.log").unlink()
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    put(spool, 2)
    spool.close()
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    assert len((tmp_path / "t-0/00000000000000000000.origins").read_bytes().splitlines()) == 1
    assert shares_of_all(spool) == [[Share(origin(2), 2)]]
    spool.close()


def test_origins_that_a_full_disk_took_half_are_taken_back(tmp_path):
    spool = Spool(tmp_path, 1 << 30, fsync=True)
    put(spool, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        with pytest.raises(SpoolError, match="cannot be written: File too large"):
            spool.append("t", batch(1), 2, [Share(origin(1, "/" + "x" * 4000), 2)], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    put(spool, 2)
    spool.close()
    spool = Spool(tmp_path, 1 << 30, fsync=True)
    assert shares_of_all(spool) == [[Share(origin(i), 2)] for i in (0, 2)]
    spool.close()


@pytest.mark.usefixtures("processes")
def test_klamm_log_dump_reads_it(tmp_path):
    spool = Spool(tmp_path, 1 << 20, fsync=True)
    for i in range(3):
        put(spool, i)
    spool.sync()
    spool.close()
    log = tmp_path / "t-0/00000000000000000000.log"
    shown = subprocess.run(
        [KLAMM, "log", "dump", str(log), "--print-data-log"], check=True, capture_output=True, text=True
    ).stdout
    assert "baseOffset: 4 lastOffset: 5 count: 2" in shown
    assert shown.count("isvalid: true") >= 3
    assert "payload: 000002" in shown


@pytest.mark.usefixtures("processes")
def test_what_an_fsync_left_in_doubt_counts_when_a_broker_has_it(tmp_path, monkeypatch):
    """Batches that are only on disk count, too: otherwise their files' checkpoints would stand still for good."""
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    broker.stop()
    spool = SpoolSettings(path=tmp_path / "spool", when="always")
    sender = Sender(
        broker.bootstrap, ProducerSettings(batch_bytes=1_000), queue_bytes=1 << 20, topics=1,
        refused=lambda batch, size: None, spool=spool,
    )  # fmt: skip

    def fails(fd):
        raise OSError(errno.EIO, "Input/output error")

    try:
        with monkeypatch.context() as patch:
            patch.setattr("klamm_agent.delivery.spool.segment.os.fsync", fails)
            batches = [sender.send(topic, [b"x" * 990], 990, None, origin(i)) for i in range(40)]
            wait_until(lambda: sender.poll(0.01) or sender._spooling._doubtful, "an fsync that fails")
        assert sender.figures()["batches"] == 40
        assert not any(b.done for b in batches)
        broker.start()
        wait_until(lambda: sender.poll(0.01) or all(b.done for b in batches), "the broker to have all")
        assert not sender._spooling._doubtful
    finally:
        sender.close()
        broker.stop()


def spooling_agent(tmp_path, bootstrap, topic, spool):
    return AgentProcess(tmp_path / "agent", bootstrap, topic, more=f"[spool]\n{spool}")


def spool_log(agent, topic):
    return agent.state / f"spool/{topic}-0"


@pytest.mark.usefixtures("processes")
def test_lines_are_safe_on_disk_while_the_broker_is_away(tmp_path):
    """Their file may be deleted and the agent killed: they come when the broker does, once and in order."""
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    agent = spooling_agent(tmp_path, broker.bootstrap, topic, "")
    log = tmp_path / "agent/logs/app.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"a-{i:05d} first\n" for i in range(100)))
    agent.start()
    try:
        agent.caught_up()
        broker.stop()
        with log.open("a") as file:
            file.writelines(f"b-{i:05d} {'x' * 60}\n" for i in range(20_000))
        agent.has_acknowledged(log)
        agent.kill()
        log.unlink()
        assert sum(f.stat().st_size for f in spool_log(agent, topic).glob("*.log")) > 40_000
        broker.start()
        agent.start()
        agent.begun()
        wait_until(lambda: agent.status().get("acked", 0) >= 20_000, "the spool to be sent", timeout_s=60)
        assert agent.stop() == 0
        found = arrived(broker.bootstrap, topic)
        assert set(found) == {f"a-{i:05d}" for i in range(100)} | {f"b-{i:05d}" for i in range(20_000)}
        assert set(found.values()) == {1}
        assert list(found) == sorted(found), "in order"
        assert not list(spool_log(agent, topic).glob("*.log"))
    finally:
        agent.close()
        broker.stop()


@pytest.mark.usefixtures("processes")
def test_a_full_spool_drops_the_oldest_by_file_and_range(tmp_path):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker)
    broker.stop()
    agent = spooling_agent(tmp_path, broker.bootstrap, topic, 'max_bytes = 1_048_576\ndrop = "oldest"')
    agent.config.write_text(agent.config.read_text() + '[producer]\ncompression.type = "none"\n')
    log = tmp_path / "agent/logs/app.log"
    log.parent.mkdir(parents=True)
    lines = [f"{i:07d} {'x' * 91}\n" for i in range(60_000)]
    log.write_text("".join(lines))
    try:
        agent.start()
        agent.has_acknowledged(log)
        gaps = [json.loads(line) for line in (agent.state / "gaps.jsonl").read_text().splitlines()]
        assert {(g["reason"], g["policy"], g["path"]) for g in gaps} == {
            ("spool full: oldest dropped", True, str(log))
        }
        assert agent.log.count("spool full: oldest dropped; the gap ledger lists the lines") == 1
        broker.start()
        expected = len(lines) - sum(g["lines"] for g in gaps)
        wait_until(lambda: agent.status().get("acked", 0) >= expected, "the rest", timeout_s=60)
        assert agent.stop() == 0
        missing = {line.split()[0] for line in lines} - set(arrived(broker.bootstrap, topic))
        told = {lines[at // 100].split()[0] for g in gaps for at in range(g["from"], g["to"], 100)}
        assert missing == told
        assert len(missing) == sum(g["lines"] for g in gaps) > 10_000
    finally:
        agent.close()
        broker.stop()


@pytest.mark.usefixtures("processes")
def test_a_full_spool_stops_reading_by_default(tmp_path):
    agent = spooling_agent(tmp_path, "127.0.0.1:1", "t", "max_bytes = 1_048_576")
    agent.config.write_text(agent.config.read_text() + '[producer]\ncompression.type = "none"\n')
    log = tmp_path / "agent/logs/app.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(b"%07d %s\n" % (i, b"x" * 91) for i in range(60_000)))
    try:
        agent.start()
        wait_until(lambda: agent.status().get("waiting_for") == "spool is full", "the agent to notice")
        logs = spool_log(agent, "t")
        wait_until(
            lambda: sum(f.stat().st_size for f in logs.glob("*.log")) >= 1 << 20, "a full spool", timeout_s=60
        )
        time.sleep(0.5)  # the agent reads on, if it may
        assert sum(f.stat().st_size for f in logs.glob("*.log")) < 9 << 19, (
            "what is in memory is there as well"
        )
        assert agent.status()["lag_bytes"] > 1_000_000
        assert not (agent.state / "gaps.jsonl").exists()
    finally:
        agent.close()


@pytest.mark.usefixtures("processes")
def test_state_and_spool_are_for_their_owner_alone(tmp_path):
    agent = spooling_agent(tmp_path, "127.0.0.1:1", "t", "max_bytes = 1_048_576")
    log = tmp_path / "agent/logs/app.log"
    log.parent.mkdir(parents=True)
    log.write_text("secret\n")
    try:
        with umask(0):
            agent.start()
        logs = spool_log(agent, "t")
        wait_until(lambda: sum(f.stat().st_size for f in logs.glob("*.log")), "the line in the spool")
        wait_until((agent.state / "registry.json").exists, "the registry")
    finally:
        agent.close()
    assert (agent.state / "status.json").exists()
    assert not_private(agent.state) == {}
    assert not_private(logs.parent) == {}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("when", ["broker_away", "always"])
def test_kills_of_agent_and_broker_with_a_spool_lose_nothing(tmp_path, when):
    broker = EmbeddedBroker(tmp_path / "data").start()
    topic = new_topic(broker, 2)
    agent = spooling_agent(tmp_path, broker.bootstrap, topic, f'when = "{when}"')
    writer = Writer(tmp_path / "agent/logs/x.log", "w", rate=8000)
    writer.start()
    try:
        for i in range(4):
            agent.start()
            agent.begun()
            wait_until(lambda: agent.status().get("lines", 0) > 1000, "lines", timeout_s=60)
            broker.kill()
            wait_until(lambda: spool_log(agent, topic).exists(), "the spool", timeout_s=60)
            before = agent.status().get("lines", 0)
            wait_until(
                lambda before=before: agent.status().get("lines", 0) > before + 5_000, "lines", timeout_s=60
            )
            if i % 2:
                agent.kill()
                broker.start()
            else:
                broker.start()
                acked = agent.status().get("acked", 0)
                wait_until(
                    lambda acked=acked: agent.status().get("acked", 0) > acked, "answers", timeout_s=60
                )
                agent.kill()
        agent.start()
        writer.finish()
        agent.caught_up()
        wait_until(lambda: not list(spool_log(agent, topic).glob("*.log")), "an empty spool", timeout_s=60)
        assert agent.stop() == 0
        assert writer.ids() == set(arrived(broker.bootstrap, topic))
        assert not (agent.state / "gaps.jsonl").exists()
    finally:
        writer.finish()
        agent.close()
        broker.stop()


def test_settings_of_the_spool(tmp_path):
    from klamm_agent.config.agent import AgentConfig

    config = tmp_path / "agent.toml"
    config.write_text(
        'bootstrap_servers = "h:1"\nstate_dir = "s"\n[spool]\nfsync = false\n[[inputs]]\npaths = ["x"]\ntopic = "t"\n'
    )
    assert AgentConfig.load(config).spool == SpoolSettings(path=tmp_path / "s/spool", fsync=False)
