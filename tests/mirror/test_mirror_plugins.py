"""Filters, policies and forwarding admins of plugin packages: the page's example in a worker, and mistakes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient
from support import mirror
from support.broker import new_name, new_topic, wait_until
from support.klamm import Server
from support.mirroring import change, produce, props, read, rows

from klamm.testing import EmbeddedWorker
from klamm.testing.exposed import expose
from klamm_base.configdef import ConfigDef, Type
from klamm_mirror.settings import mm2_config
from klamm_mirror.settings.plugins import FlowPlugins
from klamm_mirror.source.connector import MirrorSourceConnector
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import ConfigError
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.mirror import ConfigPropertyFilter, ForwardingAdmin, GroupFilter, NewTopic, TopicFilter
from klamm_plugins.testing import MemoryTopicAdmin

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/writing-plugins.md").read_text("utf-8")
EXAMPLE = next(b.split("```")[0] for b in PAGE.split("```python\n") if "class TeamTopics" in b)


class Odd(TopicFilter, GroupFilter, ConfigPropertyFilter):
    """Three kinds in one class."""

    @classmethod
    def config(cls):
        return ConfigDef().define("odd.length", Type.INT, documentation="The length of wanted names.")

    def configure(self, props):
        if props["odd.length"] == 13:
            raise RuntimeError("never 13")
        self._length = props["odd.length"]

    def should_replicate_topic(self, topic):
        return len(topic) == self._length

    def should_replicate_group(self, group):
        return len(group) == self._length

    def should_replicate_config_property(self, prop):
        return len(prop) == self._length


@pytest.fixture
def odd(monkeypatch):
    """Makes Odd a registered plugin."""
    manager = PluginManager()
    manager.register(SimpleNamespace(register_mirror_plugins=hookimpl(lambda: [Odd])), "odd")
    monkeypatch.setattr(PluginManager, "load", lambda: manager)


def errors(**config: str) -> dict[str, list[str]]:
    values = MirrorSourceConnector.validate(props("localhost:1", "localhost:2", **config))
    return {v.name: v.errors for v in values if v.errors}


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("name", ["Odd", f"{__name__}.Odd", f"{__name__}:Odd"])
def test_a_plugin_takes_the_place_of_the_lists(name):
    config = props(
        "localhost:1", "localhost:2", topic__filter__class=name, config__property__filter__class=name,
        odd__length="3",
    )  # fmt: skip
    assert not errors(**{k.replace(".", "__"): v for k, v in config.items()})
    plugins = FlowPlugins(config, MirrorSourceConnector.config().parse(config))
    assert [plugins.wants_topic(t) for t in ("abc", "abcd")] == [True, False]
    assert [plugins.configs.wants(t) for t in ("abc", "abcd")] == [True, False]
    assert not plugins.configs.wants_default("abc")


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("config", "key", "said"),
    [
        ({"topic__filter__class": "com.acme.Filter"}, "topic.filter.class", r"com\.acme\.Filter could not be found; .* lists all.*Java"),
        ({"topic__filter__class": "org.apache.kafka.Other"}, "topic.filter.class", "DefaultTopicFilter, or a Python class"),
        ({"replication__policy__class": "Odd"}, "replication.policy.class", "A ReplicationPolicy is a Python class"),
        ({"forwarding__admin__class": ""}, "forwarding.admin.class", "Must be org.apache.kafka"),
        ({"topic__filter__class": "Odd"}, "odd.length", "Missing required configuration"),
        ({"topic__filter__class": "Odd", "odd__length": "x"}, "odd.length", "Invalid value x"),
        ({"topic__filter__class": "Odd", "odd__length": "13"}, "topic.filter.class", "RuntimeError: never 13"),
    ],
)  # fmt: skip
def test_mistakes_stand_beside_their_keys(config, key, said):
    [(name, [message])] = errors(**config).items()
    assert name == key
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(message)


@pytest.fixture
def acme(tmp_path, monkeypatch) -> ModuleType:
    """The page's example, as a module that other processes find."""
    name = new_name("acme").replace("-", "_")
    (tmp_path / f"{name}.py").write_text(EXAMPLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__(name)
    del sys.modules[name]


def test_the_forwarding_admin_on_the_page_can_be_tested_alone(acme):
    admin: ForwardingAdmin = acme.SmallTopics()
    admin.delegate = delegate = MemoryTopicAdmin()
    small, large = (NewTopic(name=f"t{n}", num_partitions=n, replication_factor=1) for n in (1, 13))
    assert admin.create_topics([small, large]) == {"t13": "more than 12 partitions"}
    assert delegate.topics == [small]
    assert admin.create_partitions({"t1": 2}) == admin.create_acls([]) == {}
    assert delegate.partitions == {"t1": 2}


def test_the_plugins_on_the_page_decide_in_a_worker(source, target, acme):
    team = new_name("team").replace(".", "-")
    ours = new_topic(source, 2, name=f"{team}.orders")
    new_topic(source, 13, name=f"{team}.large")
    new_topic(source, name=f"other.{team}")
    produce(source.bootstrap, ours, rows(10))
    names = {
        key: f"{acme.__name__}.{name}"
        for key, name in (
            ("topic.filter.class", "TeamTopics"),
            ("replication.policy.class", "SuffixPolicy"),
            ("forwarding.admin.class", "SmallTopics"),
        )
    }
    config = props(source.bootstrap, target.bootstrap, sync__topic__configs__interval__seconds="1") | names
    plugins = [acme.TeamTopics, acme.SuffixPolicy, acme.SmallTopics]
    with EmbeddedWorker(target.bootstrap, plugins=plugins) as worker:
        worker.create("m", {**config, "acme.teams": team})
        assert read(target.bootstrap, f"{ours}.from-A", 10) == rows(10)
        change(AdminClient({"bootstrap.servers": source.bootstrap}), ours, "retention.ms", "3600000")
        wait_until(lambda: "retention.ms is less than a day" in worker.log_text, "the refusal of settings")
        there = AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=60).topics
        assert {t for t in there if team in t} == {f"{ours}.from-A"}
        assert f"making {team}.large.from-A is refused: more than 12 partitions" in worker.log_text


