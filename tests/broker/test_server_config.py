"""server.properties: what is read, what follows from it, and what is refused with which sentence."""

from __future__ import annotations

import logging

import pytest

from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties
from klamm_broker.log.topic_config import TOPIC_CONFIGS
from klamm_broker.server.config import BrokerConfig
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.listener_config import Listener, SecurityProtocol
from klamm_broker.server.topic_config import SYNONYMS


def test_defaults():
    config = BrokerConfig.load({})
    assert config.listeners == (Listener(name="PLAINTEXT", host="localhost", port=9092),)
    assert config.advertised == config.listeners
    assert str(config.log_dir) == "klamm-data"
    assert (config.node_id, config["num.partitions"]) == (1, 1)
    assert config["auto.create.topics.enable"] is True
    assert config.topic_defaults == {}


def test_every_key_is_documented_and_every_default_is_valid():
    BROKER_CONFIG.parse({})
    assert [key.name for key in BROKER_CONFIG if not key.documentation] == []


@pytest.mark.parametrize(
    ("props", "topic_key", "value"),
    [
        ({"log.retention.hours": "2"}, "retention.ms", "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", "180000"),
        ({"log.retention.ms": "5", "log.retention.minutes": "3"}, "retention.ms", "5"),
        ({"log.retention.hours": "-1"}, "retention.ms", "-1"),
        ({"log.roll.hours": "1"}, "segment.ms", "3600000"),
        ({"log.segment.bytes": "2000000"}, "segment.bytes", "2000000"),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup.policy", "compact,delete"),
        ({"message.max.bytes": "7"}, "max.message.bytes", "7"),
        ({"min.insync.replicas": "2"}, "min.insync.replicas", "2"),
        ({"log.preallocate": "true"}, "preallocate", "true"),
    ],
)
def test_broker_properties_become_topic_defaults(props, topic_key, value):
    assert BrokerConfig.load(props).topic_defaults == {topic_key: value}


def test_synonyms_are_known_keys_with_the_topic_key_s_default():
    for topic_key, synonyms in SYNONYMS.items():
        for name, _ in synonyms:
            config = BrokerConfig.load(
                {name: "1000000000"} if TOPIC_CONFIGS[topic_key].type == "LONG" else {}
            )
            assert name in config.values


def test_broker_id_stands_in_for_node_id():
    assert BrokerConfig.load({"broker.id": "7"}).node_id == 7
    assert BrokerConfig.load({"broker.id": "7", "node.id": "8"}).node_id == 8


def test_listeners():
    config = BrokerConfig.load(
        {
            "listeners": "IN://:9093, OUT://[::1]:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:plaintext",
            "advertised.listeners": "OUT://broker.example.org:19092",
        }
    )
    assert config.listeners == (
        Listener(name="IN", host="", port=9093),
        Listener(name="OUT", host="::1", port=0),
    )
    assert config.advertised == (Listener(name="OUT", host="broker.example.org", port=19092),)


