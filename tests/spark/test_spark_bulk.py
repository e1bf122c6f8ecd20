"""Rows as bulk requests, and the sender: what is sent, what is sent again, and how it slows down."""

from __future__ import annotations

import dataclasses
import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import needs
from support.elasticsearch import documents, unique_index

from klamm.testing.elasticsearch import ElasticsearchServer
from klamm_base.errors import ConfigError
from klamm_spark import bulk, bulk_lines, figures
from klamm_spark import throttle as throttle_module
from klamm_spark.bulk import BulkSender, Figures, Limits, Refused, TargetError, sort_out
from klamm_spark.bulk_lines import BadDocumentError, Layout
from klamm_spark.elasticsearch_http import Endpoint, endpoint, refresh
from klamm_spark.elasticsearch_options import checked
from klamm_spark.elasticsearch_template import log_template, template
from klamm_spark.throttle import CALM, LONGEST_PAUSE_S, Throttle

BY_ID = Layout("index", ("id",), "i", "d")


def rows(ids: list[str], documents: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.string()), "d": pa.array(documents, pa.string())}
    )


def numbered(count: int) -> pa.LargeBinaryArray:
    return bulk_lines.block(
        rows([str(n) for n in range(count)], [f'{{"n":{n}}}' for n in range(count)]), BY_ID
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(), st.dictionaries(st.text(), st.text() | st.integers(0, 9))), min_size=1))
def test_any_text_is_an_id_and_any_document_stays_what_it_is(
    given_rows: list[tuple[str, dict[str, Any]]],
) -> None:
    documents = [orjson.dumps(d, option=orjson.OPT_INDENT_2).decode() for _, d in given_rows]
    lines = bulk_lines.block(rows([i for i, _ in given_rows], documents), BY_ID)
    sent = bytes(bulk_lines.body(lines)).split(b"\n")
    assert sent.pop() == b""
    assert [orjson.loads(x) for x in sent[::2]] == [
        {"index": {"_index": "i", "_id": i}} for i, _ in given_rows
    ]
    assert [orjson.loads(x) for x in sent[1::2]] == [d for _, d in given_rows]
    for number, (identity, document) in enumerate(given_rows):
        assert bulk_lines.identity(lines, number) == ("i", identity)
        assert orjson.loads(bulk_lines.document(lines, number)) == document


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 10), st.integers(1, 200))
def test_parts_hold_every_document_once_within_the_limits(sizes: list[int], most: int, size: int) -> None:
    lines = pa.array([b"x" * n for n in sizes], pa.large_binary())
    parts = list(bulk_lines.cut(lines, most, size))
    assert b"".join(bytes(bulk_lines.body(p)) for p in parts) == b"x" * sum(sizes)
    assert sum(map(len, parts)) == len(sizes)
    assert all(1 <= len(p) <= most and (len(p) == 1 or len(bulk_lines.body(p)) <= size) for p in parts)


def test_columns_are_fields_and_coordinates_are_the_id() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"],
            "partition": [1],
            "offset": [7],
            "_index": ['a"b'],
            "x": [b"\xff"],
            "y": [Decimal("1.5")],
        }
    )
    lines = bulk_lines.block(batch, Layout("create", ("topic", "partition", "offset"), None, None))
    assert bulk_lines.identity(lines, 0) == ('a"b', "t-1-7")
    assert orjson.loads(bulk_lines.document(lines, 0)) == {
        "topic": "t", "partition": 1, "offset": 7, "x": "/w==", "y": 1.5,
    }  # fmt: skip


def test_rows_without_an_id_do_not_overwrite_each_other() -> None:
    layout = Layout("index", ("user", "n"), "i", None)
    batch = pa.RecordBatch.from_pydict({"user": ["a", "b"], "n": [1, 2]})
    lines = bulk_lines.block(batch, layout)
    assert [bulk_lines.identity(lines, n)[1] for n in range(2)] == ["a-1", "b-2"]
    batch = pa.RecordBatch.from_pydict({"user": ["a", None], "n": [1, 2]})
    with pytest.raises(BadDocumentError, match="column user is null in a row"):
        bulk_lines.block(batch, layout)


def test_where_elasticsearch_is_and_its_secrets() -> None:
    where = endpoint({"hosts": "http://u:pa%40ss@a:9200/es, https://b", "timeout.ms": "500"})
    assert where.hosts == ("http://a:9200/es", "https://b:9200")
    assert where.authorization == "Basic dTpwYUBzcw=="
    assert "dTpw" not in repr(where)
    with pytest.raises(ConfigError, match="hosts: write URLs"):
        endpoint({"hosts": "a:9200"})


