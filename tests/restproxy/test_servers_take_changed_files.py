"""A certificate and users that change on disk are taken by the REST proxy, the registry, lag and the console while they run."""

from __future__ import annotations

import base64
import datetime as dt
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support.broker import wait_until
from support.server_process import ServerProcess

from klamm.security.authority import make_authority, make_server
from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password

pytestmark = pytest.mark.usefixtures("processes")

SERVERS = {
    "rest": ("rest-proxy", "/topics"),
    "registry": ("registry", "/subjects"),
    "lag": ("lag", "/v3/kafka"),
    "console": ("console", None),  # logins are a form there
}


@pytest.mark.parametrize("command", sorted(SERVERS))
def test_a_running_server_takes_a_new_certificate_and_new_users(
    broker: EmbeddedBroker, tmp_path: Path, command: str
) -> None:
    """A file that cannot be used changes nothing."""
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

    with server:
        assert shown() == first
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