@pytest.mark.parametrize(
    ("props", "match"),
    [
        ({"ssl.client.auth": "maybe"}, "must be one of: required, requested, none"),
        ({"ssl.enabled.protocols": "SSLv3"}, "must be one of: TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        ({"listener.security.protocol.map": "A:TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"listener.security.protocol.map": "A:SSL,a:PLAINTEXT"}, "listener name A has two entries"),
        ({"inter.broker.listener.name": "IN"}, "must be a listener of advertised.listeners: PLAINTEXT"),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "only one of it and"),
        ({"listeners": "X://:9093"}, r"listener name X has no entry in listener\.security\.protocol\.map"),
        ({"listeners": "nonsense"}, "must look like PLAINTEXT://"),
        ({"listeners": "PLAINTEXT://h:70000"}, "must look like PLAINTEXT://"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "a name of its own"),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, r"set advertised\.listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be told to clients"),
        ({"advertised.listeners": "OTHER://h:1", "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
         "no listener of that name"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "must look like NAME:PLAINTEXT"),
        ({"log.dirs": "/a,/b,/a"}, "/a is named twice"),
        ({"log.dirs": "/a,,/b"}, "must be directories"),
        ({"durability": "yes"}, "must be one of: process, fsync"),
        ({"num.partitions": "0"}, "Value must be at least 1"),
        ({"num.partitions": "many"}, "Not a number of type INT"),
        ({"log.segment.bytes": "10"}, "Value must be at least 1048576"),
        ({"klamm.event.loop": "trio"}, "must be one of: auto, asyncio, uvloop"),
        ({"default.replication.factor": "3"}, "no more than 1"),
        ({"process.roles": "controller"}, "process.roles: there is no separate controller here"),
        ({"process.roles": "voter"}, "must be one of: broker, controller"),
        ({"listeners": "CONTROLLER://h:9093", "controller.listener.names": "controller"},
         "a listener for clients is needed"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(props, match):
    with pytest.raises(ConfigError, match=match) as caught:
        BrokerConfig.load(props)
    assert caught.value.key in props or caught.value.key in {"listeners", "advertised.listeners"}


def test_a_listener_has_properties_of_its_own():
    config = BrokerConfig.load(
        {
            "listeners": "IN://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT",
            "inter.broker.listener.name": "in",
            "num.partitions": "2",
            "listener.name.in.num.partitions": "3",
            "listener.name.out.num.partitions": "4",
        }
    )
    assert config.listeners[0].protocol is SecurityProtocol.PLAINTEXT
    assert config.of_listener("IN")["num.partitions"] == "3"
    assert config.of_listener("OTHER")["num.partitions"] == "2"
    assert config["num.partitions"] == 2


def test_a_bad_value_names_file_line_and_key(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.partitions=4\nlog.retention.hours=soon\n")
    with pytest.raises(ConfigError, match=r"server\.properties:3: .*soon.*log\.retention\.hours"):
        BrokerConfig.load(load_properties(file))


def test_keys_without_effect_are_named_once(caplog):
    with caplog.at_level(logging.WARNING):
        BrokerConfig.load({"num.network.threads": "3", "nmu.partitions": "3", "num.partition": "2"})
    assert [r.message for r in caplog.records] == [
        "configuration num.network.threads has no effect: not implemented",
        "configuration nmu.partitions is unknown and ignored; did you mean num.partitions?",
        "configuration num.partition is unknown and ignored; did you mean num.partitions?",
    ]


@pytest.mark.parametrize(
    "more", [{}, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}]
)
def test_a_controllers_listener_is_neither_opened_nor_told_to_clients(more, caplog):
    both = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    config = BrokerConfig.load(
        {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": both,
            "advertised.listeners": both,
            **more,
        }
    )
    assert config.listeners == (Listener(name="PLAINTEXT", host="127.0.0.1", port=9092),)
    assert config.advertised == config.listeners
    said = "listeners: CONTROLLER://127.0.0.1:9093 (controller.listener.names) is not opened: there is no separate"
    assert [r.message for r in caplog.records] == [f"{said} controller here"]


def test_replicas_that_cannot_be_had_are_warned_about_where_they_were_asked_for(caplog):
    factor = "transaction.state.log.replication.factor"
    BrokerConfig.load({"offsets.topic.replication.factor": "1", factor: "1"})
    assert caplog.records == []
    BrokerConfig.load({"offsets.topic.replication.factor": "3", factor: "2", "min.insync.replicas": "2"})
    said = [
        r.message.partition(" cannot be fulfilled: one node holds one replica")[:2] for r in caplog.records
    ]
    middle = " cannot be fulfilled: one node holds one replica"
    assert said == [
        ("offsets.topic.replication.factor=3", middle),
        (f"{factor}=2", middle),
        ("min.insync.replicas=2", middle),
    ]
