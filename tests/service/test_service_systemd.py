"""Services under a real systemd: installed, ready, watched, reloaded, removed."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.klamm import klamm
from support.systemd import Systemd, place

pytestmark = pytest.mark.usefixtures("systemd_host")


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with Systemd() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    with place() as made:
        yield made


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _broker(folder: Path) -> tuple[Path, str]:
    address = f"127.0.0.1:{_free_port()}"
    config = folder / "server.properties"
    config.write_text(f"log.dirs={folder}/data\nlisteners=PLAINTEXT://{address}\n")
    return config, address


def test_a_broker_is_installed_watched_and_removed(systemd: Systemd, folder: Path) -> None:
    config, address = _broker(folder)
    told = systemd.klamm(
        "service", "install", "broker", str(config), "--run-as", "root", "--directory", str(folder / "home")
    )
    assert f"ready: broker={address}" in told  # `systemctl start` waited for READY=1
    assert klamm("produce", "-b", address, "orders", stdin="1\n2\n3\n").returncode == 0

    systemd.signal("klamm-broker", "SIGKILL")
    systemd.wait(lambda: systemd.show("klamm-broker", "NRestarts") == "1")
    systemd.wait(lambda: systemd.show("klamm-broker", "ActiveState") == "active")
    assert klamm("consume", "-b", address, "orders", "--from-beginning", "-n", "3").stdout == "1\n2\n3\n"

    (row,) = json.loads(systemd.klamm("service", "status", "-o", "json"))
    assert row["state"] == "active (running)"
    assert row["config"] == str(config)
    assert "can be read" in systemd.klamm("service", "check", "klamm-broker")

    systemd.klamm("service", "uninstall", "klamm-broker")
    assert systemd.show("klamm-broker", "LoadState") == "not-found"
    assert (folder / "data").is_dir()


def test_a_broker_whose_loop_is_held_is_started_again(systemd: Systemd, folder: Path) -> None:
    config, address = _broker(folder)
    systemd.klamm(
        "service", "install", "broker", str(config), "--run-as", "root", "--directory", str(folder / "home"), "--no-start"
    )  # fmt: skip
    often = "mkdir -p /run/systemd/system/klamm-broker.service.d; printf '[Service]\\nWatchdogSec=2\\n'"
    assert (
        systemd.run(
            "bash", "-c", f"{often} > /run/systemd/system/klamm-broker.service.d/often.conf"
        ).returncode
        == 0
    )
    systemd.run("systemctl", "daemon-reload")
    assert systemd.run("systemctl", "start", "klamm-broker").returncode == 0
    systemd.signal("klamm-broker", "SIGSTOP")
    systemd.wait(lambda: systemd.show("klamm-broker", "NRestarts") == "1")
    systemd.wait(lambda: systemd.show("klamm-broker", "StatusText") == f"broker={address}")


def test_a_reload_of_an_agent_ends_when_the_new_configuration_is_used(systemd: Systemd, folder: Path) -> None:
    config = folder / "agent.toml"
    logs = f'[[inputs]]\npaths = ["{folder}/*.log"]\ntopic = "logs"\n'
    config.write_text(f'bootstrap_servers = "127.0.0.1:9"\nstate_dir = "{folder}/state"\n{logs}')
    told = systemd.klamm(
        "service", "install", "agent", str(config), "--run-as", "root", "--directory", str(folder / "home")
    )
    assert "ready: agent files=0" in told
    (folder / "shop.log").write_text("a line\n")
    assert systemd.run("systemctl", "reload", "klamm-agent").returncode == 0
    systemd.wait(lambda: systemd.show("klamm-agent", "StatusText") == "agent files=1")

    config.write_text("bootstrap_servers = 9\n")
    systemd.run("systemctl", "reload", "klamm-agent")
    systemd.wait(lambda: systemd.show("klamm-agent", "StatusText").startswith("not reloaded: "))
    assert systemd.show("klamm-agent", "ActiveState") == "active"


def test_systemd_finds_nothing_wrong_and_little_exposed(systemd: Systemd, folder: Path) -> None:
    config, _ = _broker(folder)
    told = systemd.klamm(
        "service", "install", "broker", str(config), "--run-as", "root", "--directory", str(folder / "home"), "--no-start"
    )  # fmt: skip
    exposure = float(told.split("exposure ")[1].split()[0])
    assert exposure < 2.5


ANSWERS = {"registry": "/subjects", "lag": "/v3/kafka", "rest": "/topics", "console": "/"}
"""A path that each of the servers over a cluster answers."""


def test_servers_over_a_cluster_are_installed_and_answer(systemd: Systemd, folder: Path) -> None:
    config, broker = _broker(folder)
    home = ("--run-as", "root", "--directory", str(folder / "home"))
    systemd.klamm("service", "install", "broker", str(config), *home)
    users, anybody = folder / "users.toml", '[anonymous]\nrole = "admin"\n'
    for kind, path in ANSWERS.items():
        users.write_text(anybody)
        url = f"http://127.0.0.1:{_free_port()}"
        settings = folder / f"{kind}.properties"
        settings.write_text(f"bootstrap.servers={broker}\nlisteners={url}\nrest.auth.file={users}\n")
        told = systemd.klamm("service", "install", kind, str(settings), *home)
        assert f"={url}" in told.split("ready: ")[1]  # systemd heard it from the server
        assert float(told.split("exposure ")[1].split()[0]) < 2.5
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            assert answer.status == 200
        status = systemd.show(f"klamm-{kind}", "StatusText")
        for text, shown in (("", "users stay as they were: rest.auth.file="), (anybody, status)):
            users.write_text(text)
            assert systemd.run("systemctl", "reload", f"klamm-{kind}").returncode == 0
            systemd.wait(lambda: systemd.show(f"klamm-{kind}", "StatusText").startswith(shown))
            systemd.wait(lambda: systemd.show(f"klamm-{kind}", "ActiveState") == "active")
    assert (folder / "home" / "klamm-lag").is_dir()  # its history, where it may write
    rows = json.loads(systemd.klamm("service", "status", "-o", "json"))
    assert {row["kind"]: row["state"] for row in rows} == dict.fromkeys(
        ("broker", *ANSWERS), "active (running)"
    )
    assert {systemd.show(f"klamm-{kind}", "NRestarts") for kind in ANSWERS} == {"0"}
    systemd.signal("klamm-registry", "SIGKILL")
    systemd.wait(lambda: systemd.show("klamm-registry", "NRestarts") == "1")
    systemd.wait(lambda: systemd.show("klamm-registry", "ActiveState") == "active")
    for kind in reversed(ANSWERS):
        assert "its configuration can be used" in systemd.klamm("service", "check", f"klamm-{kind}")
        systemd.klamm("service", "uninstall", f"klamm-{kind}")
