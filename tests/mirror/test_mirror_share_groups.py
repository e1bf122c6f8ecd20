"""Share groups between clusters of Apache Kafka: Java's share consumer goes on at the target, and no record is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import NO_RETENTION, new_name, wait_until
from support.kafka_broker import KafkaBroker
from support.klamm import Server, klamm
from support.mirror import mirror_file, status
from support.mirror_topics import read_offsets
from support.moves import IDENTITY, Mover
from support.raw import RawClient
from support.share_groups import BROKER, ShareReader, share

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm_mirror.checkpoint import groups
from klamm_mirror.checkpoint.coordinators import Committed
from klamm_mirror.checkpoint.groups import Kind

pytestmark = pytest.mark.usefixtures("apache_kafka")

GIVEN_BACK = [f"r{i}" for i in range(100, 105)]


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("a"), BROKER) as running:
        yield running


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("b"), BROKER) as running:
        yield running


@pytest.fixture(scope="module")
def klamm_b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker whose share groups are switched off."""
    with EmbeddedBroker(tmp_path_factory.mktemp("klamm") / "data", config=NO_RETENTION) as running:
        off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        with RawClient(running.port) as client:
            answer = client.request(UpdateFeaturesRequest(feature_updates=[off], timeout_ms=5_000), 1)
        assert not answer.error_code, answer
        yield running


def write(bootstrap: str, count: int) -> str:
    """Writes numbered records to a new topic, in transactions of ten: their markers are holes in the offsets."""
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": new_name("writer")})
    producer.init_transactions(60)
    for start in range(0, count, 10):
        producer.begin_transaction()
        for i in range(start, start + 10):
            producer.produce(topic, f"r{i}".encode())
        producer.commit_transaction(60)
    return topic


def names(first: int, end: int) -> set[str]:
    return {f"r{i}" for i in range(first, end)}


def starts(bootstrap: str, group: str) -> dict[tuple[str, int], Committed]:
    async def asked() -> dict[tuple[str, int], Committed]:
        async with Cluster(bootstrap) as cluster:
            return await groups.committed_offsets(cluster, group, Kind.SHARE)

    return asyncio.run(asked())


def next_record(bootstrap: str, topic: str, offset: int) -> str:
    """Returns the first record at or behind an offset."""
    found = read_offsets(bootstrap, topic, "read_committed")
    return next(value.decode() for o, value in found if o >= offset and value is not None)


def test_a_share_group_goes_on_before_its_first_record_that_is_not_acknowledged(a, b, tmp_path):
    topic, group = write(a.address, 200), new_name("group")
    accepted = share(a.address, group, topic, 60, GIVEN_BACK)
    accepted += share(a.address, group, topic, 90, GIVEN_BACK)
    start = starts(a.address, group)[topic, 0].offset
    flows = {"A->B.enabled": "true", "topics": topic, "groups": group, "emit.heartbeats.enabled": "false"}
    path = mirror_file(tmp_path / "mm2.properties", {"A": a.address, "B": b.address}, flows)
    remote = f"A.{topic}"

    def at_b() -> str | None:
        found = starts(b.address, group).get((remote, 0))
        return None if found is None else next_record(b.address, remote, found.offset)

    with Server("mirror", "start", str(path)):
        wait_until(lambda: at_b() == next_record(a.address, topic, start), "the start offset at B")
        assert starts(b.address, group)[remote, 0].offset < start, "A has markers before it"
        accepted += share(a.address, group, topic, 20)
        moved = next_record(a.address, topic, starts(a.address, group)[topic, 0].offset)
        wait_until(lambda: at_b() == moved, "the start offset at B moves on")
        assert status(path)["A->B"]["groups_left_out"] == {}
    first = int(moved[1:])
    rest = set(share(b.address, group, remote, 200 - first))
    assert names(0, 200) - set(accepted) <= rest, "nothing is skipped"
    assert rest == names(first, 200), "nothing before the start comes again"


