"""KafkaHandler against a real broker: what is logged arrives, and the application never waits."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer
from support.broker import wait_until
from support.forks import log_in_child

from klamm.logging import KafkaHandler
from klamm.testing.topics import TopicReader
from klamm_agent.handler.client import Client
from klamm_base.errors import ConfigError


@pytest.fixture
def topic():
    return f"log-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def logger():
    found = logging.getLogger(f"app.{uuid.uuid4().hex[:8]}")
    found.setLevel(logging.DEBUG)
    found.propagate = False
    yield found
    for handler in list(found.handlers):
        found.removeHandler(handler)
        handler.close()


def read(bootstrap, topic, count, timeout_s=60.0):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values, deadline = [], time.monotonic() + timeout_s
    while len(values) < count and time.monotonic() < deadline:
        values += [m.value() for m in consumer.consume(1000, 0.2) if m.error() is None]
    consumer.close()
    return values


def test_records_arrive_as_documents(broker, topic, logger):
    handler = KafkaHandler(broker.bootstrap, topic, fields={"service": {"name": "shop"}}, flush_timeout=60)
    logger.addHandler(handler)
    logger.info("order %d of %s", 7, "Jürgen", extra={"user": 5, "what": {1: object}})
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    handler.flush()
    first, second = sorted(
        map(json.loads, read(broker.bootstrap, topic, 2)), key=lambda d: d["message"], reverse=True
    )
    assert first["message"] == "order 7 of Jürgen"
    assert first["log"]["level"] == "info"
    assert first["labels"]["user"] == 5
    assert first["service"] == {"name": "shop"}
    assert first["@timestamp"].endswith("Z")
    assert second["error"]["type"] == "ValueError"
    assert "Traceback" in second["error"]["stack_trace"]
    assert handler.dropped == 0


def test_what_json_cannot_hold_is_text(broker, topic, logger, capsys):
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=60)
    logger.addHandler(handler)
    name = os.fsdecode(b"\xe4.log")
    logger.info("cannot read %s", name, extra={"size": 1 << 70, "places": {(1, 2): [name, 3, None]}})
    logger.info("here", stack_info=True)
    handler.setFormatter(logging.Formatter("plain %(message)s"))
    logger.info("cannot read %s", name)
    handler.flush()
    assert handler.dropped == 0
    assert capsys.readouterr().err == ""
    plain, *documents = sorted(
        read(broker.bootstrap, topic, 3), key=lambda value: (value[:1] == b"{", b"here" in value)
    )
    assert plain == b"plain cannot read \\udce4.log"
    first, second = map(json.loads, documents)
    assert first["message"] == "cannot read \\udce4.log"
    assert first["labels"] == {"size": str(1 << 70), "places": {"(1, 2)": ["\\udce4.log", 3, None]}}
    assert "test_what_json_cannot_hold_is_text" in second["error"]["stack_trace"]


def test_dictconfig_with_a_formatter(broker, topic):
    name = f"configured.{topic}"
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(levelname)s|%(message)s"}},
        "handlers": {
            "kafka": {
                "class": "klamm.logging.KafkaHandler",
                "bootstrap_servers": broker.bootstrap,
                "topic": topic,
                "key": "k",
                "formatter": "plain",
                "flush_timeout": 60,
                "config": {"linger.ms": 1},
            }
        },
        "loggers": {name: {"handlers": ["kafka"], "level": "INFO", "propagate": False}},
    })  # fmt: skip
    logger = logging.getLogger(name)
    logger.warning("hello")
    logger.handlers[0].close()
    logger.handlers.clear()
    assert read(broker.bootstrap, topic, 1) == [b"WARNING|hello"]


def test_children_of_forks_in_bad_moments_lose_nothing_in_silence(broker, topic, logger):
    """Threads of the parent are in the middle of librdkafka and of libc's resolver: what they lock stays locked in the child."""
    over, forks, dropped = threading.Event(), 25, 0

    def open_and_close():
        while not over.is_set():
            client = Client(broker.bootstrap, topic, None, {}, 1 << 20)
            client.open()
            client.close()

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(open_and_close) for _ in range(4)]
        try:
            for _ in range(forks):
                handler = KafkaHandler(broker.bootstrap, topic)
                logger.addHandler(handler)
                code = log_in_child(logger, handler)
                logger.removeHandler(handler)
                handler.close()
                assert code in {0, 1}
                dropped += code
        finally:
            over.set()
        for thread in threads:
            thread.result()
    assert dropped < forks
    assert len(read(broker.bootstrap, topic, forks - dropped)) >= forks - dropped


def test_a_child_after_a_fork_has_its_own_producer(broker, topic, logger):
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=60)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.info("parent before")
    assert log_in_child(logger, handler) == 0, "the child did not end well"
    logger.info("parent after")
    handler.flush()
    assert sorted(read(broker.bootstrap, topic, 3)) == [b"child", b"parent after", b"parent before"]


def test_flush_ends_when_all_is_delivered_and_not_at_its_timeout(broker, topic, logger):
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=3600)
    logger.addHandler(handler)
    for i in range(20):  # a flush that overlooks the thread's rest waits for an hour
        logger.info("line %d", i)
        handler.flush()
    assert handler.statistics()["queued"] == handler.dropped == 0


def test_nobody_waits_when_the_broker_is_away(topic, logger, capsys):
    handler = KafkaHandler("127.0.0.1:1", topic, queue_bytes=64 * 1024, flush_timeout=0.2)
    logger.addHandler(handler)
    longest = 0.0
    for i in range(2000):
        begin = time.perf_counter()
        logger.info("line %d %s", i, "x" * 100)
        longest = max(longest, time.perf_counter() - begin)
    assert longest < 30
    assert 0 < handler.dropped < 2000
    logger.removeHandler(handler)
    begin = time.monotonic()
    handler.close()
    assert time.monotonic() - begin < 30
    assert handler.dropped == 2000
    said = capsys.readouterr().err
    assert said.count("KafkaHandler: ") == 1
    assert topic in said


def test_threads_share_a_handler_and_a_signal_handler_may_log(broker, topic, logger):
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=60)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    previous = signal.signal(signal.SIGALRM, lambda *_: logger.info("alarm"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        threads = [
            threading.Thread(target=lambda n=n: [logger.info("%d-%d", n, i) for i in range(1000)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for i in range(1000):
            logger.info("main-%d", i)
        for thread in threads:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    handler.close()
    expected = {f"{n}-{i}".encode() for n in (0, 1, 2, 3, "main") for i in range(1000)}
    with TopicReader(broker.bootstrap, topic) as reader:
        wait_until(
            lambda: reader.read() is not None and expected <= {m.value() for m in reader.seen}, "every record"
        )
        assert {m.value() for m in reader.seen} - {b"alarm"} == expected
    assert handler.dropped == 0


def test_settings_that_the_client_refuses_are_an_error(topic):
    with pytest.raises(ConfigError, match=r"no\.such"):
        KafkaHandler("127.0.0.1:1", topic, config={"no.such.setting": 1})


def test_microseconds_per_call(broker, topic, logger):
    # Room for all of them: nothing is sent before the first connection
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=60, queue_bytes=1 << 26)
    logger.addHandler(handler)
    count = 20_000
    begin = time.perf_counter()
    for i in range(count):
        logger.info("order %d accepted for user %s", i, "someone")
    each = (time.perf_counter() - begin) / count * 1e6
    print(f"KafkaHandler: {each:.1f} us per call")
    handler.close()  # docs/python-logging.md has the figure of a quiet machine
    assert handler.dropped == 0