def test_a_plugins_own_keys_pass_through_a_file():
    lines = {
        "clusters": "A,B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1", "A->B.enabled": "true",
        "A->B.topic.filter.class": "TeamTopics", "A->B.acme.teams": "payments",
    }  # fmt: skip
    config = mm2_config.parse(lines, MirrorSourceConnector.config().names)
    assert not config.warnings
    assert config.flow("A->B").connectors[mm2_config.SOURCE]["acme.teams"] == "payments"
    del lines["A->B.topic.filter.class"]
    [warning] = mm2_config.parse(lines, MirrorSourceConnector.config().names).warnings
    assert "acme.teams has no effect" in warning


def test_the_plugins_on_the_page_decide_in_dedicated_mode(source, target, acme, tmp_path, monkeypatch):
    a, b, team, group = new_name("a"), new_name("b"), new_name("team").replace(".", "-"), new_name("group")
    ours, others = new_topic(source, name=f"{team}.orders"), new_topic(source, name=f"other.{team}")
    for topic in (ours, others):
        mirror.produce(source.bootstrap, topic, map(str, range(100)))
        mirror.read_as(source.bootstrap, group, topic, lambda values: len(values) == 100)
    folders = expose([acme.TeamTopics, acme.SuffixPolicy], tmp_path / "plugins")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    lines = {
        "enabled": "true", "topic.filter.class": "TeamTopics", "replication.policy.class": "SuffixPolicy",
        "acme.teams": team, "groups": group,
    }  # fmt: skip
    flows = {f"{a}->{b}.{key}": value for key, value in lines.items()} | {"emit.heartbeats.enabled": "false"}
    path = mirror.mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    with Server("mirror", "start", str(path)) as server:
        remote = f"{ours}.from-{a}"
        mirror.read_all(target.bootstrap, remote, lambda values: len(values) == 100)
        wait_until(lambda: mirror.committed(target.bootstrap, group, remote) == 100, "the group's offset")
        assert {t for t in mirror.topics(target.bootstrap) if team in t} == {remote}
        assert server.stop() == 0
