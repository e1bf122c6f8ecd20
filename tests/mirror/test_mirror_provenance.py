"""Identity flows in circles and meshes: each record is at each cluster once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name
from support.circles import Circle
from support.mirroring import produce

from klamm.testing import EmbeddedBroker

BOTH = ["AB", "BA"]
RING = ["AB", "BC", "CA"]
MESH = ["AB", "BA", "BC", "CB", "CA", "AC"]
CHAIN = ["AB", "BC"]


@pytest.fixture(scope="module")
def clusters(source, target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with EmbeddedBroker(tmp_path_factory.mktemp("third") / "data") as third:
        yield {"A": source.bootstrap, "B": target.bootstrap, "C": third.bootstrap}


def topic_at(clusters: dict[str, str], **config: str) -> str:
    name = new_name()
    for servers in clusters.values():
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics([NewTopic(name, 1, 1, config=config)])
        made[name].result(60)
    return name


def write(servers: str, topic: str, tag: str, count: int, **config: Any) -> list[bytes]:
    values = [f"{tag}{i}".encode() for i in range(count)]
    rows = [(f"k{i}".encode(), v, [], 1_700_000_000_000 + i) for i, v in enumerate(values)]
    produce(servers, topic, rows, **config)
    return values


def reaches(flows: list[str], origin: str, alias: str) -> bool:
    found, news = {origin}, {origin}
    while news:
        news = {f[1] for f in flows if f[0] in news} - found
        found |= news
    return alias in found


@pytest.mark.parametrize(
    ("aliases", "flows"),
    [("AB", BOTH), ("ABC", RING), ("ABC", MESH), ("ABC", CHAIN), ("ABC", [*CHAIN, "AC"])],
    ids=["both ways", "ring", "mesh", "chain", "two ways"],
)
def test_a_record_is_at_each_cluster_once(clusters, aliases, flows):
    used = {alias: clusters[alias] for alias in aliases}
    topic = topic_at(used)
    written = {alias: write(used[alias], topic, f"{alias}-", 100) for alias in aliases}
    with Circle(used, flows, topic, mesh="AC" in flows) as circle:
        circle.settle()
        for alias in aliases:
            written[alias] += write(used[alias], topic, f"{alias}-more-", 5)
        circle.settle()
        for alias in aliases:
            got = circle.values(alias)
            expected = [v for origin in aliases if reaches(flows, origin, alias) for v in written[origin]]
            assert sorted(got) == sorted(expected)
            for origin in aliases:  # in the order in which they were written
                assert [v for v in got if v.startswith(f"{origin}-".encode())] in ([], written[origin])
        if flows == BOTH:
            assert circle.left_out("AB", "of_target") > 0
            assert circle.left_out("BA", "of_target") > 0
        assert all(r.contexts[0].said[-1]["lag"] == 0 for r in circle.running.values())
