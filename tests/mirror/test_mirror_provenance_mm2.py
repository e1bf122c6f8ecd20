"""A flow of Kafka's MirrorMaker back, which writes no marks: its copies would come back as new records, without end."""

from __future__ import annotations

import pytest
from support.broker import wait_until
from support.circles import Circle, end, topic_at, write
from support.mirror_maker import MirrorMaker
from support.mirroring import read

pytestmark = pytest.mark.usefixtures("apache_kafka")


@pytest.fixture
def clusters(source, target) -> dict[str, str]:
    return {"A": source.bootstrap, "B": target.bootstrap}


def test_a_flow_back_of_mirrormakers_is_seen_and_refused(clusters, tmp_path):
    topic = topic_at(clusters)
    sent = write(clusters["A"], topic, "a-", 100)
    properties = {
        "clusters": "A,B",
        **{f"{alias}.bootstrap.servers": servers for alias, servers in clusters.items()},
        "A->B.enabled": "true",
        "topics": topic,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    }
    with MirrorMaker(tmp_path, properties):
        assert len(read(clusters["B"], topic, len(sent))) == len(sent)
        with Circle(clusters, ["BA"], topic) as circle:
            running = circle.running["BA"]
            wait_until(lambda: bool(running.errors), "the task fails", timeout_s=60)
        with pytest.raises(
            Exception, match=f"A flow A->B copies {topic} back under this name and writes no marks"
        ):
            raise running.errors[0]
    assert end(clusters["A"], topic) == len(sent)
