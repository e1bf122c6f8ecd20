"""The REST proxy, the registry, lag and the console take certificates and users that change, by themselves and on SIGHUP."""

from __future__ import annotations

import base64
import datetime as dt
import os
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker import wait_until
from support.server_process import START_S, STOP_S, ServerProcess
from support.terminal import in_terminal

from klamm.security.authority import make_authority, make_server
from klamm.testing import EmbeddedBroker
from klamm.testing.process import first_line
from klamm.web.passwords import hash_password

pytestmark = pytest.mark.usefixtures("processes")

SERVERS = {
    "rest": ("rest-proxy", "/topics"),
    "registry": ("registry", "/subjects"),
    "lag": ("lag", "/v3/kafka"),
    "console": ("console", None),  # logins are a form there
}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Hears what servers tell systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind("")  # the kernel chooses an abstract address
        hears.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + hears.getsockname()[1:].decode())
        yield hears


@pytest.mark.parametrize("command", sorted(SERVERS))
def test_a_running_server_takes_a_new_certificate_and_new_users(
    broker: EmbeddedBroker, tmp_path: Path, manager: socket.socket, command: str
) -> None:
    """A file that cannot be used changes nothing. SIGHUP takes what has changed at once."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("us", now)
    pem, users = tmp_path / "server.pem", tmp_path / "users.toml"
    ready, path = SERVERS[command]

    def certificate() -> str:
        made = make_server(authority, ["127.0.0.1"], now)
        pem.write_bytes(made.key + made.certificate)
        return made.certificate.decode().strip()

    def user(name: str) -> None:
        users.write_text(f'[users.{name}]\npassword = "{hash_password("x")}"\nrole = "admin"\n')

    first = certificate()
    user("ann")
    kind: type[ServerProcess] = type(command, (ServerProcess,), {"command": command, "ready": ready})
    server = kind(
        tmp_path / "run",
        {
            "bootstrap.servers": broker.bootstrap,
            "listeners.https.ssl.keystore.location": str(pem),
            "rest.auth.file": str(users),
            **({"history.dir": str(tmp_path / "history")} if command == "lag" else {}),
        },
    )
    server.over_tls()
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    host, port = server.url.removeprefix("https://").split(":")

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)), ca_certs=None).strip()

    def status(name: str) -> int:
        login = base64.b64encode(f"{name}:x".encode()).decode()
        request = urllib.request.Request(f"{server.url}{path}", headers={"Authorization": f"Basic {login}"})
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as e:
            e.close()
            return e.code

    def reload() -> str:
        """Returns what the service manager is told at the end of a reload."""
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        return manager.recv(1000).decode()

    with server:
        assert shown() == first
        started = manager.recv(1000).decode()
        pem.write_bytes(b"nothing")
        wait_until(lambda: "the certificates stay as they were" in server.log.read_text(), "it is told")
        assert shown() == first
        second = certificate()
        wait_until(lambda: shown() == second, "the new certificate is shown")
        if path is not None:
            assert (status("ann"), status("bob")) == (200, 401)
            user("bob")
            wait_until(
                lambda: (status("ann"), status("bob")) == (401, 200), "the new user may, and the old one not"
            )

        third = certificate()
        user("cid")
        assert reload() == started == f"READY=1\nSTATUS={ready}={server.url}"
        assert shown() == third
        if path is not None:
            assert (status("bob"), status("cid")) == (401, 200)
        users_too = "certificates, users and notifiers" if command == "lag" else "certificates and users"
        assert f"reloaded {users_too}; other" in server.log.read_text()

        users.write_text("nobody")
        certificate()
        assert reload().startswith("READY=1\nSTATUS=users stay as they were: rest.auth.file=")
        others = " and notifiers" if command == "lag" else ""
        assert f"reloaded certificates{others}; users stay as they were" in server.log.read_text()
        assert shown() != third
        if path is not None:
            assert status("cid") == 200
        assert server.end() == 0


def test_a_server_ends_in_order_with_the_terminal_that_it_was_started_in() -> None:
    console = [
        sys.executable,
        "-m",
        "klamm.cli.main",
        "console",
        "start",
        "--override",
        "listeners=http://127.0.0.1:0",
    ]
    process, leader = in_terminal(console)
    with process:
        assert first_line(process, START_S).startswith("ready console=")
        os.close(leader)
        assert process.wait(STOP_S) == 0
