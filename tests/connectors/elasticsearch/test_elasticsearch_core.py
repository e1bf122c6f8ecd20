"""The sink's pure parts: commits without gaps, order per id, flow control, answers, documents, mappings."""

from __future__ import annotations

import contextlib
import itertools
import json
import ssl
import threading
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import certifi
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from klamm_connectors.elasticsearch.answers import judge, never_fits
from klamm_connectors.elasticsearch.buffer import Buffer, Document, Run
from klamm_connectors.elasticsearch.client import Reply, ssl_context
from klamm_connectors.elasticsearch.config import Ssl, parse
from klamm_connectors.elasticsearch.conflicts import Conflicts
from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
from klamm_connectors.elasticsearch.documents import DocumentBuilder
from klamm_connectors.elasticsearch.lines import LineBuilder
from klamm_connectors.elasticsearch.mapping import mapping_of
from klamm_connectors.elasticsearch.task import ElasticsearchSinkTask
from klamm_connectors.elasticsearch.tracker import Chunk, Tracker
from klamm_connectors.elasticsearch.window import PAUSE_MAX_S, Window
from klamm_plugins import logical
from klamm_plugins.batch import JSON, TEXT, SinkBatch
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError
from klamm_plugins.records import Headers, SinkRecord, TopicPartition
from klamm_plugins.schema import BYTES, FLOAT64, INT32, OPTIONAL_STRING, STRING, SchemaBuilder, Struct
from klamm_plugins.testing import MemorySinkContext

URL = {"connection.url": "http://127.0.0.1:9200"}
PLACE = TopicPartition("t", 0)


def record(value=None, key="k", offset=7, schema=None, topic="t", timestamp=1_700_000_000_123, headers=()):
    return SinkRecord(
        topic, 0, None, key, schema, value, offset, timestamp, "CreateTime", Headers.of(*headers)
    )


def build(rec, **props):
    """Returns action and source that the record becomes, as the server reads them."""
    keys = {k.replace("__", "."): v for k, v in props.items()}
    built = DocumentBuilder(parse({**URL, **keys})).build(rec)
    if built is None:
        return None
    return meaning(built[0])


