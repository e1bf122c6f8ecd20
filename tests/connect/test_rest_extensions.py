"""REST extensions: applications and middlewares in the worker, with the access check before them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.connect_worker import Response, WorkerProcess, wait_for, worker_properties

from klamm.connect.config import WorkerConfig
from klamm.connect.rest.extensions import Extensions
from klamm.web.passwords import hash_password
from klamm_base.errors import ConfigError
from klamm_plugins.rest_extension import RestContext, RestExtension

MODULE = """
from aiohttp import web
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.rest_extension import RestExtension

async def page(request):
    return web.Response(text="<p>hello</p>", content_type="text/html")

class Pages(RestExtension):
    kafka_name = "com.acme.PagesRestExtension"

    def configure(self, props):
        self.greeting = props["rest.extension.pages.greeting"]

    def register(self, context):
        self.cluster = context.cluster
        for prefix in ("open", "any", "view", "administer"):
            app = web.Application()
            app.router.add_get("/page", page)
            app.router.add_get("/state", self.state)
            context.add_app("acme-" + prefix, app, access=prefix)
        context.add_middleware(self.guard)

    async def state(self, request):
        if request.query.get("of"):
            try:
                config = await self.cluster.config(request.query["of"])
            except KeyError as e:
                raise web.HTTPNotFound from e
            return web.json_response({"config": config, "status": await self.cluster.status(request.query["of"])})
        return web.json_response({"url": self.cluster.url, "cluster": self.cluster.cluster_id,
                                  "connectors": self.cluster.connectors(), "greeting": self.greeting})

    async def guard(self, request, handler):
        if request.headers.get("X-Evil"):
            raise web.HTTPForbidden
        answer = await handler(request)
        answer.headers["X-Pages"] = "yes"
        return answer

    async def close(self):
        print("pages closed", flush=True)

@hookimpl
def register_rest_extensions():
    return [Pages]
"""
SECRET = "open sesame"


class Extended:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        site = directory / "site"
        info = site / "acme-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[klamm]\nacme = acme_pages\n")
        (site / "acme_pages.py").write_text(MODULE)
        users = directory / "users.toml"
        hashed = hash_password(SECRET)
        users.write_text(
            f'[users.ann]\npassword = "{hashed}"\nrole = "admin"\n'
            f'[users.vic]\npassword = "{hashed}"\nrole = "viewer"\nconnectors = "x-*"\n'
        )
        more = {
            # By its Java name, so that the hook is what finds it
            "rest.extension.classes": "com.acme.PagesRestExtension",
            "rest.extension.pages.greeting": "hello",
            "rest.auth.file": str(users),
        }
        self.worker = WorkerProcess(
            worker_properties(bootstrap, f"ext-{directory.name}", **more), directory, python_path=str(site)
        ).wait_ready()

    def get(self, path: str, user: str | None = "ann", **headers: str) -> Response:
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{SECRET}".encode()).decode()
        return self.worker.request("GET", path, headers=headers)


@pytest.fixture(scope="module")
def extended(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    found = Extended(bootstrap, tmp_path_factory.mktemp("extended"))
    yield found
    found.worker.end()


@pytest.mark.parametrize(
    ("prefix", "user", "status"),
    [
        ("open", None, 200),
        ("any", None, 401),
        ("any", "vic", 200),
        ("view", "vic", 403),  # the paths are about all connectors, and vic sees some
        ("view", "ann", 200),
        ("administer", None, 401),
        ("administer", "vic", 403),
        ("administer", "ann", 200),
    ],
)
def test_the_worker_asks_who_may_use_its_paths(
    extended: Extended, prefix: str, user: str | None, status: int
) -> None:
    answer = extended.get(f"/acme-{prefix}/page", user, Accept="text/html")
    assert answer.status == status
    if status == 200:
        assert answer.content == "<p>hello</p>"


def test_spellings_do_not_get_past_the_check(extended: Extended) -> None:
    for path in ("//acme-view/page", "/acme%2Dview/page", "/acme-view//page", "/./acme-view/page"):
        assert extended.get(path, None).status in {401, 404}, path


def test_it_knows_the_group(extended: Extended) -> None:
    config = {
        "connector.class": "FileStreamSource",
        "file": "/nowhere",
        "topic": "t",
        "db.password": "s3cret",
    }
    body = {"name": "x-1", "config": config, "initial_state": "STOPPED"}
    auth = "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()
    made = extended.worker.request("POST", "/connectors", body, headers={"Authorization": auth})
    assert made.status == 201, made.content
    state = extended.get("/acme-view/state").json
    assert state["connectors"] == ["x-1"]
    assert state["url"] == f"http://127.0.0.1:{extended.worker.port}"
    assert state["greeting"] == "hello"
    assert state["cluster"]

    def one() -> dict[str, Any]:
        return extended.get("/acme-view/state?of=x-1").json

    def stopped() -> bool:
        return one().get("status", {}).get("connector", {}).get("state") == "STOPPED"

    wait_for(stopped, lambda: str(one()))
    assert one()["config"]["db.password"] == "[hidden]"
    assert extended.get("/acme-view/state?of=y").json == {"error_code": 404, "message": "HTTP 404 Not Found"}


def test_middlewares_see_every_request_but_those_between_workers(extended: Extended) -> None:
    assert extended.get("/connectors").headers["X-Pages"] == "yes"
    assert extended.get("/connectors", **{"X-Evil": "1"}).json == {
        "error_code": 403,
        "message": "HTTP 403 Forbidden",
    }
    assert extended.get("/connectors", None).status == 401
    answer = extended.worker.request("POST", "/connectors/x-1/tasks", [], headers={"X-Evil": "1"})
    assert (answer.status, "X-Pages" in answer.headers) == (
        400,
        False,
    )  # signatures are asked for, nothing else


class Taken(RestExtension):
    def register(self, context: RestContext) -> None:
        context.add_app("/connectors/", web.Application())


class Twice(RestExtension):
    def register(self, context: RestContext) -> None:
        for _ in range(2):
            context.add_app("twice", web.Application())

    async def close(self) -> None:
        raise OSError("cannot")


class Refuses(RestExtension):
    def configure(self, props: Any) -> None:
        raise ConfigError("rest.extension.door=shut: not open", key="rest.extension.door")

    def register(self, context: RestContext) -> None:
        """Never reached."""


def config(*classes: type | str) -> WorkerConfig:
    names = [c if isinstance(c, str) else f"{c.__module__}.{c.__qualname__}" for c in classes]
    props = worker_properties("127.0.0.1:1", "g")
    return WorkerConfig.from_properties(props | {"rest.extension.classes": ",".join(names)})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "com.acme.MissingExtension",
            r"Class com\.acme\.MissingExtension could not be found; REST extensions are: none",
        ),
        (Refuses, "rest.extension.door=shut: not open"),
    ],
)
def test_what_cannot_be_used_is_a_config_error(name: type | str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Extensions(config(name))


@pytest.mark.parametrize(
    ("cls", "said"), [(Taken, "the prefix connectors is taken"), (Twice, "the prefix twice is taken")]
)
def test_prefixes_are_ones_own(cls: type, said: str, caplog: pytest.LogCaptureFixture) -> None:
    from klamm.connect.rest.app import ENDPOINTS_OF_WORKERS

    extensions = Extensions(config(cls))
    with pytest.raises(ConfigError, match=said):
        extensions.register(object(), "http://x", ENDPOINTS_OF_WORKERS)  # type: ignore[arg-type]
    asyncio.run(extensions.close())
    assert ("could not be closed" in caplog.text) == (cls is Twice)