def test_documents_of_an_answer_are_sorted_out() -> None:
    items = [
        {"index": {"status": 201}},
        {"index": {"status": 429, "error": {"type": "es_rejected_execution_exception"}}},
        {"index": {"status": 400, "error": {"type": "t", "reason": "r", "caused_by": {"reason": "c"}}}},
        {"create": {"status": 409, "error": {}}},
        {"index": {"status": 503, "error": {"type": "unavailable_shards_exception"}}},
    ]  # fmt: skip
    verdict = sort_out({"errors": True, "items": items}, 5)
    assert (verdict.taken, verdict.overloaded, verdict.passing) == (2, [1], [4])
    assert verdict.refused == [(2, "t: r: c")]
    with pytest.raises(TargetError, match="answered for 5 of 6"):
        sort_out({"errors": True, "items": items}, 6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.booleans(), max_size=200), st.integers(1, 5000), st.integers(1, 8))
def test_a_throttle_stays_within_its_bounds_and_recovers(
    answers: list[bool], documents: int, flight: int
) -> None:
    throttle = Throttle(documents, flight)
    for now, good in enumerate(answers, 1):
        throttle.accepted() if good else throttle.refused(now, now)
        assert 1 <= throttle.documents <= documents
        assert 1 <= throttle.in_flight <= flight
        assert (throttle.pause_s == 0) if good else (0 < throttle.pause_s <= LONGEST_PAUSE_S)
    for _ in range(documents + CALM * flight):
        throttle.accepted()
    assert not throttle.slowed


def test_requests_that_were_under_way_together_slow_down_once() -> None:
    throttle = Throttle(1000, 4)
    for _ in range(4):
        throttle.refused(1.0, 2.0)
    assert (throttle.in_flight, throttle.documents) == (2, 1000)
    throttle.refused(3.0, 4.0)
    throttle.refused(5.0, 6.0)
    assert (throttle.in_flight, throttle.documents, throttle.pause_s) == (1, 500, 0.004)


class Server(http.server.ThreadingHTTPServer):
    """Answers by `rule(number of the request, ids)`: an HTTP status, or a status for each id."""

    daemon_threads = True

    def __init__(self, rule: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rule = rule
        self.lock = threading.Lock()
        self.requests: list[list[str]] = []
        self.taken: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
        ids = [orjson.loads(line)["index"]["_id"] for line in lines[::2]]
        with self.server.lock:
            self.server.requests.append(ids)
            said = self.server.rule(len(self.server.requests), ids)
            found = dict.fromkeys(ids, 201) if said == 200 else said
            if not isinstance(found, int):
                self.server.taken += [i for i, status in found.items() if status == 201]
        status, answer = (
            (found, {"error": {"type": "t"}}) if isinstance(found, int) else (200, self._items(found))
        )
        data = orjson.dumps(answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _items(self, found: dict[str, int]) -> dict[str, Any]:
        items = [
            {"index": {"status": s} | ({"error": {"type": "t", "reason": "r"}} if s > 299 else {})}
            for s in found.values()
        ]
        return {"errors": any(s > 299 for s in found.values()), "items": items}

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bulk, throttle_module):
        monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)


@contextmanager
def serving(rule: Any, retry_s: float = 60) -> Iterator[tuple[Server, Endpoint]]:
    bulk._throttles.clear()
    with Server(rule) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server, Endpoint((f"http://127.0.0.1:{server.server_port}",), retry_s=retry_s)
        finally:
            server.shutdown()
            thread.join()


def write(where: Endpoint, lines: pa.LargeBinaryArray, limits: Limits) -> tuple[Figures, list[Refused]]:
    refused: list[Refused] = []
    with BulkSender(where, limits, refused.extend) as sender:
        sender.send(lines)
        return sender.finish(), refused


def test_an_overloaded_server_gets_fewer_documents_at_a_time_and_in_the_end_all() -> None:
    def rule(number: int, ids: list[str]) -> Any:
        if len(ids) > 30:
            return 429
        return dict.fromkeys(ids, 429) if number % 7 == 0 else 200

    with serving(rule) as (server, where):
        found, refused = write(where, numbered(400), Limits(documents=200, in_flight=3))
        assert sorted(server.taken, key=int) == [str(n) for n in range(400)]
        assert refused == []
        assert found.documents == 400
        assert found.throttled > 3
        assert found.throttled_s > 0
        assert bulk._throttles[where.hosts].slowed, (
            "the next task of this process begins where this one ended"
        )