def documents(ids, chunk=None):
    chunk = chunk or Chunk(0)
    records = [record(offset=n) for n in range(len(ids))]
    return [Document(b"x\n", i, "t", chunk, records, n) for n, i in enumerate(ids)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_documents_of_one_id_pass_in_order_and_none_is_lost(data):
    """The last document of each id is the last that the server took, also after documents were refused, split and sent again.
    It does not matter whether they came one by one or in runs.
    """
    ids = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30))
    docs = documents(ids)
    buffer, under_way, applied, seen = Buffer(), [], [], set()
    fed = 0
    for _ in range(600):
        if fed < len(docs):
            part = docs[fed : fed + data.draw(st.integers(1, 5))]
            buffer.add([run_of(part)] if data.draw(st.booleans()) else part, 0)
            fed += len(part)
        if request := buffer.take(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 20)), 0):
            now = {i for part in request.parts for i in part.ids}
            assert not any(now & {i for part in other.parts for i in part.ids} for other in under_way)
            assert request.body() == b"x\n" * sum(map(len, request.parts))
            under_way.append(request)
        elif not under_way and fed >= len(docs):
            break
        if under_way and (len(under_way) > 2 or request is None or data.draw(st.booleans())):
            request = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            fate = data.draw(st.sampled_from(["whole", "done", "done", "lost", "split", "part"]))
            if fate == "whole":
                buffer.done(request.parts, 0)
                applied += [d.row for d in request.documents]
                seen.update(d.row for d in request.documents)
                continue
            if fate == "split":
                buffer.split(request)
                continue
            all_ = request.documents
            kept = all_ if fate == "done" else [] if fate == "lost" else all_[: len(all_) // 2]
            # What comes again may have been taken all the same.
            applied += [d.row for d in (all_ if data.draw(st.booleans()) else kept)]
            seen.update(d.row for d in kept)
            again = all_[len(kept) :]
            buffer.done(kept, 0, again)
            if again:
                buffer.again(request, again, data.draw(st.integers(1, 3)))
    else:
        assume(False)  # nothing but losses was drawn
    assert len(seen) == len(docs)
    assert (buffer.open, buffer.size, buffer.waiting) == (0, 0, 0)
    for i in ("a", "b", "c"):
        mine = [d.row for d in docs if d.id == i]
        if mine:
            assert [row for row in applied if ids[row] == i][-1] == mine[-1]


def run_of(docs):
    first = docs[0]
    lines, ids = [d.data for d in docs], [d.id for d in docs]
    rows = [d.row for d in docs]
    return Run(lines, ids if any(ids) else (), first.index, first.chunk, first.records, rows)


def test_an_id_of_which_something_comes_again_is_not_free_yet():
    """The first of a request was taken, the second comes again: the third must not overtake it."""
    first, second, third = documents(["a", "a", "a"])
    buffer = Buffer()
    buffer.add([first, second, third], 0)
    request = buffer.take(2, 100, 0)
    assert buffer.take(2, 100, 0) is None
    buffer.done([first], 0, again=[second])
    buffer.again(request, [second], 2)
    assert buffer.take(2, 100, 0).documents == [second]
    assert buffer.take(2, 100, 0) is None
    buffer.done([second], 0)
    assert buffer.take(2, 100, 0).documents == [third]


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=20), st.randoms(use_true_random=False))
def test_only_a_prefix_without_gaps_is_committed(chunks, random):
    tracker, end, all_chunks = Tracker(), 0, []
    for size, _ in chunks:
        end += size
        chunk = tracker.begin(PLACE, end)
        chunk.open = size
        all_chunks.append(chunk)
    finished = [i for i, (_, done) in enumerate(chunks) if done]
    random.shuffle(finished)
    for i in finished:
        all_chunks[i].open = 0
        expected = 0
        for chunk in all_chunks:
            if chunk.open:
                break
            expected = chunk.end
        assert tracker.committable({PLACE: end}).get(PLACE, 0) == expected


def test_dropped_partitions_are_not_sent_and_not_committed():
    tracker, buffer = Tracker(), Buffer()
    chunk = tracker.begin(PLACE, 3)
    chunk.open = 2
    buffer.add(documents(["a", "b"], chunk), 0)
    tracker.drop([PLACE])
    assert buffer.take(10, 1000, 0) is None
    assert buffer.open == 0


def test_records_that_were_left_out_on_the_way_are_committed_too():
    tracker = Tracker()
    assert tracker.committable({PLACE: 9}) == {PLACE: 9}
    chunk = tracker.begin(PLACE, 12)
    assert tracker.committable({PLACE: 9}) == {}
    chunk.open -= 1
    assert tracker.committable({PLACE: 15}) == {PLACE: 15}


@given(st.lists(st.tuples(st.sampled_from(["ok", "busy", "away"]), st.floats(0, 3)), max_size=80))
def test_the_window_stays_within_its_limits_and_recovers(events):
    window, now, sent = Window(5, 2000, 0.1), 0.0, 0.0
    for what, later in events:
        sent, now = now, now + later
        match what:
            case "ok":
                window.got_through()
            case "busy":
                window.refused(sent, now, 0.5)
            case "away":
                window.unreachable(sent, now, 0.5)
        assert 1 <= window.in_flight <= 5
        assert 1 <= window.documents <= 2000
        assert window.hold_until <= now + PAUSE_MAX_S
        assert window.allowed == (1 if what == "away" else window.in_flight)
    for _ in range(200):
        window.got_through()
    assert (window.in_flight, window.documents, window.troubled) == (5, 2000, False)


def test_answers_to_requests_of_before_the_cut_do_not_cut_again():
    window = Window(8, 1000, 0.1)
    window.refused(0.0, 1.0, 0)
    window.refused(0.5, 1.1, 0)
    assert window.in_flight == 4
    window.refused(1.2, 1.5, 0)
    assert window.in_flight == 2


def answer(*results):
    items = [
        {op: {"status": status} | ({"error": {"type": error, "reason": "r"}} if error else {})}
        for op, status, error in results
    ]
    return json.dumps({"took": 3, "errors": True, "items": items}).encode()


