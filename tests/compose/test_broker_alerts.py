"""Alerts of a broker come and go in a real Prometheus as its disk, its files, its users and its limits fail."""

from __future__ import annotations

import contextlib
import resource
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.broker import new_topic, wait_until
from support.kafka_broker import free_port
from support.prometheus import Prometheus, quick_rules
from support.secure_broker import LoginClient, SecureBroker
from support.secure_kafka import USER

TRIED = {
    "BrokerFailedLogins", "BrokerLogDirectoryOffline", "BrokerPartitionsOffline", "BrokerUncleanablePartitions",
    "DescriptorsNearlyUsedUp",
}  # fmt: skip


@pytest.mark.usefixtures("processes", "prometheus_server")
def test_alerts_come_and_go(tmp_path: Path) -> None:
    first, second = tmp_path / "data", tmp_path / "second"
    config = {
        "log.dirs": f"{first},{second}", "klamm.metrics.port": str(free_port()), "log.cleaner.backoff.ms": "200",
        "log.flush.offset.checkpoint.interval.ms": "200",
    }  # fmt: skip
    with SecureBroker(tmp_path, config) as broker:
        topic = new_topic(broker, partitions=4)
        compacted = new_topic(broker, config={"segment.bytes": "1048576"})
        where = broker.metrics_url.removeprefix("http://").removesuffix("/metrics")
        prometheus, fired = (
            Prometheus(tmp_path, {"broker": where}, quick_rules(TRIED, window="15s")),
            set[str](),
        )
        alerts = partial(prometheus.wait_for, fired=fired)
        try:
            wait_until(prometheus.answers, "figures")
            alerts(())

            alerts({"BrokerFailedLogins"}, step=partial(_guess, broker))
            alerts(())

            process = psutil.Process(broker.pid)
            before = process.rlimit(resource.RLIMIT_NOFILE)
            process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + 2, before[1]))
            alerts({"DescriptorsNearlyUsedUp"})
            process.rlimit(resource.RLIMIT_NOFILE, before)
            alerts(())

            _break_and_compact(broker, compacted, [first, second])
            alerts({"BrokerUncleanablePartitions"})
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.delete_topics([compacted])[compacted].result(60)
            alerts(())

            assert list(second.glob(f"{topic}-*"))
            second.rename(tmp_path / "away")
            alerts({"BrokerLogDirectoryOffline", "BrokerPartitionsOffline"})
            broker.stop()
            (tmp_path / "away").rename(second)
            broker.start()
            alerts(())
        finally:
            prometheus.close()
    assert fired == TRIED


def _guess(broker: SecureBroker) -> None:
    """Tries ten passwords."""
    for n in range(10):
        with (
            LoginClient(broker.sasl_port) as client,
            contextlib.suppress(ConnectionError),
        ):  # closed before it is answered
            client.shake("PLAIN")
            assert client.plain(USER, f"guess {n}").error_code


def _break_and_compact(broker: SecureBroker, topic: str, dirs: list[Path]) -> None:
    """Fills two segments, damages a record of the first one on the disk, and has the topic compacted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none"})
    for n in range(2400):
        producer.produce(topic, b"x" * 1000, key=b"%d" % (n % 10))
    assert producer.flush(60) == 0
    (file,) = [f for d in dirs for f in d.glob(f"{topic}-0/00000000000000000000.log")]
    with file.open("r+b") as damaged:
        damaged.seek(200)
        damaged.write(b"?")
    wanted = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=wanted)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)
