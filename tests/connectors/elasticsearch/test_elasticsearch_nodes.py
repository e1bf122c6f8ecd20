"""The HTTP client of the sink, against servers in this process: kept connections, nodes that fail, who answers."""

from __future__ import annotations

import gzip
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.connect_worker import wait_for

from klamm_connectors.elasticsearch.client import NO_ANSWER, Client
from klamm_connectors.elasticsearch.config import parse


class Node(ThreadingHTTPServer):
    """A node that says yes to everything. `connections` counts those that were made, `open` those that there are."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.connections = self.open = 0
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status, self.product, self.keeps = 200, "Elasticsearch", True
        self.answers = threading.Event()
        self.answers.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints the error of a handler, unless the client is gone: one whose time is up does not wait for its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Node

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1
        self.server.open += 1

    def do_POST(self) -> None:
        node = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        node.asked.append((self.command, self.path, dict(self.headers), body))
        node.answers.wait(10)
        said = b'{"errors":false,"items":[]}'
        self.send_response(node.status)
        self.send_header("Content-Length", str(len(said)))
        if node.product:
            self.send_header("X-Elastic-Product", node.product)
        self.end_headers()
        self.wfile.write(said)
        self.close_connection = not node.keeps

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def start() -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(port: int = 0) -> Node:
        nodes.append(Node(port))
        return nodes[-1]

    yield make
    for node in nodes:
        node.end()


def client(*nodes: Node, **props: str) -> Client:
    keys = {k.replace("__", "."): v for k, v in props.items()}
    return Client(parse({"connection.url": ",".join(n.url for n in nodes), **keys}))


def test_a_connection_is_kept_and_one_that_the_node_closed_is_replaced(start) -> None:
    node = start()
    ours = client(node, connection__username="me", connection__password="ä b")
    assert [ours.bulk(b"x", 5).status for _ in range(3)] == [200] * 3
    assert node.connections == 1
    _, path, headers, body = node.asked[0]
    assert path == "/_bulk?filter_path=errors,items.*.status,items.*.error"
    assert headers["Content-Type"] == "application/vnd.elasticsearch+x-ndjson; compatible-with=8"
    assert headers["Authorization"] == "Basic bWU6w6QgYg=="
    assert body == b"x"
    node.keeps = False
    for _ in range(3):
        assert ours.bulk(b"x", 5).status == 200
        wait_for(lambda: not node.open, lambda: "the connection is open")
    assert node.connections == 3
    ours.close()


def test_bodies_are_compressed_on_request(start) -> None:
    node = start()
    ours = client(node, connection__compression="true")
    ours.bulk(b"x" * 1000, 5)
    _, _, headers, body = node.asked[0]
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == b"x" * 1000
    ours.close()


def test_a_node_that_is_gone_costs_one_request(start) -> None:
    first, second = start(), start()
    ours = client(first, second)
    assert {ours.bulk(b"x", 5).status for _ in range(4)} == {200}
    assert first.asked
    assert second.asked
    ours.close()
    ours = client(first, second)
    first.end()
    replies = [ours.bulk(b"x", 5) for _ in range(8)]
    assert sorted(r.status for r in replies)[:2] == [NO_ANSWER, 200]
    assert not any(r.fatal or r.timed_out for r in replies)
    ours.close()


def test_a_request_that_is_under_way_at_the_end_leaves_no_connection(start) -> None:
    node = start()
    node.answers.clear()
    ours, replies = client(node), []
    thread = threading.Thread(target=lambda: replies.append(ours.bulk(b"x", 10)))
    thread.start()
    wait_for(lambda: node.asked, lambda: "no request")
    ours.close()
    node.answers.set()
    thread.join()
    assert replies[0].status == 200
    wait_for(lambda: not node.open, lambda: "the connection is open")


def test_a_late_answer_is_none(start) -> None:
    node = start()
    node.answers.clear()
    ours = client(node)
    reply = ours.bulk(b"x", 0.05)
    assert (reply.status, reply.timed_out, reply.fatal) == (NO_ANSWER, True, False)
    node.answers.set()
    assert ours.bulk(b"x", 5).status == 200
    ours.close()


@pytest.mark.parametrize("product", ["", "Other"])
def test_a_server_that_is_not_elasticsearch_is_refused(start, product) -> None:
    node = start()
    node.product = product
    ours = client(node)
    reply = ours.bulk(b"x", 5)
    assert reply.fatal
    assert "is not Elasticsearch's" in reply.reason
    node.status = 503  # says nothing about what it is
    assert not ours.bulk(b"x", 5).fatal
    ours.close()


@pytest.mark.parametrize("whole", [False, True], ids=["closed", "half"])
def test_a_refusal_that_comes_before_all_is_sent_is_an_answer(whole: bool) -> None:
    """A proxy with a limit answers 413 after the headers, and closes."""
    server = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as sent:
            while sent.readline() != b"\r\n":
                pass
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
            if whole:
                connection.shutdown(socket.SHUT_WR)
                sent.read(1)

    with server:
        threading.Thread(target=refuse, daemon=True).start()
        client = Client(parse({"connection.url": f"http://127.0.0.1:{server.getsockname()[1]}"}))
        assert client.bulk(b"x" * 20_000_000, 5.0).status == 413
