"""A registry that changes, or does not answer: new versions are taken, and nothing else waits."""

from __future__ import annotations

import base64
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.broker import new_topic
from support.rest_proxy_process import RestProxyProcess

from klamm.restproxy import schemas
from klamm.restproxy.errors import ProxyError
from klamm.restproxy.schemas import Schemas
from klamm.testing import EmbeddedBroker
from klamm.web.passwords import hash_password
from klamm_plugins.errors import RetriableError


class Registry:
    """Answers what the test says."""

    def __init__(self) -> None:
        self.version = 1
        self.asked: list[str] = []

    def ask(self, _method: str, path: str) -> Any:
        self.asked.append(path)
        return {"id": 100 + self.version, "version": self.version, "schema": '"string"'}


def test_a_new_version_is_taken_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    now, registry = [0.0], Registry()
    monkeypatch.setattr(schemas.time, "monotonic", lambda: now[0])
    found: Any = Schemas(registry)  # type: ignore[arg-type]
    assert found.known_latest("a/b-value") is None
    assert found.latest("a/b-value").id == 101
    assert registry.asked == ["/subjects/a%2Fb-value/versions/latest"]
    registry.version = 2
    assert found.known_latest("a/b-value").id == 101
    now[0] += schemas.LATEST_S
    assert found.known_latest("a/b-value") is None
    assert found.latest("a/b-value").id == 102
    assert found.known_latest("a/b-value", 1) is None


def test_whatever_fails_in_a_codec_is_an_error_of_the_value() -> None:
    class Deep:
        def encode(self, _value: Any) -> bytes:
            raise RecursionError("too deep")

        def decode(self, _data: bytes) -> Any:
            raise NotImplementedError

    with pytest.raises(ProxyError, match="RecursionError: too deep") as e:
        schemas.encoded(Deep(), 1)
    assert e.value.code == 42203


def test_who_waits_for_a_registry_that_is_away_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, lost = [0], threading.Event()

    class Away:
        def ask(self, _method: str, _path: str) -> Any:
            asked[0] += 1
            assert lost.wait(30)
            raise RetriableError("it is away")

    found = Schemas(Away())  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(found.latest, f"s{n}") for n in range(8)]
        while not asked[0]:
            time.sleep(0.01)
        time.sleep(0.5)  # the others stand behind it
        lost.set()
        errors = [each.exception(30) for each in waiting]
    assert [(type(each), str(each)) for each in errors] == [(ProxyError, "it is away")] * 8
    assert asked == [1]


@pytest.mark.usefixtures("processes")
def test_a_registry_that_does_not_answer_keeps_nobody_else_waiting(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Neither who produces to a new topic nor whose password is checked first."""
    topic, users = new_topic(broker), tmp_path / "users.toml"
    users.write_text(
        "".join(f'[users.u{n}]\npassword = "{hash_password("p")}"\nrole = "admin"\n' for n in range(2))
    )
    logins = [f"Basic {base64.b64encode(f'u{n}:p'.encode()).decode()}" for n in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "schema.registry.url": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "rest.auth.file": str(users),
        }
        body: dict[str, Any] = {"value_schema": '"string"', "records": [{"value": "x"}]}
        with (
            ThreadPoolExecutor(40) as pool,
            RestProxyProcess(broker.bootstrap, tmp_path, **settings) as proxy,
        ):

            def produce(form: str, login: int) -> int:
                sent = body if form == "avro" else {"records": [{"value": 1}]}
                kind = f"application/vnd.kafka.{form}.v2+json"
                path = f"/topics/{topic if form == 'avro' else new_topic(broker)}"
                return proxy.ask("POST", path, sent, kind=kind, login=logins[login])[0]

            assert produce("json", 0) == 200
            stuck = [pool.submit(produce, "avro", 0) for _ in range(40)]
            time.sleep(1)
            began = time.monotonic()
            assert produce("json", 1) == 200
            assert time.monotonic() - began < 5
            assert not any(each.done() for each in stuck)
            proxy.end(kill=True)
            assert all(each.exception(30) is not None for each in stuck)