def test_a_group_in_use_at_the_target_is_left_alone(a, b, tmp_path):
    topic, group = write(a.address, 50), new_name("group")
    share(a.address, group, topic, 10, ["r20"])
    share(a.address, group, topic, 20)  # the start offset is written with the next acknowledgement
    mover = Mover(tmp_path, {new_name("a"): a.address, new_name("b"): b.address}, topic, group, **IDENTITY)
    with Server("mirror", "start", str(mover.path)):
        wait_until(lambda: len(read_offsets(b.address, topic, "read_committed")) == 50, "the copy")
        with ShareReader(b.address, group, topic, 1, ["none"]):
            found = mover.run("cutover", "--quiet", "0.5")
    assert [p["verdict"] for p in found["steps"]["groups"]["found"]["places"]] == ["active"]


def test_a_cutover_waits_for_members_sets_and_counts(a, b, tmp_path):
    topic, group = write(a.address, 200), new_name("group")
    aliases = {new_name("a"): a.address, new_name("b"): b.address}
    mover = Mover(tmp_path, aliases, topic, group, **IDENTITY)
    with Server("mirror", "start", str(mover.path)):
        with ShareReader(a.address, group, topic, 150, GIVEN_BACK) as reader:
            said = mover.run("cutover", "--quiet", "0.5", "--timeout", "1", code=4)
            assert f"groups have members: {group}" in said
        done = klamm("mirror", "cutover", str(mover.path), mover.there, "--quiet", "0.5", timeout_s=120)
        assert done.returncode == 0, done.stderr
        before = starts(b.address, group)
        assert mover.run("cutover", "--undo")["phase"] == "undone"
        assert starts(b.address, group) == {}
        found = mover.run("cutover", "--quiet", "0.5")
        lost = mover.run("failover", "--force", "--dry-run")
    assert starts(b.address, group) == before
    [place] = found["steps"]["groups"]["found"]["places"]
    assert (place["kind"], place["verdict"], place["exact"]) == ("share", "set", True)
    assert f"share group {group} gets up to {place['again']} records again" in done.stderr
    [of_checkpoint] = lost["steps"]["groups"]["places"]
    assert (of_checkpoint["kind"], of_checkpoint["again"]) == ("share", None)
    first = int(next_record(b.address, topic, place["target_offset"])[1:])
    rest = set(share(b.address, group, topic, 200 - first))
    assert names(0, 200) - set(reader.accepted) <= rest, "nothing is skipped"
    assert len(rest & set(reader.accepted)) <= place["again"], "no more comes again than was told"


def test_a_target_without_share_groups_is_told(a, klamm_b, tmp_path):
    topic, group = write(a.address, 50), new_name("group")
    share(a.address, group, topic, 30, ["r20"])
    aliases = {new_name("a"): a.address, new_name("b"): klamm_b.bootstrap}
    mover = Mover(tmp_path, aliases, topic, group, **{**IDENTITY, "sync.group.offsets.enabled": "true"})
    with Server("mirror", "start", str(mover.path)):
        wait_until(lambda: status(mover.path)[mover.there]["groups_left_out"], "the reason")
        why = status(mover.path)[mover.there]["groups_left_out"][group]
        shown = klamm("mirror", "status", str(mover.path)).stdout
        found = mover.run("cutover", "--quiet", "0.5")
    assert why.startswith("left out at the target: ")
    assert f"group {group} is left out at the target" in " ".join(shown.split())
    assert [p["verdict"] for p in found["steps"]["groups"]["found"]["places"]] == ["unserved"]


def test_a_group_of_another_kind_keeps_its_name(a, b, tmp_path):
    topic, group = write(a.address, 50), new_name("group")
    share(a.address, group, topic, 30, ["r20"])

    async def take(name: str) -> None:
        async with Cluster(b.address) as cluster:
            assert not await groups.commit_offsets(cluster, group, {(name, 0): Committed(1)})

    asyncio.run(take(write(b.address, 10)))
    settings = {**IDENTITY, "sync.group.offsets.enabled": "true"}
    mover = Mover(tmp_path, {new_name("a"): a.address, new_name("b"): b.address}, topic, group, **settings)
    with Server("mirror", "start", str(mover.path)):
        wait_until(lambda: status(mover.path)[mover.there]["groups_left_out"], "the reason")
        said = status(mover.path)[mover.there]["groups_left_out"]
        found = mover.run("cutover", "--quiet", "0.5")
    assert said == {group: "left out at the target: a consumer group has its name there"}
    assert [p["verdict"] for p in found["steps"]["groups"]["found"]["places"]] == ["taken"]
