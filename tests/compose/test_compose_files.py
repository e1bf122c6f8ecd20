"""The Compose installation without an engine: its structure, and every configuration in it by our own parsers."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

COMPOSE = Path(__file__).parents[2] / "compose"
ENGINES = {
    "kafka-1", "kafka-2", "kafka-3", "kafka-dr", "elasticsearch", "kibana", "mysql", "spark-master", "spark-worker", "web",
}  # fmt: skip
WATCHING = {"kafka-exporter", "prometheus", "grafana", "dashboards"}
SERVERS = {"registry": 8081, "rest-proxy": 8082, "console": 8080}
OURS = {"connect", "connect-2", "connectors", "agent", "mirror", "log-job", "lag", *SERVERS}


@pytest.fixture(scope="module")
def model() -> dict:
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


def test_has_every_part(model):
    assert set(model["services"]) == ENGINES | WATCHING | OURS


def test_images_are_pinned(model):
    for name, service in model["services"].items():
        image, _, tag = service["image"].rpartition(":")
        assert image, name
        assert tag, name
        assert tag != "latest", name


def test_ports_are_open_on_loopback_only(model):
    ports = [port for service in model["services"].values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    host_ports = [port.split(":")[1] for port in ports]
    assert len(set(host_ports)) == len(host_ports)


def test_dependencies_and_mounts_exist(model):
    for name, service in model["services"].items():
        for other, how in service.get("depends_on", {}).items():
            needed = model["services"][other]
            assert how["condition"] != "service_healthy" or "healthcheck" in needed, (
                f"{name} waits for {other}"
            )
        for mount in service.get("volumes", ()):
            source = mount["source"] if isinstance(mount, dict) else mount.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), f"{name}: {source}"
            else:
                assert source in model["volumes"], f"{name}: {source}"


def test_logs_are_files_and_the_worker_may_write(model):
    """nginx's image has links to standard output in its log folder, which Docker copies into an empty volume; Spark's worker
    writes below its package unless it is told another folder."""
    (logs,) = [v for v in model["services"]["web"]["volumes"] if isinstance(v, dict)]
    assert (logs["target"], logs["volume"]["nocopy"]) == ("/var/log/nginx", True)
    assert "--work-dir" in model["services"]["spark-worker"]["command"]


def test_no_secret_is_in_the_files(model):
    for service in model["services"].values():
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key:
                assert value.startswith("${"), f"{key} must come from the environment"
    for file in (COMPOSE / "connectors").glob("*.json"):
        config = json.loads(file.read_text())["config"]
        assert all(v.startswith("@") for k, v in config.items() if "password" in k)


def test_connector_documents_name_themselves():
    files = sorted((COMPOSE / "connectors").glob("*.json"))
    assert len(files) == 2
    for file in files:
        document = json.loads(file.read_text())
        assert document["name"] == file.stem
        assert all(isinstance(v, str) for v in document["config"].values())


def test_worker_properties_are_understood(caplog):
    from klamm.connect.config import WorkerConfig
    from klamm_base.properties import load_properties

    WorkerConfig.from_properties(load_properties(COMPOSE / "config/worker.properties"))
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_workers_ask_for_logins(processes, model, tmp_path):
    """The script runs with a `klamm` that is ours for passwords, and for the worker shows what it was given."""
    from klamm.connect.rest.access import REALM
    from klamm.web.passwords import verify
    from klamm.web.users import read_users

    home, programs = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    python = f'"{sys.executable}" -m klamm.cli.main'
    (programs / "klamm").write_text(
        f'#!/bin/sh\n[ "$2" = distributed ] && {{ echo "$@"; exit; }}\nexec {python} "$@"\n'
    )
    (programs / "klamm").chmod(0o755)
    script = (COMPOSE / "config/users.sh").read_text().replace("/var/lib/klamm", str(home))
    (tmp_path / "users.sh").write_text(script)
    for name in ("connect", "connect-2"):
        service = model["services"][name]
        assert service["command"][:2] == ["sh", "/etc/klamm/users.sh"]
        done = subprocess.run(
            ["sh", str(tmp_path / "users.sh"), *service["command"][2:]],
            env={"PATH": f"{programs}:{os.environ['PATH']}", "KLAMM_REST_PASSWORD": "it's secret"},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        users = home / "rest-users.toml"
        assert done.stdout.startswith("connect distributed /etc/klamm/worker.properties --override rest.adv")
        assert done.stdout.endswith(f"--override rest.auth.file={users}\n")
        assert users.stat().st_mode & 0o777 == 0o600
        admin = read_users(users, REALM).by_name["admin"]
        assert verify("it's secret", admin.stored)
        assert read_users(users, REALM).anonymous is None
        assert [grant.role.name for grant in admin.caller.grants] == ["ADMIN"]
    client = model["services"]["connectors"]["environment"]
    assert client["KLAMM_REST_USER"] == "admin"
    assert client["KLAMM_REST_PASSWORD"] == model["services"]["connect"]["environment"]["KLAMM_REST_PASSWORD"]


@pytest.mark.parametrize("name", SERVERS)
def test_servers_are_understood_and_scraped(caplog, model, name):
    from klamm.console.settings import read_settings
    from klamm.registry.config import RegistryConfig
    from klamm.restproxy.config import ProxyConfig
    from klamm_base.properties import load_properties

    kinds = {
        "registry": RegistryConfig.from_properties,
        "rest-proxy": ProxyConfig.from_properties,
        "console": read_settings,
    }
    file, port, service = COMPOSE / f"config/{name}.properties", SERVERS[name], model["services"][name]
    kinds[name](load_properties(file))
    assert not [r for r in caplog.records if r.levelname == "WARNING"]
    assert load_properties(file)["listeners"] == f"http://0.0.0.0:{port}"
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert service["command"][-1] == f"/etc/klamm/{file.name}"
    jobs = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert [j["static_configs"] for j in jobs if j["job_name"] == name] == [[{"targets": [f"{name}:{port}"]}]]


def test_servers_let_everybody_look_and_the_administrator_change(processes, model, tmp_path):
    from klamm.restproxy.config import REALM
    from klamm.web.passwords import verify
    from klamm.web.users import read_users

    script = (COMPOSE / "config/users.sh").read_text().replace("/var/lib/klamm", str(tmp_path))
    (tmp_path / "users.sh").write_text(
        script.replace("klamm connect", f'"{sys.executable}" -m klamm.cli.main connect')
    )
    for name in SERVERS:
        assert model["services"][name]["command"][:2] == ["sh", "/etc/klamm/users.sh"]
        assert model["services"][name]["environment"]["ALL_MAY_LOOK"]
    done = subprocess.run(
        ["sh", str(tmp_path / "users.sh"), "echo", "started"],
        env={"PATH": os.environ["PATH"], "KLAMM_REST_PASSWORD": "it's secret", "ALL_MAY_LOOK": "yes"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    file = tmp_path / "rest-users.toml"
    assert done.stdout == f"started --override rest.auth.file={file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    users = read_users(file, REALM)
    assert verify("it's secret", users.by_name["admin"].stored)
    assert users.anonymous is not None
    assert [grant.role.name for grant in users.anonymous.grants] == ["VIEWER"]


def test_mirror_properties_are_understood(caplog):
    from klamm.mirror.files import load

    config = load(COMPOSE / "config/mm2.properties")
    assert [flow.name for flow in config.enabled] == ["main->dr"]
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_agent_settings_are_understood():
    from klamm_agent.config.agent import AgentConfig

    config = AgentConfig.load(COMPOSE / "config/agent.toml")
    assert [(i.type, i.topic, i.format) for i in config.inputs] == [
        ("file", "logs.access", "json"), ("syslog", "logs.syslog", "raw"),
    ]  # fmt: skip
    assert config.spool is not None
    assert not config.ignored


def test_spark_job_reads_what_the_agent_writes():
    from klamm_agent.config.agent import AgentConfig
    from klamm_spark import pipeline

    job = pipeline.load(COMPOSE / "config/pipeline.toml")
    agent = AgentConfig.load(COMPOSE / "config/agent.toml")
    assert set(job.source.topics) == {i.topic for i in agent.inputs}
    assert [o.name for o in job.outputs] == ["documents", "statistics", "statistics-topic"]


def test_what_is_scraped_is_served(model):
    from klamm.mirror.files import load
    from klamm_agent.config.agent import AgentConfig
    from klamm_spark import pipeline

    targets = {
        job["job_name"]: {
            int(t.rpartition(":")[2]) for each in job["static_configs"] for t in each["targets"]
        }
        for job in yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    }
    agent = AgentConfig.load(COMPOSE / "config/agent.toml").metrics
    job = pipeline.load(COMPOSE / "config/pipeline.toml")
    assert (agent.host, {agent.port}) == ("0.0.0.0", targets["agent"])
    assert (job.metrics_host, {job.metrics_port}) == ("0.0.0.0", targets["spark"])
    mirror = load(COMPOSE / "config/mm2.properties").metrics
    assert (mirror.host, {mirror.port}) == ("0.0.0.0", targets["mirror"])
    from klamm_base.properties import load_properties

    worker = load_properties(COMPOSE / "config/worker.properties")
    assert worker["klamm.metrics.host"] == "0.0.0.0"
    assert {int(worker["klamm.metrics.port"])} == targets["connect"]


def test_the_web_servers_log_format_is_the_one_that_the_job_parses():
    from klamm_base.grok import expand
    from klamm_spark import pipeline

    values = {
        "remote_addr": "10.0.0.1", "remote_user": "-", "time_local": "21/Nov/2026:10:00:00 +0000",
        "request": "GET /probe HTTP/1.1", "status": "404", "body_bytes_sent": "153", "http_referer": "-",
        "http_user_agent": "curl/8.0", "request_time": "0.004", "request_id": "0123456789abcdef" * 2,
    }  # fmt: skip
    text = (COMPOSE / "config/nginx.conf").read_text()
    line = "".join(re.findall(r"'([^']*)'", text.partition("log_format klamm")[2].partition(";")[0]))
    line = re.sub(r"\$(\w+)", lambda m: values[m[1]], line)
    options = pipeline.load(COMPOSE / "config/pipeline.toml").query.options
    (access,) = [f for f in options["formats"] if f["name"] == "access"]
    assert re.search(expand(access["pattern"]).regex, line), line
    assert re.findall(options["id_pattern"], line) == [values["request_id"]]
    with (COMPOSE / "config/services.csv").open() as table:
        assert "web" in {row["service"] for row in csv.DictReader(table)}


def test_connectors_take_their_documents():
    from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
    from klamm_connectors.mysql.connector import MySqlSourceConnector

    for name, plugin in (
        ("customers-source", MySqlSourceConnector),
        ("customers-index", ElasticsearchSinkConnector),
    ):
        config = json.loads((COMPOSE / f"connectors/{name}.json").read_text())["config"]
        errors = [e for value in plugin.validate(config) for e in value.errors]
        assert not errors, errors


def compose_client() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            found = subprocess.run([*command, "version"], capture_output=True, check=False, timeout=60)
            if found.returncode == 0:
                return command
    return None


@pytest.mark.usefixtures("processes")
def test_compose_itself_accepts_the_file():
    command = compose_client()
    if command is None:
        pytest.skip("no `docker compose` client here (Debian: apt-get install docker-compose)")
    done = subprocess.run(
        [*command, "-f", str(COMPOSE / "compose.yaml"), "config", "--quiet"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
