"""The ground of HTTP servers, by a server of two endpoints: logins, roles, errors, limits, foreign pages, TLS that changes."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from klamm.security.authority import make_authority, make_server
from klamm.web.application import make_app
from klamm.web.callers import may_view
from klamm.web.endpoint import Access, Endpoint
from klamm.web.errors import NotFound
from klamm.web.http import Failed, json_response, read_json
from klamm.web.openapi import Title, get_openapi
from klamm.web.passwords import hash_password
from klamm.web.request_counts import RequestCounts
from klamm.web.roles import Realm
from klamm.web.server import HttpServer
from klamm.web.settings import Web, web_config
from klamm.web.tls_reload import TlsReload
from klamm_base.errors import ConfigError

REALM = Realm(title="Fruits", server="shop", thing="fruit")
TITLE = Title(
    title="Fruits", about="A shop.", parameters={"fruit": ("The fruit's name.", {"type": "string"})}
)


class Missing(NotFound):
    code = 40401


async def get_fruit(request: web.Request) -> web.Response:
    """Show a fruit."""
    name = request.match_info["fruit"]
    if name == "pear":
        raise Missing("No pear")
    return json_response({"name": name, "apple": may_view(request, "apple")})


async def put_fruit(request: web.Request) -> web.Response:
    """Change a fruit."""
    return json_response(await read_json(request))


ENDPOINTS = (
    Endpoint(method="GET", path="/fruits/{fruit}", handler=get_fruit, access=Access.VIEW, answers={200: dict[str, Any]}),
    Endpoint(method="PUT", path="/fruits/{fruit}", handler=put_fruit, access=Access.OPERATE, answers={200: dict[str, Any]}, body=dict[str, Any]),
    Endpoint(method="GET", path="/openapi.json", handler=get_openapi, access=Access.ANY, answers={200: dict[str, Any]}),
)  # fmt: skip


def settings(**props: str) -> Web:
    raw = {"listeners": "http://127.0.0.1:0", **props}
    return Web.of(web_config(8000).parse(raw), raw, REALM)


async def ask(url: str, method: str, path: str, *, user: str | None = None, **more: Any) -> tuple[int, Any]:
    headers = dict(more.pop("headers", {}))
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:secret".encode()).decode()
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url + path, **more) as answer,
    ):
        return answer.status, json.loads(await answer.text())


async def served(given: Web, *asked: tuple[Any, ...], **how: Any) -> list[tuple[int, Any]]:
    """Returns the answers of a server with these settings."""
    server = HttpServer(given.listeners, tls=given.tls)
    server.bind()
    await server.serve(make_app(given, ENDPOINTS, title=TITLE, counts=RequestCounts(), **how))
    try:
        return [
            await ask(str(server.printed), *args[:2], **(args[2] if len(args) > 2 else {})) for args in asked
        ]
    finally:
        await server.stop()


def test_errors_carry_codes_and_a_server_may_choose_their_form() -> None:
    found = asyncio.run(served(settings(), ("GET", "/fruits/pear"), ("GET", "/nothing")))
    assert found == [
        (404, {"error_code": 40401, "message": "No pear"}),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    ]

    def burrows(_request: web.Request, failed: Failed) -> web.Response:
        return json_response({"error": True, "message": failed.message}, failed.status)

    found = asyncio.run(served(settings(), ("GET", "/fruits/pear"), form=burrows))
    assert found == [(404, {"error": True, "message": "No pear"})]


# Strings are keys of requests in every aiohttp that we allow.
@pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")
def test_roles_hold_for_the_things_of_the_server(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    stored = hash_password("secret")
    users.write_text(
        f'[users.ann]\npassword = "{stored}"\nrole = "operator"\n'
        f'[users.bob]\npassword = "{stored}"\nrole = "viewer"\nfruits = ["ba*"]\n'
    )
    body = {"json": {"ripe": True}}
    found = asyncio.run(
        served(
            settings(**{"rest.auth.file": str(users)}),
            ("GET", "/fruits/banana"),
            ("GET", "/fruits/banana", {"user": "bob"}),
            ("GET", "/fruits/plum", {"user": "bob"}),
            ("PUT", "/fruits/banana", {"user": "bob", **body}),
            ("PUT", "/fruits/banana", {"user": "ann", **body}),
        )
    )
    assert [status for status, _ in found] == [401, 200, 403, 403, 200]
    assert found[1][1] == {"name": "banana", "apple": False}
    assert found[2][1]["message"] == "bob may not view fruit plum"
    users.write_text('[users.bob]\npassword = "x"\nconnectors = ["*"]\n')
    with pytest.raises(ConfigError, match=r"users.bob"):
        make_app(settings(**{"rest.auth.file": str(users)}), ENDPOINTS, title=TITLE, counts=RequestCounts())


def test_foreign_pages_and_large_bodies_are_refused() -> None:
    cross = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
    found = asyncio.run(
        served(
            settings(),
            ("PUT", "/fruits/plum", {"json": {}, "headers": cross}),
            ("PUT", "/fruits/plum", {"json": {"a": "x" * 200}}),
            ("GET", "/openapi.json"),
            body_bytes_max=100,
        )
    )
    assert [status for status, _ in found] == [403, 413, 200]
    assert "access.control.allow.origin" in found[0][1]["message"]
    document = found[2][1]
    assert document["info"]["title"] == "Fruits"
    assert set(document["paths"]["/fruits/{fruit}"]) == {"get", "put"}


def test_a_new_certificate_is_taken_over_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_authority("us", dt.datetime.now(dt.UTC))
    store = tmp_path / "server.pem"

    def sign() -> bytes:
        made = make_server(authority, ["localhost"], dt.datetime.now(dt.UTC))
        store.write_bytes(made.key + made.certificate)
        return ssl.PEM_cert_to_DER_cert(made.certificate.decode())

    def shown(reload: TlsReload) -> bytes:
        """Returns the certificate of a handshake in memory."""
        client_in, client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.certificate.decode())
        client = context.wrap_bio(client_in, client_out, server_hostname="localhost")
        server = reload.context.wrap_bio(client_out, client_in, server_side=True)
        for _ in range(3):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        found = client.getpeercert(binary_form=True)
        assert found is not None
        return found

    first = sign()
    reload = TlsReload({"ssl.keystore.location": str(store)})
    assert shown(reload) == first
    second = sign()
    assert second != first
    reload.refresh()
    assert shown(reload) == second
    store.write_text("nothing")
    reload.refresh()
    assert shown(reload) == second
    assert "the certificates stay as they were" in caplog.text
