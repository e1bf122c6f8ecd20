"""Each part of Klamm as a user who may do what docs/security.md says, and nothing else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.broker import new_name, wait_until
from support.kafka_broker import free_port
from support.klamm import Server, klamm
from support.mirror import mirror_file
from support.registry_process import RegistryProcess

from klamm.security import grants
from klamm.security.grants import Grant
from klamm.testing import EmbeddedBroker
from klamm.up.embedded import WORKER

pytestmark = pytest.mark.usefixtures("processes")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Guarded(EmbeddedBroker):
    """A broker whose open listener is the administrator's; `PART` logs in at the other and has the rights that it is given."""

    def __init__(self, work: Path) -> None:
        self.login_port = free_port()
        super().__init__(
            work / "data",
            config={
                "listeners": f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{self.login_port}",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_part="of klamm";',
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
        )

    @property
    def login(self) -> str:
        return f"127.0.0.1:{self.login_port}"

    def give(self, rights: Sequence[Grant]) -> None:
        asyncio.run(grants.give(self.bootstrap, None, grants.creations("part", rights)))

    def denied(self) -> list[str]:
        return re.findall(r'.*"event": "denied".*', self.log_text)


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{MODULE} required username="part" password="of klamm";',
}


@pytest.fixture
def guarded(tmp_path):
    with Guarded(tmp_path / "guarded") as broker:
        yield broker


def lines(broker: EmbeddedBroker, topic: str) -> list[str]:
    return klamm("consume", topic, "--from-beginning", "-e", "-b", broker.bootstrap).stdout.splitlines()


def test_agent(guarded, tmp_path):
    (tmp_path / "a.log").write_text("".join(f"line {n}\n" for n in range(1000)))
    settings = "".join(f'"{name}" = {value!r}\n' for name, value in LOGIN.items())
    (tmp_path / "agent.toml").write_text(
        f'bootstrap_servers = "{guarded.login}"\nstate_dir = "{tmp_path}/state"\n[producer]\n{settings}'
        f'[[inputs]]\npaths = ["{tmp_path}/a.log"]\ntopic = "logs.a"\n'
    )
    guarded.give(grants.agent("logs."))
    for _ in range(2):  # the second one asks what the first has written
        with Server("agent", "start", str(tmp_path / "agent.toml")) as agent:
            wait_until(lambda: len(lines(guarded, "logs.a")) >= 1000, "all lines")
            agent.process.kill()
    assert len(lines(guarded, "logs.a")) == 1000
    assert guarded.denied() == []


def test_worker(guarded, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"line {n}\n" for n in range(1000)))
    settings = WORKER | LOGIN | {"bootstrap.servers": guarded.login, "listeners": "http://127.0.0.1:0"}
    settings |= {"exactly.once.source.support": "enabled"}
    file = tmp_path / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    guarded.give(grants.worker(settings, "team-"))
    with Server("connect", "distributed", str(file)) as worker:
        for name, kind, path, key in (
            ("in", "Source", "in.txt", "topic"),
            ("out", "Sink", "out.txt", "topics"),
        ):
            words = (
                "-c",
                f"connector.class=FileStream{kind}",
                "-c",
                f"file={tmp_path / path}",
                "-c",
                f"{key}=team-t",
            )
            assert klamm("connector", "create", name, *words, "--url", worker.ready["rest"]).returncode == 0
        target = tmp_path / "out.txt"
        wait_until(lambda: target.exists() and target.read_text().count("\n") >= 1000, "all lines")
        assert klamm("connector", "delete", "out", "--url", worker.ready["rest"]).returncode == 0
    assert guarded.denied() == []


def test_registry(guarded, tmp_path):
    guarded.give(grants.registry())
    settings = LOGIN | {"kafkastore.topic.replication.factor": "1"}
    with RegistryProcess(guarded.login, tmp_path / "registry", **settings) as registry:
        assert registry.ask("POST", "/subjects/a/versions", {"schema": '"int"'})[0] == 200
        assert registry.ask("GET", "/health")[0] == 200
        registry.end(kill=True)
        registry.start()
        assert registry.ask("GET", "/subjects")[1] == ["a"]
    assert guarded.denied() == []


def test_mirror(tmp_path):
    a, b = new_name("a"), new_name("b")
    with Guarded(tmp_path / "a") as source, Guarded(tmp_path / "b") as target:
        klamm("topic", "create", "orders", "-p", "2", "-b", source.bootstrap)
        klamm("produce", "orders", "hello", "-b", source.bootstrap)
        klamm("consume", "orders", "--from-beginning", "-e", "-g", "readers", "-b", source.bootstrap)
        source.give(grants.mirror_source("orders"))
        target.give(grants.mirror_target(a))
        logins = {f"{alias}.{name}": value for alias in (a, b) for name, value in LOGIN.items()}
        flow = {
            f"{a}->{b}.enabled": "true",
            "topics": "orders",
            "groups": "readers",
            "sync.topic.acls.enabled": "false",
            f"{b}->{a}.emit.heartbeats.enabled": "false",
        }
        flow |= {"sync.group.offsets.enabled": "true", "exactly.once.source.support": "enabled"}
        path = mirror_file(tmp_path / "mm2.properties", {a: source.login, b: target.login}, logins | flow)
        with Server("mirror", "start", str(path)):
            wait_until(lambda: lines(target, f"{a}.orders") == ["hello"], "the copy")
            wait_until(
                lambda: "readers" in klamm("group", "list", "-b", target.bootstrap).stdout, "the group"
            )
            klamm(
                "config", "alter", "topic", "orders", "--set", "retention.ms=123456", "-b", source.bootstrap
            )
        assert (source.denied(), target.denied()) == ([], [])


def test_spark(guarded, spark, tmp_path):
    klamm("produce", "jobs.in", *map(str, range(100)), "-b", guarded.bootstrap)
    guarded.give(grants.spark("jobs.", ids="job-"))
    options = {
        f"kafka.{name}": value for name, value in (LOGIN | {"bootstrap.servers": guarded.login}).items()
    }
    found = (
        spark.readStream.format("klamm")
        .options(**options, subscribe="jobs.in", startingOffsets="earliest")
        .load()
    )
    once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "job-"}
    query = (
        found.select("value")
        .writeStream.format("klamm")
        .options(**options, **once, topic="jobs.out", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(lines(guarded, "jobs.out")) == 100
    assert guarded.denied() == []
