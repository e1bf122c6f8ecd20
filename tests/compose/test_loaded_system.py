"""All parts under load, and Prometheus beside them: each panel has data, and alerts come and go as parts fail.

Spark is not among them.
"""

from __future__ import annotations

import http.client
import json
import re
import sqlite3
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from support.broker import new_topic
from support.browser import Browser
from support.connect_worker import WorkerProcess, worker_properties
from support.kafka_broker import free_port
from support.klamm import Server, klamm
from support.mirror import mirror_file
from support.prometheus import Prometheus, quick_rules
from support.registry_process import RegistryProcess
from support.rest_proxy_process import RestProxyProcess

from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password

DASHBOARDS = Path(__file__).parents[2] / "compose/grafana/dashboards"
NOT_HERE = {
    "klamm_spark_": "there is no Spark job here",
    "_refused_total": "a counter that begins at the first refusal",
}
"""Parts of expressions without data, and why."""
TRIED = {
    "AgentLeavesLinesOut", "ConnectTaskFailed", "ConnectTaskStalled", "ConsoleErrors", "ConsoleGuessedLogins", "KlammDown",
    "RegistryErrors", "RestProxyErrors", "RestProxyRecordsFail", "RestProxyRefuses",
}  # fmt: skip
SMALLER = {
    "ConnectTaskStalled": "> 3",
    "ConsoleErrors": "> 1",
    "RegistryErrors": "> 1",
    "RestProxyRefuses": "> 5",
}
MEMORY = {"producer.buffer.memory": str(1 << 20), "client.id": "rest"}
ROW = {
    "schema": {"type": "struct", "fields": [{"field": "n", "type": "int32"}]},
    "payload": {"n": 1},
}


