"""Keys of tasks that Kafka does not have: checked where they are given, and in no answer where they are not."""

import pytest

from klamm.connect.definitions import SINK, SOURCE
from klamm.connect.model import PluginInfo
from klamm.connect.plugins import PluginRegistry
from klamm.connect.validation import common_keys


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
