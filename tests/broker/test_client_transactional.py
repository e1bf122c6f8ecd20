"""Transactions of our client at brokers with both versions of the protocol (KIP-890), Klamm and Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gaps import make
from support.kafka_broker import KafkaBroker
from support.mirroring_once import read_committed

from klamm.testing import EmbeddedBroker
from klamm_kafka.client import Cluster, TransactionFailed
from klamm_kafka.client.transactional import TransactionalProducer
from klamm_kafka.wire.batch import Record
from klamm_kafka.wire.messages.api_versions import ApiVersionsRequest
from klamm_kafka.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

SAFE_DOWNGRADE = 2


@pytest.fixture(params=["klamm", pytest.param("apache", marks=pytest.mark.needs("apache_kafka"))])
def address(request: pytest.FixtureRequest, processes: None, tmp_path: Path) -> Iterator[str]:
    if request.param == "klamm":
        with EmbeddedBroker(tmp_path / "b") as broker:
            yield broker.bootstrap
    else:
        (tmp_path / "kafka").mkdir()
        with KafkaBroker(tmp_path / "kafka", {}) as kafka:
            yield kafka.address


async def level(cluster: Cluster) -> int:
    connection = await cluster.any_broker()
    answer = await connection.request(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
    )
    return next(f.max_version_level for f in answer.finalized_features if f.name == "transaction.version")


async def set_level(cluster: Cluster, wanted: int) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=wanted, upgrade_type=SAFE_DOWNGRADE
    )
    connection = await cluster.any_broker()
    answer = await connection.request(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]))
    assert answer.error_code == 0, answer
    async with asyncio.timeout(20):
        while await level(cluster) != wanted:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("version", [2, 1])
async def test_transactions_are_whole_and_end_at_either_version(address: str, version: int):
    topic = make(address, f"t{version}", 2)
    wanted: list[bytes] = []
    async with Cluster(address) as cluster:
        assert await level(cluster) == 2, "the default of these brokers"
        if version == 1:
            await set_level(cluster, 1)
        producer = TransactionalProducer(cluster, "t-0", timeout_ms=60_000)
        first = await producer.init()
        for i in range(12):
            for part in range(2):
                await producer.produce(topic, part, [Record(timestamp=0, value=b"%d" % i)] * (part + 1))
            if i % 3 == 2:
                await producer.abort()
            else:
                await producer.commit()
                wanted.append(b"%d" % i)
        # the same process goes on with its id after a failure, and another one takes over
        await producer.produce(topic, 0, [Record(timestamp=0, value=b"lost")])
        again = TransactionalProducer(
            cluster, "t-0", timeout_ms=60_000, previous=producer.transaction.producer
        )
        second = await again.init()
        assert second[0] == first[0]
        assert second[1] > first[1]
        await again.produce(topic, 0, [Record(timestamp=0, value=b"last")])
        await again.commit()
        with pytest.raises(TransactionFailed):
            await producer.commit()
    assert [value for _, value in read_committed(address, topic)] == [*wanted, b"last"]
    assert [value for _, value in read_committed(address, topic, 1)] == [v for v in wanted for _ in range(2)]
