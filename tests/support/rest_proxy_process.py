"""A REST proxy of ours in a process, for tests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from support.server_process import ServerProcess

V2 = "application/vnd.kafka.v2+json"


class RestProxyProcess(ServerProcess):
    """`klamm rest start`."""

    command = "rest"
    ready = "rest-proxy"

    def __init__(self, bootstrap: str, directory: Path, **more: str) -> None:
        settings = {key.replace("__", "."): value for key, value in more.items()}
        super().__init__(directory, {"bootstrap.servers": bootstrap, **settings})

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = V2,
        accept: str = "*/*",
        login: str = "",
    ) -> tuple[int, Any]:
        """Returns status and answer of a request; `path` may be a whole address."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Accept": accept, **({"Authorization": login} if login else {})}
        if data is not None:
            headers["Content-Type"] = kind
        url = path if path.startswith("http") else self.url + path
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=60
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.loads(e.read())

    def produce(self, topic: str, form: str, records: list[dict[str, Any]], **more: Any) -> Any:
        """Sends records by v2 and returns the answer."""
        body = {"records": records, **more}
        status, answer = self.ask(
            "POST", f"/topics/{topic}", body, kind=f"application/vnd.kafka.{form}.v2+json"
        )
        assert status == 200, answer
        return answer

    def consumer(self, group: str, form: str, **more: str) -> str:
        """Makes a consumer instance from the earliest record on, and returns its address."""
        settings = {"format": form, "auto.offset.reset": "earliest", **more}
        status, answer = self.ask("POST", f"/consumers/{group}", settings)
        assert status == 200, answer
        return str(answer["base_uri"])

    def read(self, consumer: str, form: str, count: int) -> list[dict[str, Any]]:
        """Reads this many records."""
        found: list[dict[str, Any]] = []
        for _ in range(40):
            status, answer = self.ask(
                "GET", f"{consumer}/records?timeout=2000", accept=f"application/vnd.kafka.{form}.v2+json"
            )
            assert status == 200, answer
            found += answer
            if len(found) >= count:
                break
        return found