def test_a_server_that_only_says_429_is_not_given_up_and_is_said_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "OVERLOAD_SAID_S", 0.3)
    said: list[str | None] = []
    until = time.monotonic() + 1.2  # longer than retry_s
    rule = lambda number, ids: 200 if said and time.monotonic() > until else 429
    with serving(rule, retry_s=0.5) as (server, where):
        with BulkSender(where, Limits(), lambda refused: None, said.append) as sender:
            sender.send(numbered(10))
            found = sender.finish()
        assert (found.documents, sorted(server.taken)) == (10, [str(n) for n in range(10)])
        assert {*said[:-1]} == {f"{where.hosts[0]}: it is overloaded (429)"}
        assert said[-1] is None


def test_the_first_warning_counts_no_message_that_was_kept_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bulk, "WARN_EVERY_S", 0.5)
    until = time.monotonic() + 1.5
    with serving(lambda number, ids: 200 if time.monotonic() > until else 429) as (_, where):
        write(where, numbered(10), Limits())
    warned = [r.getMessage() for r in caplog.records if "is overloaded (429)" in r.getMessage()]
    assert warned
    assert "more like this" not in warned[0]


def test_only_what_is_not_taken_is_sent_again() -> None:
    statuses = {"0": 201, "1": 429, "2": 400, "3": 503}

    def rule(number: int, ids: list[str]) -> Any:
        return statuses if number == 1 else 200

    with serving(rule) as (server, where):
        found, refused = write(where, numbered(4), Limits())
        assert server.requests == [["0", "1", "2", "3"], ["1", "3"]]
        assert [(r.id, r.index, r.reason, r.document) for r in refused] == [("2", "i", "t: r", b'{"n":2}')]
        assert (found.documents, found.refused, found.throttled) == (3, 1, 1)


def test_a_request_that_is_too_large_is_halved_and_a_document_that_is_too_large_refused() -> None:
    def rule(number: int, ids: list[str]) -> Any:
        return 413 if "7" in ids or len(ids) > 4 else 200

    with serving(rule) as (server, where):
        found, refused = write(where, numbered(16), Limits(in_flight=1))
        assert sorted(server.taken, key=int) == [str(n) for n in range(16) if n != 7]
        assert [r.id for r in refused] == ["7"]
        assert found.documents == 15


def test_a_server_that_is_away_is_waited_for_and_then_said() -> None:
    with serving(lambda number, ids: 503 if number < 3 else 200) as (_, where):
        assert write(where, numbered(3), Limits())[0].documents == 3
    impatient = dataclasses.replace(where, retry_s=0.5)
    with pytest.raises(TargetError, match=r"refused for 0 s; documents wait"):
        write(impatient, numbered(2), Limits())
    with (
        serving(lambda number, ids: 401) as (_, where),
        pytest.raises(TargetError, match="refuses the bulk request with 401"),
    ):
        write(where, numbered(2), Limits())


def test_a_writer_says_that_its_server_is_away_and_that_it_is_back() -> None:
    said: list[str | None] = []
    with serving(lambda number, ids: 503 if number < 3 else 200) as (_, where):
        with BulkSender(where, Limits(), lambda _: None, said.append) as sender:
            sender.send(numbered(3))
            assert sender.finish().documents == 3
        assert said == [f"{where.hosts[0]}: it answers 503"] * (len(said) - 1) + [None]
        assert len(said) > 1


def test_a_document_for_which_a_whole_request_is_refused_is_found() -> None:
    with serving(lambda number, ids: 400 if "7" in ids else 200) as (server, where):
        found, refused = write(where, numbered(40), Limits(in_flight=1))
        assert sorted(server.taken, key=int) == [str(n) for n in range(40) if n != 7]
        assert [(r.id, r.reason) for r in refused] == [("7", "t: None")]
        assert (found.documents, found.refused) == (39, 1)


def test_an_id_that_elasticsearch_does_not_take_holds_up_no_other(
    elasticsearch_server: ElasticsearchServer,
) -> None:
    index = unique_index("ids")
    lines = bulk_lines.block(
        rows(["a", "x" * 513, "b", "", "c"], ['{"n":1}'] * 5), Layout("index", ("id",), index, "d")
    )
    found, refused = write(endpoint({"hosts": elasticsearch_server.url}), lines, Limits())
    assert (found.documents, sorted(len(r.id) for r in refused)) == (3, [0, 513])
    assert any("id [xxx" in r.reason for r in refused), [r.reason for r in refused]
    assert sorted(documents(elasticsearch_server, index)) == ["a", "b", "c"]


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_document_is_taken_once_or_refused_whatever_the_answers_are(data: st.DataObject) -> None:
    answers = st.sampled_from([201, 201, 201, 429, 503, 400])
    count = data.draw(st.integers(1, 30))
    script = data.draw(st.lists(st.lists(answers, min_size=count, max_size=count), max_size=3))

    def rule(number: int, ids: list[str]) -> Any:
        return dict(zip(ids, script[number - 1], strict=False)) if number <= len(script) else 200

    limits = Limits(documents=data.draw(st.integers(1, 40)), in_flight=data.draw(st.integers(1, 3)))
    with serving(rule) as (server, where):
        _, refused = write(where, numbered(count), limits)
        assert sorted([*server.taken, *(r.id for r in refused)], key=int) == [str(n) for n in range(count)]


