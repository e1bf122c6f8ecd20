"""A system under load, and Prometheus beside it: what the dashboards show is there, and alerts come and go as its parts fail."""

from __future__ import annotations

import json
import re
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.broker import new_topic
from support.kafka_broker import free_port
from support.klamm import Server
from support.prometheus import Prometheus, quick_rules
from support.registry_process import RegistryProcess
from support.webhook import Webhook

from klamm.testing import EmbeddedBroker

COMPOSE = Path(__file__).parents[2] / "compose"
TRIED = {
    "KlammDown", "AgentBehind", "GroupBehind", "LagGroupInError", "LagGroupFallsBehind", "LagGroupLate", "LagClusterSilent",
    "LagNoticesFail", "LagHistoryFails", "RegistryUnreadableRecords",
}  # fmt: skip
"""Connect's and the mirror's alerts have tests of their own; the others need what no test can cause in seconds."""
SMALLER = {"AgentBehind": "> 10", "GroupBehind": "> 5", "LagGroupLate": "> 5", "LagNoticesFail": "> 0"}


@dataclass
class System:
    """The parts that a test touches."""

    broker: EmbeddedBroker
    lag: Server
    registry: RegistryProcess
    hook: Webhook
    prometheus: Prometheus
    folder: Path
    producer: Producer
    reader: Consumer
    read: int = 0
    written: int = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            self.producer.produce("t", b"x", partition=0)
        assert self.producer.flush(60) == 0
        self.written += count

    def commit(self, offset: int) -> None:
        self.reader.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        self.read = offset

    def log(self, line: str) -> None:
        with (self.folder / "app.log").open("a") as file:
            file.write(f"{line}\n")

    def lookup(self) -> None:
        body = json.dumps({"schema": '"string"'}).encode()
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.registry.url}/subjects/t-value/versions", body, headers)
        urllib.request.urlopen(asked, timeout=30).close()

    def load(self) -> None:
        """Lets every part do something."""
        self.write(10)
        self.commit(self.written - 1)
        self.log("a line")
        self.lookup()


@pytest.fixture
def system(processes: None, prometheus_server: None, tmp_path: Path) -> Iterator[System]:
    with ExitStack() as parts:
        broker = EmbeddedBroker(
            tmp_path / "broker", config={"num.partitions": "1", "klamm.metrics.port": str(free_port())}
        )
        parts.enter_context(broker)
        new_topic(broker, name="t")
        hook = parts.enter_context(Webhook())
        (tmp_path / "lag.properties").write_text(
            f"bootstrap.servers={broker.bootstrap}\nlisteners=http://127.0.0.1:0\nhistory.dir={tmp_path}/lag\n"
            f"cluster.local.bootstrap.servers={broker.bootstrap}\ncluster.local.offset-refresh=0.3\n"
            "storage.intervals=4\nstorage.min-distance=0\nevaluator.minimum-stop=2\n"
            f"notifier.n.class-name=http\nnotifier.n.url-open={hook.url}\nnotifier.n.threshold=3\n"
        )
        agent_port = free_port()
        (tmp_path / "agent.toml").write_text(
            f'bootstrap_servers = "{broker.bootstrap}"\nstate_dir = "{tmp_path}/agent"\n[metrics]\nport = {agent_port}\n'
            f'[[inputs]]\npaths = ["{tmp_path}/app.log"]\ntopic = "logs"\n'
        )
        (tmp_path / "app.log").write_text("first\n")
        lag = parts.enter_context(Server("lag", "start", str(tmp_path / "lag.properties")))
        parts.enter_context(Server("agent", "start", str(tmp_path / "agent.toml")))
        registry = RegistryProcess(
            broker.bootstrap, tmp_path / "registry", **{"kafkastore.topic.replication.factor": "1"}
        )
        registry.start()
        parts.callback(registry.end)
        targets = {
            "broker": re.sub(r"^http://|/metrics$", "", broker.metrics_url), "lag": lag.ready["lag"].removeprefix("http://"),
            "agent": f"127.0.0.1:{agent_port}", "registry": registry.url.removeprefix("http://"),
        }  # fmt: skip
        prometheus = Prometheus(tmp_path, targets, quick_rules(TRIED, SMALLER))
        parts.callback(prometheus.close)
        quiet = {"bootstrap.servers": broker.bootstrap, "log_level": 2}
        reader = Consumer(quiet | {"group.id": "g", "enable.auto.commit": False})
        parts.callback(reader.close)
        yield System(broker, lag, registry, hook, prometheus, tmp_path, Producer(quiet), reader)


def shown(name: str, about: str = "") -> list[str]:
    dashboard = json.loads((COMPOSE / f"grafana/dashboards/{name}.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [expr for expr in found if about in expr and "dropped" not in expr]


def test_dashboards_and_alerts_of_lag_registry_and_agent(system):
    empty = [
        *shown("lag"),
        *shown("registry"),
        *shown("pipeline", "klamm_agent"),
        *shown("broker", "kafka_consumergroup"),
    ]
    assert len(empty) > 20
    deadline = time.monotonic() + 60
    while empty and time.monotonic() < deadline:
        system.load()
        time.sleep(0.3)
        if system.prometheus.answers():
            empty = [expr for expr in empty if not system.prometheus.query(expr)]
    assert not empty

    fired: set[str] = set()

    alerts = partial(system.prometheus.wait_for, fired=fired)

    def keep_up() -> None:
        system.commit(system.written)
        time.sleep(0.2)

    def fall_behind() -> None:
        system.write(20)
        system.commit(system.read + 1)
        time.sleep(0.4)

    alerts(set(), step=keep_up)
    alerts({"LagGroupFallsBehind", "GroupBehind"}, step=fall_behind)
    system.hook.status = 503
    alerts({"LagGroupInError", "LagGroupLate", "LagNoticesFail"})
    system.hook.status = 200
    alerts(set(), step=keep_up)

    writer = sqlite3.connect(system.folder / "lag/lag.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    alerts({"LagHistoryFails"}, step=keep_up)
    writer.execute("ROLLBACK")
    writer.close()
    alerts(set(), step=keep_up)

    system.broker.stop()
    system.log("a line that waits for the broker to be there again")
    alerts({"LagClusterSilent", "KlammDown", "AgentBehind"})
    system.broker.start()
    alerts(set(), step=keep_up)

    system.producer.produce("_schemas", b"no JSON", key=b"no JSON")
    assert system.producer.flush(60) == 0
    alerts({"RegistryUnreadableRecords"}, step=keep_up)
    assert fired == TRIED