def test_each_item_is_judged_by_itself():
    docs = documents([None] * 7)
    found = judge(
        docs,
        answer(
            ("index", 201, None),
            ("delete", 404, None),
            ("index", 409, "version_conflict_engine_exception"),
            ("index", 429, "es_rejected_execution_exception"),
            ("index", 400, "document_parsing_exception"),
            ("index", 503, "unavailable_shards_exception"),
            ("index", 403, "cluster_block_exception"),
        ),
        5,
    )
    assert found.done == docs[:3]
    assert found.again == [docs[3], docs[5], docs[6]]
    assert [d for d, _ in found.malformed] == [docs[4]]
    assert [d.attempts for d in docs] == [0, 0, 0, 0, 0, 1, 0]
    assert (found.failed, bool(found.busy), bool(found.blocked), bool(found.passing)) == (
        None,
        True,
        True,
        True,
    )


def test_later_documents_of_an_id_come_again_with_it():
    docs = documents(["a", "b", "a"])
    found = judge(docs, answer(("update", 429, "x"), ("update", 200, None), ("update", 200, None)), 5)
    assert (found.again, found.done) == ([docs[0], docs[2]], [docs[1]])


def test_retries_that_count_come_to_an_end_and_others_do_not():
    docs = documents(["a"])
    for _ in range(20):
        assert judge(docs, answer(("index", 429, "es_rejected_execution_exception")), 2).again == docs
    for _ in range(2):
        assert judge(docs, answer(("index", 500, "x")), 2).again == docs
    failed = judge(docs, answer(("index", 500, "x")), 2).failed
    assert "t-0@0" in failed
    assert "3 attempts (max.retries)" in failed


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"errors":true,"items":[]}'])
def test_an_answer_that_is_none_fails(body):
    assert "answer to a bulk request" in judge(documents(["a"]), body, 5).failed


def test_what_the_server_cannot_read_comes_again_once_as_the_converter_reads_it():
    raw = Document(b"raw\n", "k", "t", Chunk(0), [record({"a": 2})], 0, rebuild=lambda r: (b"built\n", "k"))
    same = Document(
        b"same\n", None, "t", Chunk(0), [record({"a": 2})], 0, rebuild=lambda r: (b"same\n", None)
    )
    later = Document(b"later\n", "k", "t", Chunk(0), [record({"a": 3})], 0)
    bad = {"index": {"status": 400, "error": {"type": "document_parsing_exception", "reason": "x"}}}
    fine = {"index": {"status": 200}}
    answer = json.dumps({"errors": True, "items": [bad, bad, fine]}).encode()
    found = judge([raw, same, later], answer, 0)
    assert (found.again, raw.data) == ([raw, later], b"built\n")
    assert [d for d, _ in found.malformed] == [same]
    assert (found.busy, found.passing, found.blocked, found.failed) == (None,) * 4
    found = judge([raw, later], json.dumps({"errors": True, "items": [bad, fine]}).encode(), 0)
    assert [d for d, _ in found.malformed] == [raw]


SETTINGS = [
    {"key.ignore": "true"},
    {"key.ignore": "true", "write.method": "upsert"},
    {"behavior.on.null.values": "delete"},
    {"behavior.on.null.values": "ignore", "write.method": "upsert"},
    {"behavior.on.null.values": "delete", "use.autogenerated.ids": "true"},
    {"behavior.on.null.values": "delete", "external.version.header": "v"},
    {"key.ignore": "true", "data.stream.type": "logs", "data.stream.dataset": "d"},
    {"data.stream.type": "logs", "data.stream.dataset": "d", "data.stream.timestamp.field": "a,b"},
]
JSON_TEXTS = (
    st.none()
    | st.sampled_from(
        [
            b"null",
            b"[1]",
            b"5",
            b'{"a":1,"a":2}',
            b' {"a":1}',
            b'{"a":\n1}',
            b'{"a":1}\r',
            b'{"a":"\xc3\xa9"}',
            b'{"@timestamp":"2024-01-01"}',
            b'{"a":2,"@timestamp":null}',
        ]
    )
    | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9) | st.text(max_size=3), max_size=2).map(
        lambda v: json.dumps(v).encode()
    )
)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            JSON_TEXTS,
            st.sampled_from(["k", "ké", 'a"b', "", None, 5, "x" * 600]) | st.text("kl", min_size=1),
        ),
        min_size=1,
        max_size=6,
    ),
    headers=st.lists(
        st.sampled_from([(), (("v", 7),), (("v", "8"),), (("v", "x"),)]), min_size=6, max_size=6
    ),
)
def test_lines_of_a_batch_are_those_of_its_records(rows, headers):
    for way, props in itertools.product(["json", "text", "converted", "bytes", "strings"], SETTINGS):
        note(f"{way} {props}")
        compare(way, props, rows, headers)


