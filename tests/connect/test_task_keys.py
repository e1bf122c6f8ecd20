"""Keys of tasks that Kafka does not have: checked where they are given, and in no answer where they are not."""

import pytest
from support.runtime import task_spec, worker_props

from klamm.cli.connector import _details, _restart_text, _retries
from klamm.connect.child.clients import consumer_config, max_poll_records
from klamm.connect.model import Kind, PluginInfo
from klamm.connect.plugins.catalog import PluginRegistry
from klamm.connect.validation.connector import common_keys
from klamm.connect.validation.definitions import SINK, SOURCE
from klamm_base.errors import ConfigError


def errors(kind, config):
    plugin = PluginInfo("a.B", kind, "1")
    keys = common_keys(plugin, config, {}, PluginRegistry([plugin]))
    return {v.name: v.errors for v in keys.validate({"name": "c", "connector.class": "a.B", **config})}


@pytest.mark.parametrize(("kind", "kafkas"), [("source", SOURCE), ("sink", SINK)])
def test_answers_are_kafkas_where_nothing_else_is_asked(kind, kafkas):
    assert list(errors(kind, {})) == list(kafkas.names)


@pytest.mark.parametrize("kind", ["source", "sink"])
@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("task.heartbeat.timeout.ms", "10"),
        ("task.memory.max.bytes", "1g"),
        ("task.restart.max", "-1"),
        ("errors.deadletterqueue.topic.replication.factor", "x"),
        ("errors.retry.timeout", "soon"),
    ],
)
def test_what_is_given_is_checked(kind, key, bad):
    said = errors(kind, {key: bad})[key]
    assert f"Invalid value {bad} for configuration {key}" in said[0]
    assert errors(kind, {key: "1000"})[key] == []


@pytest.mark.parametrize(
    ("worker", "override", "session", "heartbeat"),
    [({}, {}, "10000", "3000"), ({"session.timeout.ms": "6000"}, {}, "6000", "2000"),
     ({}, {"consumer.override.session.timeout.ms": "45000"}, "45000", "3000")],
)  # fmt: skip
def test_a_killed_sink_is_missed_as_soon_as_its_worker(worker, override, session, heartbeat):
    spec = task_spec("s", override, kind=Kind.SINK, worker=worker_props(**worker))
    config = consumer_config(spec)
    assert (config["session.timeout.ms"], config["heartbeat.interval.ms"]) == (session, heartbeat)
    assert max_poll_records(spec, 7) == 7


def test_how_many_records_put_gets_is_checked():
    def spec(value):
        return task_spec("s", {"consumer.override.max.poll.records": value}, kind=Kind.SINK)

    assert max_poll_records(spec("5"), 7) == 5
    assert "max.poll.records" not in consumer_config(spec("5"))
    with pytest.raises(ConfigError, match=r"max\.poll\.records"):
        max_poll_records(spec("0"), 7)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"attempt": 2, "next_try_ms": 5_000}, "failed 3 s ago (crash), restart 2 in 1 s, 8 of 10 left within 3600 s"),
        ({"attempt": 2, "next_try_ms": 3_000}, "failed 3 s ago (crash), restart 2 1 s ago, 8 of 10 left within 3600 s"),
        ({"attempt": 0, "why": "a data error is permanent"}, "failed 3 s ago (crash), not restarted: a data error is permanent"),
    ],
)  # fmt: skip
def test_a_restart_is_one_line(more, said):
    note = {"error": "crash", "failed_ms": 1_000, "left": 8, "budget": 10, "window_ms": 3_600_000}
    assert _restart_text(note | more, 4_000) == said


def test_figures_that_say_something_are_shown():
    details = {
        "bytes": 7,
        "figures": {"x": 1},
        "errors": {"total-retries": 2, "total-errors-logged": 0, "last-error-timestamp": 5},
    }
    assert _details(details) == "bytes 7, total-retries 2"


def test_what_is_tried_again_is_a_line_of_its_own():
    retrying = {"put": {"error": "No space left on device", "since_ms": 1_000, "attempts": 3}}
    tasks = [{"id": 0}, {"id": 1, "progress": {"details": {"bytes": 7, "retrying": retrying}}}]
    assert list(_retries(tasks, 5_000)) == [
        ("task 1", "put has been retried for 4 s, 3 failed attempts: No space left on device")
    ]
    assert _details(tasks[1]["progress"]["details"]) == "bytes 7"
