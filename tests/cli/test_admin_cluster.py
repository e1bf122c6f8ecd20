"""The administrative commands on a Kafka of two brokers: leaders and coordinators are on both, and one dies."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from support.broker import wait_until
from support.kafka_broker import KafkaBroker
from support.kafka_cluster import SecondNode
from typer.testing import CliRunner

from klamm.cli.main import app


def call(address, *words, stdin=None):
    result = CliRunner().invoke(app, [*words, "-b", address, "-o", "json"], input=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def headless(address, topic):
    partitions = (
        AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=60).topics[topic].partitions
    )
    return any(p.leader < 0 for p in partitions.values())


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.timeout(300)
def test_every_broker_is_asked_what_it_alone_knows(tmp_path):
    (tmp_path / "1").mkdir()
    with (
        KafkaBroker(tmp_path / "1", {"offsets.topic.num.partitions": "4"}) as first,
        SecondNode(first, tmp_path / "2") as second,
    ):
        made = CliRunner().invoke(
            app,
            [
                "kafka-topics",
                "--bootstrap-server",
                second.address,
                "--create",
                "--topic",
                "t",
                "--replica-assignment",
                "1:2,2:1,1:2,2:1",
            ],
        )
        assert made.exit_code == 0, made.output
        producer = Producer({"bootstrap.servers": first.address})
        for partition in range(4):
            producer.produce("t", b"value", partition=partition)
        assert producer.flush(60) == 0
        expected = [(p, 1) for p in range(4)]
        assert [(r["partition"], r["offset"]) for r in call(second.address, "offsets", "t")] == expected
        groups = [f"group-{i}" for i in range(6)]
        for group in groups:
            call(
                second.address,
                "group",
                "import",
                "-",
                "-g",
                group,
                "--execute",
                "--timeout",
                "60",
                stdin="t,0,1\nt,1,0\n",
            )
        states = call(first.address, "group", "describe", *groups, "--state")
        assert {s["coordinator_id"] for s in states} == {1, 2}
        lags = call(first.address, "group", "describe", *groups)
        assert [(r["group"], r["partition"], r["lag"]) for r in lags] == [
            (g, p, p) for g in groups for p in (0, 1)
        ]
        assert {r["entity_name"] for r in call(first.address, "config", "describe", "--entity-type", "brokers", "--all")} == {
            "1", "2", "(default)",
        }  # fmt: skip
        made = ["kafka-topics", "--bootstrap-server", first.address, "--create", "--topic", "halved"]
        assert CliRunner().invoke(app, [*made, "--replica-assignment", "1,2"]).exit_code == 0
        second.kill()
        wait_until(lambda: headless(first.address, "halved"), "a partition without leader", timeout_s=120)
        halves = call(first.address, "topic", "describe", "halved")
        assert [(r["leader"], r["end_offset"]) for r in halves] == [(1, 0), (None, None)]
        # the leaders of partitions 1 and 3 are looked for until there are new ones
        found = call(first.address, "offsets", "t", "--timeout", "60")
        assert [(r["partition"], r["offset"]) for r in found] == expected
