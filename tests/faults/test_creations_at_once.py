"""Topics that are created at the same time, in several log directories: found by kill cycles as a KeyError."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from support.broker import new_name

from klamm.testing import EmbeddedBroker

PARTITIONS = 80


@pytest.mark.usefixtures("processes")
def test_creations_that_go_on_side_by_side(tmp_path):
    config = {"log.dirs": f"{tmp_path}/data,{tmp_path}/data2"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        clients = [AdminClient({"bootstrap.servers": broker.bootstrap}) for _ in range(4)]
        for client in clients:
            client.list_topics(timeout=60)
        names = [new_name() for _ in clients]
        asked = [
            c.create_topics([NewTopic(n, PARTITIONS, 1)])[n] for c, n in zip(clients, names, strict=True)
        ]
        for future in asked:
            future.result(60)
        found = clients[0].list_topics(timeout=60).topics
        assert [len(found[name].partitions) for name in names] == [PARTITIONS] * 4
        counts = [
            sum(path.name.rpartition("-")[0] in names for path in (tmp_path / directory).iterdir())
            for directory in ("data", "data2")
        ]
        assert sum(counts) == PARTITIONS * 4
        assert abs(counts[0] - counts[1]) < PARTITIONS / 5, "nearly evenly placed"