def compare(way, props, rows, headers):
    is_json = way in {"json", "converted"}
    converter = JsonConverter() if is_json else StringConverter()
    converter.configure({"schemas.enable": "false"} if is_json else {}, is_key=False)
    schema, raw = converter.raw_values("t", [value for value, _ in rows], (JSON, TEXT))
    batch = SinkBatch(
        PLACE,
        range(7, 7 + len(rows)),
        raw if way in {"json", "text"} else list(raw.data if way == "bytes" else raw.decode(raw.data)),
        topic="routed",
        keys=[key for _, key in rows],
        value_schema=schema,
        times=[("CreateTime", 5)] * len(rows),
        headers=[Headers.of(*each) for each in headers[: len(rows)]] if headers[0] else None,
    )
    invalid, wanted, found = [], [], []
    one = DocumentBuilder(parse({**URL, **props}))
    for row, rec in enumerate(batch.replace().records()):
        try:
            built = one.build(rec)
        except DataError as e:
            invalid.append((row, str(e)))
        else:
            wanted += [] if built is None else [(row, built[1], meaning(built[0]))]
    lines = LineBuilder(parse({**URL, **props})).lines(
        batch, lambda rec, e: found.append((rec.offset - 7, str(e)))
    )
    ids = lines.ids or [None] * len(lines.rows)
    made = [(row, i, meaning(line)) for row, i, line in zip(lines.rows, ids, lines.lines, strict=True)]
    assert made == wanted
    assert found == invalid
    for row, line in zip(lines.rows, lines.lines, strict=True):
        if lines.rebuild is not None:
            assert meaning(lines.rebuild(batch[row])[0]) == meaning(line)


def meaning(data):
    """Returns what the server reads: one JSON object for each line."""
    lines = data.split(b"\n")
    assert lines.pop() == b""
    return [json.loads(line) for line in lines]


def test_an_answer_without_errors_is_not_read_item_by_item():
    docs = documents(["a", "b"])
    for text in (b'{"took":1,"errors":false,"items":[', b'{"errors":false,"took":1,"items":['):
        assert judge(docs, text, 5).done == docs


def test_keys_ids_and_versions():
    versioned = {"_index": "t", "_id": "k", "version": 7, "version_type": "external"}
    assert build(record({"a": 1})) == [{"index": versioned}, {"a": 1}]
    assert build(record({"a": 1}, key=12))[0]["index"]["_id"] == "12"
    assert build(record({"a": 1}), key__ignore="true")[0] == {"index": {"_index": "t", "_id": "t+0+7"}}
    assert build(record({"a": 1}), topic__key__ignore="x,t")[0]["index"]["_id"] == "t+0+7"
    assert build(record({"a": 1}), use__autogenerated__ids="true")[0] == {"index": {"_index": "t"}}
    action, source = build(record({"a": 1}), write__method="upsert")
    assert action == {"update": {"_index": "t", "_id": "k", "retry_on_conflict": 5}}
    assert source == {"doc": {"a": 1}, "doc_as_upsert": True}
    headed = build(record({"a": 1}, headers=[("v", "99")]), external__version__header="v")
    assert headed[0]["index"]["version"] == 99
    for wrong in (1.5, True, "x", -1):
        with pytest.raises(DataError, match="the header v"):
            build(record({"a": 1}, headers=[("v", wrong)]), external__version__header="v")
    assert build(record({"a": 1}, topic="-Big_T"))[0]["index"]["_index"] == "big_t"


