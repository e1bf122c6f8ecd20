"""Another cluster at the address of a flow's source: nothing is deleted or made anew for it, until somebody says that it is right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.broker import wait_until
from support.gaps import LEDGER, gaps, make
from support.klamm import klamm
from support.mirror import mirror_file
from support.mirroring import Running, produce, props, read, rows

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_mirror.gaps.entries import Known, decode
from klamm_mirror.gaps.ledger import Ledger
from klamm_mirror.gaps.source_cluster import OtherSource, check_source, moved_to
from klamm_mirror.stops import Kind

OFTEN = {"refresh__topics__interval__seconds": "1", "sync__topic__deletions": "delete"}


@pytest.mark.usefixtures("processes")
def test_an_empty_cluster_at_the_sources_address_deletes_no_copy(tmp_path: Path):
    target, lost = EmbeddedBroker(tmp_path / "b").start(), EmbeddedBroker(tmp_path / "a").start()
    topic = make(lost.bootstrap, "orders")
    produce(lost.bootstrap, topic, rows(100))
    mirror = Running(props(lost.bootstrap, target.bootstrap, topics=topic, **OFTEN)).start()
    mirror.until(lambda: mirror.records == 100, "copied")
    lost.kill()
    empty = EmbeddedBroker(tmp_path / "a2", port=lost.port).start()
    try:
        mirror.until(lambda: "--new-source" in mirror.details().get("why", ""), "it says so")
        assert len(read(target.bootstrap, "A.orders", None)) == 100
        assert not gaps(target.bootstrap, topic)

        path = mirror_file(
            tmp_path / "mm2.properties", {"A": lost.bootstrap, "B": target.bootstrap}, {"A->B.enabled": "true", "topics": topic}
        )  # fmt: skip
        done = klamm("mirror", "resolve", str(path), "A->B", "--new-source")
        assert done.returncode == 0, done.stderr
        mirror.until(lambda: gaps(target.bootstrap, topic), "the topic's end")
        assert gaps(target.bootstrap, topic)[0].kind is Kind.DELETED
        wait_until(lambda: not asyncio.run(_known(target.bootstrap, topic)).made, "the entry")
        assert (
            "A.orders" in AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=60).topics
        )
    finally:
        mirror.stop()
        empty.stop()
        target.stop()


async def _known(bootstrap: str, topic: str) -> Known:
    async with Cluster(bootstrap) as cluster:
        ledger = Ledger(cluster, LEDGER, 1)
        await ledger.catch_up()
        return ledger.table.topics[topic]


KNOWN = Known(topic="t", topic_id=b"t" * 16, partitions=1, made=b"m" * 16, cluster="one")


@pytest.mark.parametrize("cluster", ["one", None])
def test_the_same_cluster_and_one_without_an_id_go_on(cluster):
    check_source([KNOWN], cluster, "A->B")
    assert decode(*KNOWN.encode()) == KNOWN


def test_another_cluster_stops_the_flow_until_the_topics_are_its():
    with pytest.raises(OtherSource, match="cluster two now, and t was copied from cluster one"):
        check_source([KNOWN], "two", "A->B")
    [moved] = moved_to([KNOWN], "two")
    check_source([moved], "two", "A->B")
    assert moved.made is None, "its copy stays, also where the new cluster lacks the topic"
