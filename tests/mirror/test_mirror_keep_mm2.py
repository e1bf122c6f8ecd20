"""Mirror topics as the source of Apache's MirrorMaker: their own settings go no further, all others do."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import new_topic, wait_until
from support.kafka_broker import KafkaBroker
from support.mirror_maker import MirrorMaker
from support.mirror_topics import keeping, promote_by_config, refusal, state, wait_same
from support.mirroring import change, produce, read, rows, setting

pytestmark = pytest.mark.usefixtures("apache_kafka")


def test_mirrormaker_passes_mirror_topics_on_as_ordinary_ones(source, target, tmp_path: Path):
    copies = [new_topic(source), new_topic(source)]
    for topic in copies:
        produce(source.bootstrap, topic, rows(50, topic))
    with keeping(source.bootstrap, target.bootstrap, ",".join(copies)):
        for topic in copies:
            wait_same(source.bootstrap, target.bootstrap, topic)
    promote_by_config(target.bootstrap, copies[1])
    assert [state(target.bootstrap, topic) for topic in copies] == ["mirror", "promoted"]
    (tmp_path / "kafka").mkdir()
    with KafkaBroker(tmp_path / "kafka") as kafka:
        clusters = {"A": source.bootstrap, "B": target.bootstrap, "C": kafka.address}
        properties = {
            "clusters": ",".join(clusters), **{f"{a}.bootstrap.servers": at for a, at in clusters.items()},
            "B->A.enabled": "true", "B->C.enabled": "true", "topics": ",".join(copies),
            "sync.topic.configs.interval.seconds": "1", "refresh.topics.interval.seconds": "1",
        }  # fmt: skip
        with MirrorMaker(tmp_path, properties):
            for topic in copies:
                for at in (clusters["A"], clusters["C"]):
                    assert read(at, f"B.{topic}", 50) == rows(50, topic)
                change(
                    AdminClient({"bootstrap.servers": target.bootstrap}), topic, "retention.ms", "86400001"
                )
                for at in (clusters["A"], clusters["C"]):
                    admin = AdminClient({"bootstrap.servers": at})
                    wait_until(
                        lambda admin=admin, topic=topic: (
                            setting(admin, f"B.{topic}", "retention.ms") == "86400001"
                        ),
                        f"the setting of B.{topic}",
                    )
        for topic in copies:
            assert state(source.bootstrap, f"B.{topic}") is None
            assert refusal(source.bootstrap, f"B.{topic}", rows(1)) is None