def test_ids_say_where_a_record_was_read_not_where_a_transform_routed_it():
    routed = record({"a": 1}).copy()
    routed.topic = "elsewhere"
    action, _ = build(routed, key__ignore="true")
    assert action == {"index": {"_index": "elsewhere", "_id": "t+0+7"}}
    assert routed.original_topic_partition == TopicPartition("t", 0)


@pytest.mark.parametrize("key", [None, b"x", "", "é" * 300, "\ud800", {"a": 1}, True])
def test_keys_that_are_no_ids_are_named(key):
    with pytest.raises(DataError, match="document's id"):
        build(record({"a": 1}, key=key))


def test_tombstones():
    with pytest.raises(DataError, match=r"behavior\.on\.null\.values"):
        build(record(None))
    assert build(record(None), behavior__on__null__values="ignore") is None
    deleted = build(record(None), behavior__on__null__values="delete")
    assert deleted == [{"delete": {"_index": "t", "_id": "k", "version": 7, "version_type": "external"}}]
    assert build(record(None), behavior__on__null__values="delete", key__ignore="true") is None


def test_data_streams_get_a_timestamp():
    stream = {"data__stream__type": "LOGS", "data__stream__dataset": "app", "key__ignore": "true"}
    action, source = build(record({"m": 1}), **stream)
    assert action == {"create": {"_index": "logs-app-t", "_id": "t+0+7"}}
    assert source == {"@timestamp": "2023-11-14T22:13:20.123000Z", "m": 1}
    fields = {**stream, "data__stream__timestamp__field": "no,when"}
    assert build(record({"when": "2020"}), **fields)[1]["@timestamp"] == "2020"
    assert build(record({"@timestamp": "own"}), **stream)[1] == {"@timestamp": "own"}
    with pytest.raises(DataError, match="timestamp"):
        build(record({"m": 1}, timestamp=None), **stream)


def test_text_that_is_json_passes_as_it_is():
    assert build(record('{"a":  1}'))[1] == {"a": 1}
    assert build(record(b'{\n"a": 1}'))[1] == {"a": 1}
    digits = b'{"a":\r\n 1.234567890123456789012345}'
    assert b"1.234567890123456789012345" in DocumentBuilder(parse(URL)).build(record(digits))[0]
    for bad in ("text", b"[1]", "", b'{"a":\n', b'{"a": "x\ny"}'):
        with pytest.raises(DataError, match="JSON"):
            build(record(bad))


@pytest.mark.parametrize(
    "bad",
    [[1], "x", 5, {1: 2}, {"a": 1 << 70}, {"a": object()}, {"a": Decimal("NaN")}, {"a": [float("nan")]}],
)
def test_values_that_are_no_documents_are_named(bad):
    with pytest.raises(DataError):
        build(record(bad))


def test_text_cannot_say_more_than_the_document_of_an_update():
    upsert = {"write__method": "upsert"}
    assert build(record('{"a": 1.50}'), **upsert)[1] == {"doc": {"a": 1.5}, "doc_as_upsert": True}
    for more in ('{"a":1},"detect_noop":false', '{"a":1}}{"x":1'):
        with pytest.raises(DataError, match="JSON"):
            build(record(more), **upsert)


SHAPE = (
    SchemaBuilder.struct("s")
    .field("n", INT32)
    .field("text", OPTIONAL_STRING)
    .field("f", FLOAT64)
    .field("raw", BYTES)
    .field("price", logical.decimal_builder(2).build())
    .field("day", logical.date_builder().build())
    .field("at", logical.timestamp_builder().build())
    .field("t", logical.time_builder().build())
    .field("tags", SchemaBuilder.array(STRING).build())
    .field("m", SchemaBuilder.map(STRING, FLOAT64).build())
    .field("by_number", SchemaBuilder.map(INT32, STRING).build())
    .field("inner", SchemaBuilder.struct().field("x", SchemaBuilder(INT32.type).default(5).build()).build())
    .build()
)


