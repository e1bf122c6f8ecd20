"""A receiver of webhooks: `with Webhook() as hook`. `hook.status` is the answer's, which comes `hook.pause_s` after the notice is taken."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tried += 1
        if self.server.status < 300:
            self.server.got.append((self.command, self.path, json.loads(body)))
        time.sleep(self.server.pause_s)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Webhook(ThreadingHTTPServer):
    """`got` has method, path and JSON of what was taken, `tried` counts all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, str, Any]] = []
        self.tried = 0
        self.status = 200
        self.pause_s = 0.0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, group: str) -> list[Any]:
        """Returns the bodies about a group."""
        return [body for _, _, body in self.got if body["group"] == group]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()
        self.server_close()
