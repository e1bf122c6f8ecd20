"""structlog into a topic: KafkaLoggerFactory and EcsRenderer."""

from __future__ import annotations

import json
import logging

from support import needs
from support.broker import new_topic

from klamm.logging import EcsRenderer, KafkaHandler, KafkaLoggerFactory
from klamm.testing.topics import TopicReader

structlog = needs.module("structlog")


def arrived(bootstrap, topic, count):
    with TopicReader(bootstrap, topic) as reader:
        reader.wait_for(count)
        return [m.value() for m in reader.seen]


def test_events_are_documents(broker):
    topic = new_topic(broker)
    factory = KafkaLoggerFactory(broker.bootstrap, topic, flush_timeout=60)
    log = structlog.wrap_logger(
        factory(),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            EcsRenderer(fields={"service": {"name": "shop"}}),
        ],
    )
    with structlog.contextvars.bound_contextvars(request="r1"):
        log.bind(order=7).info("accepted", sum=1 << 70)
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    factory.close()
    first, second = map(json.loads, arrived(broker.bootstrap, topic, 2))
    assert first["message"] == "accepted"
    assert first["log"]["level"] == "info"
    assert first["labels"] == {"request": "r1", "order": 7, "sum": str(1 << 70)}
    assert first["service"] == {"name": "shop"}
    assert first["@timestamp"].endswith("Z")
    assert (second["error"]["type"], second["log"]["level"]) == ("ValueError", "error")
    assert "Traceback" in second["error"]["stack_trace"]
    assert factory.dropped == 0


def test_a_renderer_of_ones_own_and_configure(broker):
    topic = new_topic(broker)
    factory = KafkaLoggerFactory(broker.bootstrap, topic, key="k", flush_timeout=60)
    structlog.configure(
        processors=[structlog.processors.TimeStamper(fmt="iso"), structlog.processors.JSONRenderer()],
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )
    try:
        structlog.get_logger("any").warning("hello", n=1)
        factory.flush()
    finally:
        structlog.reset_defaults()
        factory.close()
    assert json.loads(arrived(broker.bootstrap, topic, 1)[0])["event"] == "hello"


def test_structlog_through_the_standard_library(broker):
    """The other usual way: structlog's records go through logging, to KafkaHandler with structlog's formatter."""
    topic = new_topic(broker)
    handler = KafkaHandler(broker.bootstrap, topic, flush_timeout=60)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer()))
    logger = logging.getLogger(topic)
    logger.propagate = False
    logger.addHandler(handler)
    log = structlog.wrap_logger(
        logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[structlog.stdlib.add_log_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    )
    log.warning("hello", n=1)
    handler.close()
    logger.removeHandler(handler)
    assert json.loads(arrived(broker.bootstrap, topic, 1)[0]) == {
        "event": "hello",
        "n": 1,
        "level": "warning",
    }