def shape(**more):
    inner = Struct(SHAPE.field("inner").schema)
    values = {
        "n": 1,
        "f": 0.5,
        "raw": b"\0\1",
        "price": Decimal("12.50"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
        "t": time(1, 2, 3),
        "tags": ["a"],
        "m": {"x": 1.5},
        "by_number": {3: "c"},
        "inner": inner,
    }
    return Struct(SHAPE, **{**values, **more})


def test_structs_become_json():
    assert build(record(shape(), schema=SHAPE))[1] == {
        "n": 1,
        "text": None,
        "f": 0.5,
        "raw": "AAE=",
        "price": 12.5,
        "day": "2024-02-29",
        "at": "2024-02-29T01:02:03.004000Z",
        "t": "01:02:03",
        "tags": ["a"],
        "m": {"x": 1.5},
        "by_number": [{"key": 3, "value": "c"}],
        "inner": {"x": 5},
    }
    loose = build(record(shape(), schema=SHAPE), compact__map__entries="false")[1]
    assert loose["m"] == [{"key": "x", "value": 1.5}]
    with pytest.raises(DataError, match="nan"):
        build(record(shape(f=float("nan")), schema=SHAPE))


def test_schemas_become_mappings():
    fields = mapping_of(SHAPE, compact_maps=True)["properties"]
    types = {name: field.get("type") for name, field in fields.items()}
    assert types["n"] == "integer"
    assert types["price"] == types["f"] == "double"
    assert types["day"] == types["at"] == "date"
    assert types["raw"] == "binary"
    assert fields["tags"]["fields"]["keyword"]["type"] == "keyword"
    assert fields["by_number"]["properties"]["key"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("key", "props"),
    [
        ("connection.url", {"connection.url": "ftp://h"}),
        ("connection.url", {"connection.url": "http://u:hunter2@h:9200"}),
        ("connection.url", {"connection.url": "http://u:hunter2@h:port"}),
        ("connection.url", {"connection.url": "u:hunter2@h"}),
        ("connection.password", {"connection.username": "u"}),
        ("elastic.https.ssl.truststore.type", {"elastic.https.ssl.truststore.type": "JKS"}),
        ("elastic.https.ssl.truststore.location", {"elastic.https.ssl.truststore.location": "/no/such"}),
        ("write.method", {"write.method": "replace"}),
        ("data.stream.dataset", {"data.stream.type": "LOGS"}),
        (
            "write.method",
            {"data.stream.type": "LOGS", "data.stream.dataset": "d", "write.method": "upsert"},
        ),
        ("topic.to.external.resource.mapping", {"external.resource.usage": "INDEX"}),
        (
            "topic.to.external.resource.mapping",
            {"external.resource.usage": "INDEX", "topic.to.external.resource.mapping": "t"},
        ),
        (
            "topic.to.external.resource.mapping",
            {
                "external.resource.usage": "INDEX",
                "topic.to.external.resource.mapping": "t:i",
                "topics": "t, u",
            },
        ),
        ("batch.size", {"batch.size": "0"}),
    ],
)
def test_what_cannot_be_used_is_named_and_no_password_shown(key, props):
    props = {**URL, **props}
    with pytest.raises(ConfigError) as e:
        parse(props)
    assert e.value.key == key
    assert "hunter2" not in str(e.value)
    answers = {a.name: a for a in ElasticsearchSinkConnector.validate(props)}
    assert answers[key].errors
    assert "hunter2" not in str(answers)


def test_a_data_stream_that_keeps_only_first_records_is_warned_of():
    stream = {**URL, "data.stream.type": "LOGS", "data.stream.dataset": "d"}
    [said] = ElasticsearchSinkConnector.warnings(stream).values()
    assert "only the first record of a key is kept" in said
    assert ElasticsearchSinkConnector.warnings({**stream, "key.ignore": "true"}) == {}
    assert ElasticsearchSinkConnector.warnings({**stream, "batch.size": "many", "key.ignore": "true"}) == {}


def conflict(offset, version, place=PLACE):
    chunk = Chunk(0)
    reason = f"version_conflict_engine_exception: [k]: version conflict, current version [{version}] is higher or equal"
    rec = SinkRecord(place.topic, place.partition, None, "k", None, {}, offset, 0)
    return Document(b"", "k", "t", chunk, [rec], 0), "index", reason


def test_versions_from_beyond_the_end_of_a_partition_are_a_reason_to_worry():
    """Records that come again meet versions that come again, too; those of a topic made anew do not."""
    conflicts = Conflicts(offsets_are_versions=True)
    for offset, version in ((5, 5), (6, 9)):
        conflicts.add(*conflict(offset, version))
    ((worrying, sentence),) = conflicts.take({PLACE: 10})
    assert not worrying
    assert "2 records of t-0 were not written to t" in sentence
    assert conflicts.take({PLACE: 10}) == []
    conflicts.add(*conflict(6, 5000))
    ((worrying, sentence),) = conflicts.take({PLACE: 10})
    assert worrying
    assert "offset 6, version there 5000" in sentence
    headed = Conflicts(offsets_are_versions=False)
    headed.add(*conflict(6, 5000))
    assert [w for w, _ in headed.take({PLACE: 10})] == [False]


class Standin:
    """Answers instead of the server; `hold` is waited for before each answer to a bulk request."""

    def __init__(self, exists=None, bulk=None):
        self.found, self.answer = exists or Reply(200), bulk or Reply(200, b'{"errors":false}')
        self.hold, self.asked = threading.Event(), threading.Event()
        self.hold.set()

    def exists(self, name):
        return self.found

    def bulk(self, body, read_timeout_s):
        self.asked.set()
        assert self.hold.wait(60)
        return self.answer

    def create_index(self, name, mapping):
        self.created = name, mapping
        return Reply(200)

    def close(self):
        pass


class Letters(list):
    def report(self, rec, error):
        self.append(rec)


@pytest.fixture
def start(monkeypatch):
    """Starts a task on a stand-in."""
    with contextlib.ExitStack() as stack:

        def started(client, **props):
            monkeypatch.setattr(ElasticsearchSinkTask, "make_client", lambda *_: client)
            context = MemorySinkContext({})
            context.assignment = frozenset({PLACE})
            context.errant_record_reporter = Letters()
            task = ElasticsearchSinkTask()
            task.initialize(context)
            task.start({**URL, **{k.replace("__", "."): v for k, v in props.items()}})
            stack.callback(task.stop)
            return task

        yield started


def rounds(task, count):
    for _ in range(count):
        task.put([])
        task.pre_commit({PLACE: 5})


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        (Standin(exists=Reply(400, b'{"error":{}}', "bad name")), "t cannot be looked up: bad name"),
        (Standin(bulk=Reply(400, b"<html>", "status 400: <html>")), "refused: status 400: <html>"),
    ],
)
def test_what_is_no_documents_fault_does_not_make_documents_bad(start, client, sentence):
    task = start(client)
    task.put([record({"n": n}, offset=n) for n in range(5)])
    with pytest.raises(ConnectError, match=sentence):
        rounds(task, 20)
    assert task.context.errant_record_reporter == []
    assert task.pre_commit({PLACE: 5}) == {}