@dataclass
class Loaded:
    """The parts that a test touches, and what it does with them again and again."""

    a: EmbeddedBroker
    worker: WorkerProcess
    registry: RegistryProcess
    rest: RestProxyProcess
    console: Browser
    prometheus: Prometheus
    folder: Path
    producer: Producer
    reader: Consumer
    count: int = 0
    instance: str = field(default="")

    def load(self) -> None:
        self.count += 1
        for _ in range(10):
            self.producer.produce("t", json.dumps(ROW).encode())
        self.producer.produce("strings", b"no JSON")
        assert self.producer.flush(60) == 0
        if self.reader.consume(100, 0.2):
            self.reader.commit(asynchronous=False)
        for name in ("app.log", "in.txt"):
            self.log(f"line {self.count}", name)
        self.log("drop me")
        self.register()
        self.rest.produce("t", "json", [{"value": ROW}])
        if not self.instance:
            self.instance = self.rest.consumer("by-rest", "json")
        try:
            self.reader.list_topics("a topic that has no name", timeout=10)
        except KafkaException:
            pytest.fail("the broker does not answer")

    def log(self, line: str, name: str = "app.log") -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"{line}\n")

    def register(self) -> None:
        """Registers a new schema."""
        record = {"type": "record", "name": f"R{self.count}", "fields": []}
        url = f"{self.registry.url}/subjects/s{self.count}/versions"
        body = json.dumps({"schema": json.dumps(record)}).encode()
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(asked, timeout=30).close()

    def health(self, _: int) -> int:
        """Returns the status of the registry's own answer about itself, which is 500 while its broker is away."""
        try:
            with urllib.request.urlopen(f"{self.registry.url}/health", timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    def guess(self) -> None:
        """Tries ten passwords of the console from an address that is not Prometheus'."""
        for n in range(10):
            wrong = b64encode(b"vic:guess %d" % n).decode()
            made = http.client.HTTPConnection(self.console.host, timeout=30, source_address=("127.0.0.7", 0))
            with closing(made) as connection:
                connection.request("GET", "/metrics", headers={"Authorization": f"Basic {wrong}"})
                assert connection.getresponse().status in {401, 429}

    def send_large_records(self) -> None:
        """Sends records by the proxy that their topic does not take."""
        sent = self.rest.produce("logs", "json", [{"value": "x" * 3000}] * 25)
        assert all(each["error_code"] for each in sent["offsets"])

    def fill_the_proxy(self, clients: ThreadPoolExecutor) -> None:
        """Sends by many connections more than the proxy's memory holds."""
        body = {"records": [{"value": "x" * 2000}] * 300}
        kind = "application/vnd.kafka.json.v2+json"
        asked = [clients.submit(self.rest.ask, "POST", "/topics/fill", body, kind=kind) for _ in range(20)]
        assert {each.result()[0] for each in asked} <= {200, 429}

    def read_what_is_no_json(self, instance: str) -> None:
        for _ in range(5):
            kind = "application/vnd.kafka.json.v2+json"
            assert self.rest.ask("GET", f"{instance}/records", accept=kind)[0] in {200, 500}

    def look_at_schemas(self) -> None:
        """Asks the console for what it has from a registry that does not answer."""
        self.console.get("/c/local/schemas")
        assert self.console.status == 502


@pytest.fixture
def loaded(processes: None, prometheus_server: None, tmp_path: Path) -> Iterator[Loaded]:
    with ExitStack() as parts:
        one = {"num.partitions": "1"}
        a = parts.enter_context(
            EmbeddedBroker(tmp_path / "a", config=one | {"klamm.metrics.port": str(free_port())})
        )
        b = parts.enter_context(EmbeddedBroker(tmp_path / "b", config=one))
        for topic, config in {
            "t": {},
            "strings": {},
            "fill": {},
            "logs": {"max.message.bytes": "2000"},
        }.items():
            new_topic(a, config=config, name=topic)
        (tmp_path / "in.txt").write_text("first\n")
        (tmp_path / "app.log").write_text("first\n")
        registries = []
        for broker in (a, b):
            registry = RegistryProcess(
                broker.bootstrap, tmp_path / f"registry-{broker.data_dir.name}",
                **{"kafkastore.topic.replication.factor": "1"},
            )  # fmt: skip
            registries.append(parts.enter_context(registry))
        worker = WorkerProcess(worker_properties(a.bootstrap, "workers"), tmp_path).wait_ready()
        parts.callback(worker.end)
        rest = parts.enter_context(RestProxyProcess(a.bootstrap, tmp_path / "rest", **MEMORY))
        agent_port = free_port()
        (tmp_path / "agent.toml").write_text(
            f'bootstrap_servers = "{a.bootstrap}"\nstate_dir = "{tmp_path}/agent"\n[metrics]\nport = {agent_port}\n'
            f'[producer]\n"compression.type" = "none"\n'
            f'[[inputs]]\npaths = ["{tmp_path}/app.log"]\ntopic = "logs"\nexclude_lines = ["^drop"]\n'
        )
        parts.enter_context(Server("agent", "start", str(tmp_path / "agent.toml")))
        (tmp_path / "lag.properties").write_text(
            f"bootstrap.servers={a.bootstrap}\nlisteners=http://127.0.0.1:0\nhistory.dir={tmp_path}/lag\n"
            f"cluster.A.bootstrap.servers={a.bootstrap}\ncluster.B.bootstrap.servers={b.bootstrap}\ncluster.A.offset-refresh=0.5\n"
        )
        lag = parts.enter_context(Server("lag", "start", str(tmp_path / "lag.properties")))
        console = _console(parts, a, registries[0], tmp_path)
        flows = {
            "A->B.enabled": "true", "topics": "t", "klamm.metrics.port": "0",
            "A.schema.registry.url": registries[0].url, "B.schema.registry.url": registries[1].url,
            "sync.schemas.enabled": "true", "sync.client.quotas.enabled": "true", "check.users.enabled": "true",
        }  # fmt: skip
        path = mirror_file(tmp_path / "mm2.properties", {"A": a.bootstrap, "B": b.bootstrap}, flows)
        mirror = parts.enter_context(Server("mirror", "start", str(path)))
        targets = {
            "broker": a.metrics_url, "connect": f"http://127.0.0.1:{worker.port}", "mirror": mirror.ready["metrics"],
            "agent": f"127.0.0.1:{agent_port}", "lag": lag.ready["lag"], "registry": registries[0].url, "rest-proxy": rest.url,
            "console": console.host,
        }  # fmt: skip
        where = {job: re.sub(r"^http://|/metrics$", "", url) for job, url in targets.items()}
        prometheus = Prometheus(tmp_path, where, quick_rules(TRIED, SMALLER), {"console": ("vic", "v")})
        parts.callback(prometheus.close)
        quiet = {"bootstrap.servers": a.bootstrap, "log_level": 2}
        reader = Consumer(
            quiet | {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )
        reader.subscribe(["t"])
        parts.callback(reader.close)
        _connectors(worker, tmp_path)
        yield Loaded(a, worker, registries[0], rest, console, prometheus, tmp_path, Producer(quiet), reader)


def _console(parts: ExitStack, broker: EmbeddedBroker, registry: RegistryProcess, folder: Path) -> Browser:
    """Starts a console that asks for logins, and logs in."""
    users = folder / "users.toml"
    users.write_text(f'[users.vic]\npassword = "{hash_password("v")}"\nrole = "viewer"\n')
    settings = (
        "listeners=http://127.0.0.1:0", f"bootstrap.servers={broker.bootstrap}", f"registry.url={registry.url}",
        f"rest.auth.file={users}",
    )  # fmt: skip
    server = parts.enter_context(
        Server("console", "start", *(w for each in settings for w in ("--override", each)))
    )
    browser = Browser(server.ready["console"])
    browser.get("/login")
    browser.post("/login", user="vic", password="v")
    browser.get("/c/local/schemas")
    assert browser.status == 200
    return browser


def _connectors(worker: WorkerProcess, folder: Path) -> None:
    """Starts a source, a sink that leaves bad records out, and a sink whose database can be locked."""
    bad = {"errors__tolerance": "all", "errors__deadletterqueue__topic__name": "dead"}
    for name, config in {
        "in": {"connector__class": "FileStreamSource", "file": str(folder / "in.txt"), "topic": "lines"},
        "out": {
            "connector__class": "FileStreamSink", "file": str(folder / "out.txt"), "topics": "strings", **bad,
            "errors__deadletterqueue__topic__replication__factor": "1",
        },
        "table": {
            "connector__class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "t", "auto__create": "true",
            "connection__url": f"sqlite:///{folder}/t.db",
        },
    }.items():  # fmt: skip
        answer = worker.create(name, **config)
        assert answer.status == 201, answer.content


def _expressions() -> list[str]:
    found = []
    for file in DASHBOARDS.glob("*.json"):
        panels: list[dict[str, Any]] = json.loads(file.read_text())["panels"]
        found += [target["expr"] for panel in panels for target in panel["targets"]]
    return [expr for expr in dict.fromkeys(found) if not any(part in expr for part in NOT_HERE)]


@pytest.mark.timeout(300)
def test_every_panel_has_data_and_alerts_come_and_go(loaded: Loaded) -> None:
    left = _expressions()
    assert len(left) > 70
    deadline = time.monotonic() + 90
    while left and time.monotonic() < deadline:
        loaded.load()
        if loaded.prometheus.answers():
            left = [expr for expr in left if not loaded.prometheus.query(expr)]
    assert not left

    fired: set[str] = set()
    alerts = partial(loaded.prometheus.wait_for, fired=fired)
    alerts((), step=loaded.load)

    loaded.log("x" * 5000)  # more than the topic takes
    alerts({"AgentLeavesLinesOut"})
    alerts(())

    answer = loaded.worker.create(
        "broken", connector__class="FileStreamSink", file=str(loaded.folder / "no.txt"), topics="t",
        value__converter="org.apache.kafka.connect.converters.LongConverter",
    )  # fmt: skip
    assert answer.status == 201
    alerts({"ConnectTaskFailed"})
    assert loaded.worker.request("DELETE", "/connectors/broken").status == 204
    alerts(())

    locking = sqlite3.connect(loaded.folder / "t.db", isolation_level=None)
    locking.execute("BEGIN EXCLUSIVE")
    alerts({"ConnectTaskStalled"}, step=loaded.load)
    locking.execute("ROLLBACK")
    locking.close()
    alerts((), step=loaded.load)

    loaded.rest.end(kill=True)
    alerts({"KlammDown"})
    loaded.rest.start()
    alerts(())

    alerts({"RestProxyRecordsFail"}, step=loaded.send_large_records)
    alerts(())

    instance = loaded.rest.consumer("no-json", "json")
    assert loaded.rest.ask("POST", f"{instance}/subscription", {"topics": ["strings"]})[0] == 204
    alerts({"RestProxyErrors"}, step=lambda: loaded.read_what_is_no_json(instance))
    assert loaded.rest.ask("DELETE", instance)[0] == 204
    alerts(())

    at = ("-b", loaded.a.bootstrap)
    assert klamm("quota", "set", "--client-id", "rest", "producer_byte_rate=200000", *at).returncode == 0
    with ThreadPoolExecutor(20) as clients:
        alerts({"RestProxyRefuses"}, step=lambda: loaded.fill_the_proxy(clients))
    assert klamm("quota", "unset", "--client-id", "rest", "producer_byte_rate", *at).returncode == 0
    alerts(())

    alerts({"ConsoleGuessedLogins"}, step=loaded.guess)
    alerts(())

    loaded.registry.end()
    alerts({"ConsoleErrors", "KlammDown"}, step=loaded.look_at_schemas)
    loaded.registry.start()
    alerts(())

    loaded.a.stop()
    with ThreadPoolExecutor(20) as clients:
        alerts({"RegistryErrors"}, step=lambda: list(clients.map(loaded.health, range(20))))
    loaded.a.start()
    alerts((), timeout_s=90)
    assert fired == TRIED
