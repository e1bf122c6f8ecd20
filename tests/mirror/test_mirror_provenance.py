"""Identity flows in circles and meshes: each record is at each cluster once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.broker import new_name, wait_until
from support.circles import REST_S, Circle, end, topic_at, write
from support.klamm import Server
from support.mirror import committed, mirror_file, read_as
from support.mirroring import read

from klamm.testing import EmbeddedBroker

BOTH = ["AB", "BA"]
RING = ["AB", "BC", "CA"]
MESH = ["AB", "BA", "BC", "CB", "CA", "AC"]
CHAIN = ["AB", "BC"]
QUIET = {
    "replication.policy.class": "IdentityReplicationPolicy",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.group.offsets.enabled": "false",
}


@pytest.fixture(scope="module")
def clusters(source, target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with EmbeddedBroker(tmp_path_factory.mktemp("third") / "data") as third:
        yield {"A": source.bootstrap, "B": target.bootstrap, "C": third.bootstrap}


def rows_of(servers: str, topic: str) -> list[bytes]:
    return [row[1] or b"" for row in read(servers, topic, None)]


def has_all(servers: str, topic: str, values: list[bytes]) -> bool:
    return end(servers, topic) >= len(values) and set(rows_of(servers, topic)) == set(values)


def settled(one: str, other: str, topic: str) -> tuple[int, int]:
    """The ends of both, once they have stood still for longer than a batch needs to go round."""
    since, ends = time.monotonic(), (-1, -1)
    while time.monotonic() - since < 3:
        now = end(one, topic), end(other, topic)
        if now != ends:
            since, ends = time.monotonic(), now
        time.sleep(0.1)
    return ends


def metric(context: Any, name: str) -> Any:
    return next((t.rows[0][t.columns.index(name)] for t in context.tables if name in t.columns), None)


def reaches(flows: list[str], origin: str, alias: str) -> bool:
    found, news = {origin}, {origin}
    while news:
        news = {f[1] for f in flows if f[0] in news} - found
        found |= news
    return alias in found


every_shape = pytest.mark.parametrize(
    ("aliases", "flows"),
    [("AB", BOTH), ("ABC", RING), ("ABC", MESH), ("ABC", CHAIN), ("ABC", [*CHAIN, "AC"])],
    ids=["both ways", "ring", "mesh", "chain", "two ways"],
)


@every_shape
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
            context = circle.running["BA"].contexts[0]
            wait_until(lambda: metric(context, "batches_of_target_total"), "the metric")
        assert all(r.contexts[0].said[-1]["lag"] == 0 for r in circle.running.values())


@every_shape
@pytest.mark.usefixtures("soak")
@pytest.mark.timeout(180 + 2 * REST_S)
def test_100_records_stay_100(clusters, aliases, flows):
    """KLAMM_REST_SECONDS says for how long (60). A later record goes its way as the first ones."""
    used = {alias: clusters[alias] for alias in aliases}
    topic = topic_at(used, **{"retention.ms": "-1"})  # the records are old
    written = write(used["A"], topic, "a-", 100)
    with Circle(used, flows, topic, mesh="AC" in flows) as circle:
        circle.settle()
        circle.rest(REST_S)
        written += write(used["A"], topic, "later-", 1)
        circle.settle()
        for alias in aliases:
            assert circle.values(alias) == written


def test_both_ways_through_crashes_of_the_mirror(source, target, tmp_path):
    """`kill -9` may repeat what was not committed; a repeated record does not go back either."""
    topic = topic_at({"A": source.bootstrap, "B": target.bootstrap})
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "topics": topic, **QUIET}
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, flows)
    written: list[bytes] = []
    server = Server("mirror", "start", str(path))
    try:
        for turn in range(2):
            for broker in (source, target):
                written += write(broker.bootstrap, topic, f"{broker.port}-{turn}-", 2000)
            wait_until(lambda: end(target.bootstrap, topic) > len(written) * 3 // 4, "under way")
            server.process.kill()
            server.stop()
            server = Server("mirror", "start", str(path))
        more = [write(broker.bootstrap, topic, f"{broker.port}-more-", 5) for broker in (source, target)]
        written += [value for values in more for value in values]
        for broker in (source, target):
            wait_until(partial(has_all, broker.bootstrap, topic, written), "all records", timeout_s=60)
        ends = settled(source.bootstrap, target.bootstrap, topic)
        assert max(ends) <= 3 * len(written), "each crash repeats what was under way at most"
        for here, other in ((source, target), (target, source)):
            values = rows_of(here.bootstrap, topic)
            own = [v for v in values if v.startswith(b"%d-" % here.port)]
            assert len(own) == len(set(own)), "no record came back"
            assert {v for v in values if v.startswith(b"%d-" % other.port)} <= set(written)
        assert server.stop() == 0
    finally:
        server.stop()


def test_a_group_moves_in_a_topic_that_both_clusters_write(source, target, tmp_path):
    """It reads everything at least once, although copies and own records lie differently at each cluster."""
    topic, group = topic_at({"A": source.bootstrap, "B": target.bootstrap}), new_name("group")
    # At the source, the target's records come behind its own; at the target, they are the first.
    written = write(target.bootstrap, topic, "b-", 300)
    written += write(source.bootstrap, topic, "a-", 300)
    a, b = new_name("a"), new_name("b")
    flows = {f"{a}->{b}.enabled": "true", f"{b}->{a}.enabled": "true", "topics": topic, "groups": group}
    settings = flows | {
        "replication.policy.class": "IdentityReplicationPolicy",
        "emit.heartbeats.enabled": "false",
    }
    path = mirror_file(tmp_path / "mm2.properties", {a: source.bootstrap, b: target.bootstrap}, settings)
    with Server("mirror", "start", str(path)):
        for broker in (source, target):
            wait_until(partial(has_all, broker.bootstrap, topic, written), "all records")
        read_here = read_as(source.bootstrap, group, topic, lambda v: len(v) >= 250)
        wait_until(lambda: committed(target.bootstrap, group, topic) >= 0, "the group's offset")
        first = min(i for i, v in enumerate(rows_of(target.bootstrap, topic)) if v.decode() not in read_here)
        wait_until(lambda: committed(target.bootstrap, group, topic) == first, "its first unread record")
        read_there = read_as(
            target.bootstrap, group, topic, lambda v: len(set(v) | set(read_here)) == len(written)
        )
        assert {v.encode() for v in (*read_here, *read_there)} == set(written)