def test_a_tombstone_at_the_beginning_does_not_cost_the_mapping(start):
    client = Standin(exists=Reply(404))
    schema = SchemaBuilder.struct().field("n", INT32).build()
    task = start(client, behavior__on__null__values="delete")
    task.put([record(None, offset=0), record(Struct(schema, n=1), offset=1, schema=schema)])
    assert client.asked.wait(60)
    assert client.created == ("t", {"properties": {"n": {"type": "integer"}}})


def test_an_error_names_the_record_as_it_was_read(start, caplog):
    refused = (
        b'{"errors":true,"items":[{"index":{"status":400,"error":{"type":"mapper_parsing_exception"}}}]}'
    )
    task = start(Standin(bulk=Reply(200, refused)), drop__invalid__message="true")
    routed = [
        record(value, offset=offset, key="").copy() for offset, value in enumerate(({"n": 1}, {"n": 2}))
    ]
    for each in routed:
        each.topic, each.partition = "elsewhere", 5
    routed[1].key = "b"
    task.context.errant_record_reporter = None
    task.put(routed)
    assert "record t-0@0: the key" in caplog.text
    with pytest.raises(DataError, match="record t-0@1 for index elsewhere was refused"):
        rounds(task, 2)


def test_a_record_that_fails_its_put_is_not_committed(start):
    task = start(Standin())
    task.context.errant_record_reporter = None
    task.put([record({"n": 1}, offset=0)])
    with pytest.raises(DataError):
        task.put([record("bad", offset=1)])
    assert task.pre_commit({PLACE: 1}) == {PLACE: 1}
    assert task.pre_commit({PLACE: 2}) == {PLACE: 1}


