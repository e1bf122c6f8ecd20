"""`klamm doctor` beside a broker: findings, exit codes, and an archive without secrets."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.broker import new_topic
from typer.testing import CliRunner

from klamm.cli.main import app
from klamm.cli.rest_client import DEFAULT_REST, RestError, Worker
from klamm.up import embedded
from klamm.up.extras import EXTRAS
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.testing import EmbeddedBroker

SECRET = "Tr0ub4dor-and-3"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    jaas = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'
    )
    path.write_text(
        f"log.dirs={tmp_path}/data\nlistener.name.x.plain.sasl.jaas.config={jaas}\nssl.key.password={SECRET}\n"
    )
    path.chmod(0o600)
    return path


def test_findings_and_an_archive_without_secrets(
    broker: EmbeddedBroker, tmp_path: Path, config: Path
) -> None:
    topic = new_topic(broker, 2)
    archive = tmp_path / "ticket.tar.gz"
    words = ["doctor", "-b", broker.bootstrap, "--url", "http://127.0.0.1:9", "--user", f"kim:{SECRET}"]
    done = CliRunner().invoke(app, [*words, "--broker", str(config), "--archive", str(archive), "-o", "json"])
    assert done.exit_code == 1  # no worker
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert rows["broker"]["state"] == "ok"
    assert "1 broker, " in rows["broker"]["said"]
    assert rows["connect"]["state"] == "failed"
    assert rows[f"disk {tmp_path}/data"]["state"] in ("ok", "warning", "failed")

    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as opened:
        texts = {each.name: opened.extractfile(each).read().decode() for each in opened}  # type: ignore[union-attr]
    assert topic in texts["klamm-doctor/cluster.json"]
    assert "confluent-kafka==" in texts["klamm-doctor/packages.txt"]
    settings = json.loads(texts["klamm-doctor/settings/0-broker-server.properties.json"])["settings"]
    assert settings["log.dirs"] == f"{tmp_path}/data"
    assert settings["ssl.key.password"] == "[hidden]"
    assert SECRET not in "".join(texts.values()) + done.output


@pytest.mark.usefixtures("processes")
def test_offline_asks_nobody(config: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--offline", "--broker", str(config), "-o", "json"])
    checks = {row["check"] for row in json.loads(done.stdout)}
    assert not checks & {"broker", "connect"}


def test_asks_the_worker_where_its_file_says(broker: EmbeddedBroker, tmp_path: Path) -> None:
    config = tmp_path / "worker.properties"
    config.write_text(f"bootstrap.servers={broker.bootstrap}\ngroup.id=g\nlisteners=http://127.0.0.1:9\n")
    words = ["doctor", "-b", broker.bootstrap, "--connect", str(config), "-o", "json"]
    rows = {row["check"]: row for row in json.loads(CliRunner().invoke(app, words).stdout)}
    assert "at http://127.0.0.1:9:" in rows["connect"]["said"]

    given = [*words, "--url", "http://127.0.0.1:11"]
    rows = {row["check"]: row for row in json.loads(CliRunner().invoke(app, given).stdout)}
    assert "at http://127.0.0.1:11:" in rows["connect"]["said"]


def test_no_worker_need_be_where_nobody_said_that_it_is(
    broker: EmbeddedBroker, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def nobody(worker: Worker, _method: str, path: str, **_: float) -> None:
        asked.append(worker.url + path)
        raise KlammError(f"no answer from a Connect worker at {worker.url}: refused")

    monkeypatch.setattr(Worker, "call", nobody)
    words = ["doctor", "-b", broker.bootstrap, "--broker", str(config), "-o", "json"]
    done = CliRunner().invoke(app, words)
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert (asked, rows["connect"]["state"]) == ([f"{DEFAULT_REST}/"], "unknown")
    assert (rows["connect"]["advice"], rows["broker"]["state"]) == ("if there is a worker, give --url", "ok")
    done = CliRunner().invoke(app, [*words, "--url", DEFAULT_REST])
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert (done.exit_code, rows["connect"]["state"]) == (1, "failed")

    def asks_for_a_login(*_: object, **__: float) -> None:
        raise RestError("Unauthorized", 401)

    monkeypatch.setattr(Worker, "call", asks_for_a_login)
    rows = {row["check"]: row for row in json.loads(CliRunner().invoke(app, words).stdout)}
    assert rows["connect"]["state"] == "failed"


@pytest.mark.usefixtures("processes")
def test_all_servers_of_up_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("klamm-data").mkdir()
    embedded.children(Path("klamm-data"), 1, 2, 3, companions=dict.fromkeys(EXTRAS, 4))
    done = CliRunner().invoke(app, ["doctor", "--offline", "-o", "json"])
    checks = {row["check"]: row for row in json.loads(done.stdout)}
    for name in ("broker", "connect", *(each.name for each in EXTRAS)):
        assert checks[f"settings klamm-data/{name}.properties"]["state"] == "ok", checks
    assert checks["port 4"]["said"]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("kind", ["registry", "console", "lag", "rest"])
@pytest.mark.parametrize(
    ("key", "other"), [("listeners", "bootstrap.servers=127.0.0.1:1"), ("bootstrap.servers", "")]
)
def test_a_file_of_any_server_can_be_named(kind: str, key: str, other: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.properties"
    path.write_text(f"{key}=nowhere\n{other}\n")
    done = CliRunner().invoke(app, ["doctor", "--offline", f"--{kind}", str(path), "-o", "json"])
    found = {row["check"]: row for row in json.loads(done.stdout)}[f"settings {path}"]
    assert (done.exit_code, found["state"]) == (1, "failed")
    assert "nowhere" in found["said"]
    assert f"configuration {key}" in found["said"]