def test_what_a_handler_of_refused_documents_raises_ends_the_sender() -> None:
    def fail(bad: list[Refused]) -> None:
        raise BadDocumentError(f"{len(bad)} refused")

    with serving(lambda number, ids: dict.fromkeys(ids, 400)) as (_, where):
        sender = BulkSender(where, Limits(), fail)
        sender.send(numbered(5))
        with sender, pytest.raises(BadDocumentError, match="5 refused"):
            sender.finish()


def test_figures_reach_the_driver_once(tmp_path: Any) -> None:
    place = figures.option("documents")
    figures.leave(place, 3, Figures(documents=5, throttled=1))
    assert figures.take("documents", 2) is None
    assert figures.take("documents", 3) == {
        "documents": 5, "refused": 0, "requests": 0, "throttled": 1, "throttled_s": 0.0, "request": 0, "in_flight": 0,
    }  # fmt: skip
    assert figures.take("documents", 3) is None
    figures.leave(str(tmp_path / "elsewhere" / "x"), 1, Figures())
    total = Figures(documents=1, request=500, in_flight=2)
    total.add(Figures(documents=2, request=250, throttled=1))
    assert (total.documents, total.request, total.in_flight, total.throttled) == (3, 250, 2, 1)


def test_options_that_cannot_be_used_are_named(tmp_path: Any) -> None:
    needs.module("pyspark", extra="spark")
    from klamm_spark.elasticsearch import target

    base, columns = {"hosts": "http://a"}, ["topic", "partition", "offset", "@timestamp", "d"]
    stream = target(base | {"data_stream": "logs-shop-default"}, columns)
    assert (stream.layout.operation, stream.layout.index) == ("create", "logs-shop-default")
    for options, said in (
        ({}, "needs an option index or data_stream"),
        ({"index": "i", "data_stream": "s"}, "set data_stream or index"),
        ({"data_stream": "Logs"}, "use small letters"),
        ({"data_stream": "-x"}, "use small letters"),
        ({"data_stream": "s", "op": "index"}, "leave op out"),
        ({"index": "i", "op": "update"}, "use index or create"),
        ({"index": "i", "max.in.flight": "0"}, "at least 1"),
        ({"index": "i", "template.patterns": "x"}, "needs the option template"),
        (
            {"index": "i", "template": "t", "template.body": str(tmp_path / "no")},
            "cannot be read: No such file",
        ),
        ({"index": "i", "colour": "red"}, "unknown option colour"),
    ):
        with pytest.raises(ConfigError, match=said):
            target(base | options, columns)
    with pytest.raises(ConfigError, match="documents need a column @timestamp"):
        target(base | {"data_stream": "s"}, columns[:3])
    with pytest.raises(ConfigError, match=r"needs template\.patterns"):
        target(base | {"template": "t"}, [*columns, "_index"])
    (tmp_path / "t.json").write_text('{"index_patterns": ["a-*"]}')
    found = template({"template": "t", "template.body": str(tmp_path / "t.json")}, None)
    assert found is not None
    assert found.body == b'{"index_patterns": ["a-*"]}'
    assert log_template(["a"], data_stream=True)["data_stream"] == {}


def test_a_refresh_that_fails_is_told_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    refresh(endpoint({"hosts": "http://127.0.0.1:1"}), {"a"})
    assert "http://127.0.0.1:1: refresh: [Errno 111] Connection refused" in caplog.text


def test_the_indices_of_rows() -> None:
    fixed = Layout("index", ("id",), "i", "d")
    batch = rows(["1", "2", "3"], ["{}"] * 3)
    assert bulk_lines.indexes(batch, fixed) == {"i"}
    column = pa.array(["a", None, "a"], pa.string())
    assert bulk_lines.indexes(batch.append_column("_index", column), fixed) == {"a", "i"}


def test_refresh_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="refresh=wait_for: use true or false"):
        checked({"hosts": "http://127.0.0.1:1", "index": "i", "refresh": "wait_for"})