def test_a_commit_waits_for_full_requests_only_where_partitions_go_away(start, monkeypatch):
    monkeypatch.setattr("klamm_connectors.elasticsearch.task._COMMIT_S", 600.0)
    client = Standin()
    client.hold.clear()
    task = start(client, batch__size="2")
    task.put([record({"n": n}, offset=n) for n in range(5)])
    assert task.pre_commit({PLACE: 5}) == {}  # at once, while nothing is answered
    task.context.leaving = frozenset({PLACE})
    client.asked.wait(60)
    threading.Timer(0.1, client.hold.set).start()
    assert task.pre_commit({PLACE: 5}) == {PLACE: 5}
    task.context.leaving = frozenset()
    client.hold.clear()
    task.put([record({"n": 5}, offset=5)])
    threading.Timer(0.1, client.hold.set).start()
    assert task.pre_commit({PLACE: 6}) == {PLACE: 6}  # less than a request


def test_a_partition_goes_when_its_updates_are_no_longer_under_way(start, caplog):
    client = Standin()
    client.hold.clear()
    task = start(client, write__method="upsert")
    task.put([record({"n": 1})])
    assert client.asked.wait(60)
    with pytest.MonkeyPatch.context() as m:
        m.setattr("klamm_connectors.elasticsearch.task._CLOSE_S", 0.05)
        task.close([PLACE])
    assert "still under way" in caplog.text
    caplog.clear()
    threading.Timer(0.2, client.hold.set).start()
    task.close([PLACE])
    assert client.hold.is_set()
    assert "still under way" not in caplog.text


def test_large_documents_pause_before_there_are_many(start):
    client = Standin()
    client.hold.clear()
    task = start(client, bulk__size__bytes="100", max__in__flight__requests="1")
    half = "x" * (33 << 20)
    task.put([record({"x": half}, key="a")])
    assert not task.context.paused
    task.put([record({"x": half}, key="b")])
    assert task.context.paused == {PLACE}
    client.hold.set()
    for _ in range(20):
        task.put([])
    assert not task.context.paused


@pytest.mark.parametrize(
    ("sizes", "never"),
    [
        ("operation_bytes=90, max_coordinating_bytes=80", True),
        ("operation_bytes=70, max_coordinating_and_primary_bytes=80", False),
    ],
)
def test_a_request_that_the_server_has_no_memory_for_at_all_is_told_apart(sizes, never):
    assert (
        never_fits(f"rejected execution of coordinating operation [all_bytes=0, coordinating_{sizes}]")
        == never
    )
    assert not never_fits("circuit_breaking_exception: x")


def test_only_the_given_certificates_are_trusted(tmp_path):
    bundle = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----\n"
    (tmp_path / "one.pem").write_text(bundle[: bundle.index(end)] + end)
    context = ssl_context(Ssl(str(tmp_path / "one.pem"), None, None, check_host=True))
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_schemas_without_end_are_forgotten(monkeypatch):
    monkeypatch.setattr("klamm_connectors.elasticsearch.documents._CONVERTS", 3)
    builder = DocumentBuilder(parse(URL))
    for number in range(10):
        schema = SchemaBuilder.struct().field(f"f{number}", INT32).build()
        lines = builder.build(record(Struct(schema, **{f"f{number}": number}), schema=schema))
        assert f'"f{number}":{number}'.encode() in lines[0]
    assert 0 < len(builder._converts) <= 3
