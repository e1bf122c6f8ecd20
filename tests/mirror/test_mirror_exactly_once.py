"""MirrorSourceConnector with `exactly.once.source.support=enabled`: each record once, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import new_topic
from support.kafka_broker import KafkaBroker
from support.mirroring import Row, produce
from support.mirroring_once import Mirror, numbered

from klamm.testing import EmbeddedBroker


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    with EmbeddedBroker(tmp_path / "a") as source, EmbeddedBroker(tmp_path / "b") as target:
        yield source, target


@pytest.mark.usefixtures("processes")
def test_each_record_comes_once_after_kills_of_every_process(clusters, tmp_path: Path):
    source, target = clusters
    topic = new_topic(source)
    mirror = Mirror(source.bootstrap, target.bootstrap, topic, tmp_path)
    sent: list[Row] = []
    try:
        for round_, victim in enumerate([None, "mirror", "target", "source", "mirror"]):
            more = numbered(len(sent), 5_000)
            produce(source.bootstrap, topic, more[:2_500])
            if victim == "mirror":
                mirror.kill()
            elif victim is not None:
                broker = target if victim == "target" else source
                broker.kill()
                broker.start()
            produce(source.bootstrap, topic, more[2_500:])
            sent += more
            if round_ % 2:
                mirror.wait_for_records(len(sent))
        got = mirror.wait_for_records(len(sent))
        assert [value for _, value in got] == [value for _, value, _, _ in sent]
    finally:
        mirror.worker.end()


@pytest.mark.usefixtures("processes")
def test_aborted_records_are_refused_with_exactly_once(clusters, tmp_path: Path):
    source, target = clusters
    mirror = Mirror(source.bootstrap, target.bootstrap, new_topic(source), tmp_path)
    try:
        config = mirror.worker.get(f"/connectors/{mirror.name}/config")
        config["source.consumer.isolation.level"] = "read_uncommitted"
        answer = mirror.worker.request("PUT", f"/connectors/{mirror.name}/config", config)
        assert answer.status == 400
        assert "exactly" in answer.json["message"]
    finally:
        mirror.worker.end()


@pytest.mark.usefixtures("apache_kafka", "processes")
def test_each_record_comes_once_to_apache_kafka(tmp_path: Path):
    (tmp_path / "kafka").mkdir()
    with EmbeddedBroker(tmp_path / "a") as source, KafkaBroker(tmp_path / "kafka", {}) as target:
        topic = new_topic(source)
        mirror = Mirror(source.bootstrap, target.address, topic, tmp_path)
        sent: list[Row] = []
        try:
            for _ in range(3):
                more = numbered(len(sent), 3_000)
                produce(source.bootstrap, topic, more)
                sent += more
                mirror.kill()
            got = mirror.wait_for_records(len(sent))
            assert [value for _, value in got] == [value for _, value, _, _ in sent]
        finally:
            mirror.worker.end()
