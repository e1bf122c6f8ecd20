"""Debezium's transforms on our records: examples of its documentation, schemas and values that fit, predicates, the older keys."""

import json
import logging
from decimal import Decimal

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from klamm.connect.child.transform_chain import make_chain
from klamm_base.errors import ConfigError
from klamm_plugins.batch import batches_of
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import ConnectError, DataError
from klamm_plugins.logical import decimal_builder
from klamm_plugins.records import Headers, SinkRecord, SourceRecord
from klamm_plugins.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
    validate_value,
)
from klamm_plugins.transforms.debezium.by_logical_table_router import ByLogicalTableRouter
from klamm_plugins.transforms.debezium.event_router import EventRouter
from klamm_plugins.transforms.debezium.expression import LANGUAGES, compile_expression
from klamm_plugins.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from klamm_plugins.transforms.debezium.json_payload import JsonPayload
from klamm_plugins.transforms.debezium.renaming import field_adjuster, schema_adjuster
from klamm_plugins.transforms.debezium.scripting import ContentBasedRouter, FilterByCondition

GROOVY, JS = LANGUAGES
SOURCE = SchemaBuilder.struct("S").field("ts_ms", INT64).field("table", OPTIONAL_STRING).build()
KEY = SchemaBuilder.struct("p.db.customers.Key").field("id", INT32).build()


def envelope(topic: str, row: Schema) -> Schema:
    made = SchemaBuilder.struct(f"{topic}.Envelope").field("before", row).field("after", row)
    return made.field("source", SOURCE).field("op", STRING).field("ts_ms", OPTIONAL_INT64).build()


CUSTOMER = (
    SchemaBuilder.struct("p.db.customers.Value")
    .field("id", INT32)
    .field("name", OPTIONAL_STRING)
    .optional()
    .build()
)
CHANGE = envelope("p.db.customers", CUSTOMER)


def change(op, before=None, after=None, schema=CHANGE, topic="p.db.customers", **more):
    row = schema.field("after").schema
    value = Struct(schema, op=op, source=Struct(SOURCE, ts_ms=5, table="customers"), ts_ms=6)
    for name, values in (("before", before), ("after", after)):
        if values is not None:
            value.put(name, Struct(row, **values))
    return SourceRecord({}, {}, topic, None, KEY, Struct(KEY, id=1), schema, value, None, **more)


ANN, BOB = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}
TOMBSTONE = SourceRecord({}, {}, "p.db.customers", None, KEY, Struct(KEY, id=1))
EVENTS = [change("c", None, ANN), change("u", ANN, BOB), change("d", BOB), TOMBSTONE]


def made(cls, **config):
    transform = cls()
    transform.configure({key.replace("__", "."): value for key, value in config.items()})
    return transform


def plain(record):
    return None if record is None else record.value.to_dict() if record.value is not None else "tombstone"


def test_the_row_takes_the_place_of_the_event():
    """The documentation's example: `add.fields=table,lsn` with `rewrite`, where MySQL has no lsn."""
    transform = made(
        ExtractNewRecordState,
        delete__tombstone__handling__mode="rewrite",
        add__fields="table,lsn,source.ts_ms:at",
    )
    rows = [plain(record) for record in transform.apply_many(EVENTS)]
    metadata = {"__table": "customers", "__at": 5}
    assert rows == [
        ANN | {"__deleted": "false"} | metadata,
        BOB | {"__deleted": "false"} | metadata,
        BOB | {"__deleted": "true"} | metadata,
        None,
    ]


@pytest.mark.parametrize(
    ("config", "after_delete", "after_tombstone"),
    [
        ({}, "tombstone", None),
        ({"delete__handling__mode": "none"}, "tombstone", None),
        ({"delete__handling__mode": "NONE", "drop__tombstones": "false"}, "tombstone", "tombstone"),
        ({"drop__tombstones": "false"}, None, "tombstone"),
        ({"delete__handling__mode": "rewrite"}, BOB | {"__deleted": "true"}, None),
        ({"delete__handling__mode": "drop"}, None, None),
    ],
)
def test_the_older_keys_say_what_they_said(config, after_delete, after_tombstone):
    transform = made(ExtractNewRecordState, **config)
    assert [plain(record) for record in transform.apply_many(EVENTS)[2:]] == [after_delete, after_tombstone]


def test_a_tombstone_is_a_null_for_converters():
    _, _, deleted, _ = made(ExtractNewRecordState).apply_many(EVENTS)
    converter = JsonConverter()
    converter.configure({"schemas.enable": "true"}, is_key=False)
    assert deleted.key is not None
    assert converter.from_connect_data("t", deleted.value_schema, deleted.value) is None


def test_shards_go_to_one_topic_and_their_keys_stay_apart():
    """The documentation's example of db_shard1.customers and db_shard2.customers."""
    transform = made(
        ByLogicalTableRouter,
        topic__regex="(.*)customers_shard(.*)",
        topic__replacement="$1customers_all_shards",
        key__field__name="shard_id",
        key__field__regex="(.*)customers_shard(.*)",
        key__field__replacement="$2",
    )
    topics = [f"p.db.customers_shard{n}" for n in (1, 2)]
    columns = {"id": INT32, "name": OPTIONAL_STRING}
    events = []
    for topic in topics:
        row = SchemaBuilder.struct(f"{topic}.Value").optional()
        for name, schema in columns.items():
            row.field(name, schema)
        events.append(change("c", None, ANN, envelope(topic, row.build()), topic))
    records = transform.apply_many(events)
    assert [r.topic for r in records] == ["p.db.customers_all_shards"] * 2
    assert [r.key.to_dict() for r in records] == [{"id": 1, "shard_id": "1"}, {"id": 1, "shard_id": "2"}]
    assert records[0].value_schema is records[1].value_schema, "converters know it then"
    assert records[0].key_schema is records[1].key_schema
    assert records[0].value_schema.name == "p.db.customers_all_shards.Envelope"
    assert records[0].value["after"].to_dict() == ANN


OUTBOX = SchemaBuilder.struct("p.db.outbox.Value")
for _name, _schema in {
    "id": STRING, "aggregatetype": STRING, "aggregateid": STRING, "type": STRING, "payload": OPTIONAL_STRING, "tenant": OPTIONAL_STRING,
}.items():  # fmt: skip
    OUTBOX.field(_name, _schema)
OUTBOX_CHANGE = envelope("p.db.outbox", OUTBOX.optional().build())
EVENT = {
    "id": "406c07f3",
    "aggregatetype": "Order",
    "aggregateid": "1",
    "type": "OrderCreated",
    "tenant": "a",
}
PAYLOAD = '{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action"}], "orderDate": "2019-01-31T12:13:01", "customerId": 123}'


def test_a_row_of_the_outbox_is_an_event():
    """The documentation's example of an order."""
    record = change("c", None, EVENT | {"payload": PAYLOAD}, OUTBOX_CHANGE, "p.db.outbox")
    (event,) = made(EventRouter).apply_many([record])
    assert (event.topic, event.key, event.value, event.timestamp) == ("outbox.event.Order", "1", PAYLOAD, 6)
    assert [(h.name, h.value) for h in event.headers] == [("id", "406c07f3")]
    expanding = made(
        EventRouter,
        table__expand__json__payload="true",
        table__fields__additional__placement="type:header:eventType,tenant:envelope",
    )
    (event,) = expanding.apply_many([record])
    assert event.value.to_dict() == {"payload": json.loads(PAYLOAD), "tenant": "a"}
    assert event.headers.last("eventType").value == "OrderCreated"


def test_schemas_follow_the_events_and_not_the_first_of_them():
    """Debezium names the schemas of all routes by the first that comes."""
    transform = made(EventRouter, table__fields__additional__placement="tenant:envelope")
    rows = [EVENT | {"payload": "x", "aggregatetype": name} for name in ("Order", "Customer", "Order")]
    events = transform.apply_many([change("c", None, row, OUTBOX_CHANGE, "p.db.outbox") for row in rows])
    names = [f"p.db.outbox.{name}.Value" for name in ("Order", "Customer", "Order")]
    assert [event.value_schema.name for event in events] == names
    assert events[0].value_schema is events[2].value_schema


def test_arrays_are_expanded_too_and_a_payload_is_in_no_log(caplog):
    transform = made(EventRouter, table__expand__json__payload="true")
    texts = [
        "[1, 2]",
        '{"secret": 1',
        '{"secret": [1, "x"]}',
        '[{"a": 1}, {"a": 98765432100}]',
        '{"n": 98765432100987654321}',
        "secret",
        "[]",
        '{"n": 99999999999999999999}',
        "{" + '"a":{' * 5000,
    ]
    records = [change("c", None, EVENT | {"payload": text}, OUTBOX_CHANGE, "p.db.outbox") for text in texts]
    events = transform.apply_many(records)
    assert [event.value for event in events] == [[1, 2], *texts[1:]]
    assert events[0].value_schema.type is Type.ARRAY
    assert len(caplog.records) == len(texts) - 1
    assert not {word for word in ("secret", "98765") if word in caplog.text}


def test_a_payloads_schema_is_that_of_its_shape():
    payloads = JsonPayload(str, keeps_nulls=False)
    texts = [
        '{"a": 1, "b": [{"c": 1}]}',
        '{"a": 2, "b": [{"c": 3}, {"c": 4}]}',
        '{"a": 2, "z": null, "b": [{"c": 3}]}',
        '{"a": 2.5, "b": []}',
    ]
    one, same, null, other = (payloads.read("p", text) for text in texts)
    assert one[0] is same[0] is null[0] is not other[0]
    assert [value.to_dict() for _, value in (one, same, other)] == [
        json.loads(texts[0]),
        json.loads(texts[1]),
        {"a": 2.5},
    ]


def test_a_changed_row_of_the_outbox_is_said_or_fails(caplog):
    row = EVENT | {"payload": "x"}
    record = change("u", row, row, OUTBOX_CHANGE, "p.db.outbox")
    for behaviour, level in (("warn", logging.WARNING), ("error", logging.ERROR)):
        caplog.clear()
        assert made(EventRouter, table__op__invalid__behavior=behaviour).apply_many([record]) == [None]
        assert [r.levelno for r in caplog.records] == [level]
    with pytest.raises(ConnectError, match="the outbox table has a changed row") as e:
        made(EventRouter, table__op__invalid__behavior="fatal").apply_many([record])
    assert not isinstance(e.value, DataError), "no bad record, which errors.tolerance would leave out"


@pytest.mark.parametrize("language", [GROOVY, JS])
def test_examples_of_filters_and_routers(language):
    """Those of the documentation: updates of one id, a topic for updates, a deleted row, a header."""
    records = [*EVENTS[:3], change("c", None, ANN, headers=Headers.of(("idh", 1)))]
    for condition, kept in (
        ("value.op == 'u' && value.before.id == 2", []),
        ("value.op == 'u' && value.before.id == 1", [1]),
        ("value.op == 'd' || value.after.name == 'ann'", [0, 2, 3]),
        ("value.after == null", [2]),
        ("value.after != null && value.after.name.startsWith('b')", [1]),
        ("header.idh != null && header.idh.value == 1", [3]),
    ):
        found = made(FilterByCondition, language=language, condition=condition).apply_many(records)
        assert [n for n, record in enumerate(found) if record is not None] == kept, condition
    router = made(
        ContentBasedRouter, language=language, topic__expression="value.op == 'u' ? 'updates' : null"
    )
    assert [r.topic for r in router.apply_many(EVENTS[:3])] == ["p.db.customers", "updates", "p.db.customers"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("value.gone === undefined", True),
        ("value.gone == null", True),
        ("value.gone === null", False),
        ("value.gone?.id", "undefined"),
        ("value.after.id === 1 && value.after.id !== '1'", True),
        ("value.after.id == '1' && '' == 0 && true == 1 && null != 0", True),
        ("null >= 0 && !(null > 0)", True),
        ("'a' < 1", False),
        ("value.gone > 1", False),
        ("'x' == 1", False),
        ("value.before ?? 'none'", "none"),
        ("value.before || 'none'", "none"),
        ("value.after.name && value.op", "c"),
        ("value.after.name.length", 3),
        ("['c', 'r'].includes(value.op)", True),
        ("value.after.name.toUpperCase() + value.after.id", "ANN1"),
        ("value.before.id", DataError),
        ("value.op in ['c']", ConfigError),
        ("value.op ==~ 'c'", ConfigError),
        ("value.get('op')", ConfigError),
        ("value.constructor.constructor('return 1')()", ConfigError),
        ("`${value.op}`", ConfigError),
        ("() => true", ConfigError),
    ],
)  # fmt: skip
def test_javascript(text, found):
    if isinstance(found, type):
        with pytest.raises(found):
            compile_expression(text, JS)(EVENTS[0])
    else:
        got = compile_expression(text, JS)(EVENTS[0])
        assert (repr(got) if found == "undefined" else got) == found


def test_decimals_are_numbers():
    row = SchemaBuilder.struct("V").field("price", decimal_builder(2).build()).optional().build()
    event = change("c", None, {"price": Decimal("1.50")}, envelope("t", row))
    for text in (
        "value.after.price == 1.5",
        "value.after.price + 0.5 == 2",
        "value.after.price > 1",
        "value.after.price % 1 == 0.5",
    ):
        assert compile_expression(text, GROOVY)(event) is True, text
        assert compile_expression(text, JS)(event) is True, text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def x = 1; x", "def at character 1"),
        ("value.op == 'u'; System.exit(1)", "; at character 16"),
        ("System.exit(1)", "System is not known: a condition has key, value"),
        ("Runtime.getRuntime().exec('x')", "there is no method exec|Runtime is not known"),
        ("value.class.name", None),
        ("value.getClass()", "there is no method getClass in a condition"),
        ("value.op.execute()", "there is no method execute in a condition"),
        ('"${value.op}" == "c"', "has a [$], for a value to be put in: join texts with [+]"),
        ("value.after.each { it }", "{ at character 18"),
        ("value.op = 'c'", "= at character 10"),
        ("value.op ==~ value.op", "a regular expression must stand there in quotes"),
        ("value.op.matches('(')", "is no regular expression"),
        ("value[key.id]", "a name in quotes or a number can stand there"),
        ("value.op.startsWith()", "startsWith takes 1 values"),
        ("(" * 60 + "1" + ")" * 60, "more than 50 expressions in each other"),
        ("x" * 10_001, "10001 characters"),
        ("", "its end at character 1"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused_by_name(text, said):
    if said is None:  # a member like others, which no row has
        with pytest.raises(DataError, match="class is no field of"):
            compile_expression(text, GROOVY)(EVENTS[0])
        return
    with pytest.raises(ConfigError, match=said):
        compile_expression(text, GROOVY)


WORDS = st.sampled_from([
    "value", "key", "topic", "header", "valueSchema", ".", "?.", "op", "after", "id", "name", "source", "gone", "'u'", '"c"', "1", "2.5", "null", "true",
    "==", "!=", "===", "<", ">=", "&&", "||", "!", "?", ":", "?:", "??", "+", "-", "*", "%", "(", ")", "[", "]", ",", "in", "startsWith('a')", "size()",
    "length", "matches('(a')", "__class__", "__globals__", "==~", ";", "{", "}", "=", "$", "\\", "'", "/", "@",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    words=st.lists(WORDS, max_size=14), language=st.sampled_from([GROOVY, JS]), event=st.sampled_from(EVENTS)
)
def test_any_text_is_a_condition_or_an_error_of_the_configuration(words, language, event):
    """Nothing else is raised, also not by records, and no object of Python's comes out."""
    try:
        evaluate = compile_expression(" ".join(words), language)
        found = evaluate(event)
    except (ConfigError, DataError):
        return
    assert type(found).__name__ in {
        "NoneType",
        "bool",
        "int",
        "float",
        "str",
        "list",
        "dict",
        "Struct",
        "Schema",
        "_Header",
        "_Undefined",
    }


NAMES = st.lists(
    st.sampled_from(["id", "name", "who", "__op", "payload", "aggregatetype", "aggregateid", "x y"]),
    min_size=1,
    max_size=5,
    unique=True,
)
TYPES = {
    Type.INT32: st.integers(-9, 9), Type.INT64: st.integers(-(2**60), 2**60), Type.STRING: st.sampled_from(["", "a", "[1]", '{"a": [{"b": 1}, {"c": null}]}']),
    Type.BOOLEAN: st.booleans(), Type.FLOAT64: st.floats(allow_nan=False), Type.BYTES: st.binary(max_size=3),
}  # fmt: skip


@st.composite
def changes(draw):
    """Events of a table with any columns, optional or with defaults."""
    builder = SchemaBuilder.struct(draw(st.sampled_from(["t.Value", "Value", None]))).optional()
    columns = {}
    for name in draw(NAMES):
        kind = draw(st.sampled_from(sorted(TYPES)))
        column = SchemaBuilder(kind)
        columns[name] = TYPES[kind]
        if draw(st.booleans()):
            column.optional()
            columns[name] |= st.none()
        if draw(st.booleans()):
            column.default(draw(TYPES[kind]))
        builder.field(name, column.build())
    row = builder.build()
    images = st.none() | st.fixed_dictionaries(columns)
    schema = envelope("t", row)
    records = []
    for _ in range(draw(st.integers(1, 3))):
        before, after, op = draw(images), draw(images), draw(st.sampled_from("crudt"))
        record = change(op, before, after, schema, draw(st.sampled_from(["t", "u"])))
        record.headers = draw(st.sampled_from([Headers(), Headers.of(("drop", ["id", "name", "__op"]))]))
        records.append(record)
    return [*records, TOMBSTONE]


SETTINGS = [
    (ExtractNewRecordState, {}),
    (ExtractNewRecordState, {"delete__tombstone__handling__mode": "rewrite-with-tombstone", "add__fields": "op:op,ts_ms,source.table", "add__headers": "op,table"}),
    (ExtractNewRecordState, {"delete__tombstone__handling__mode": "rewrite", "drop__fields__header__name": "drop", "add__fields": "table:z",
                             "drop__fields__from__key": "true", "drop__fields__keep__schema__compatible": "false"}),
    (ExtractNewRecordState, {"delete__tombstone__handling__mode": "rewrite-with-tombstone", "route__by__field": "name", "add__headers": "op"}),
    (ByLogicalTableRouter, {"topic__regex": "t|u", "topic__replacement": "all.9-x", "schema__name__adjustment__mode": "avro"}),
    (EventRouter, {}),
    (EventRouter, {"table__expand__json__payload": "true", "table__fields__additional__placement": "name:envelope,who:header,id:envelope:other",
                   "table__field__additional__missing": "ignore", "route__by__field": "name", "table__field__event__id": "id", "table__field__event__key": "id"}),
    (FilterByCondition, {"language": GROOVY, "condition": "value.after?.id == 1 || value.op == 'd'"}),
    (ContentBasedRouter, {"language": JS, "topic__expression": "value.after ? value.source.table : null"}),
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(records=changes())
def test_values_fit_their_schemas_and_what_came_in_stays(records):
    for cls, config in SETTINGS:
        note(f"{cls.__name__} {config}")
        check_values(made(cls, **config), records)


def check_values(transform, records):
    before = [record.copy() for record in records]
    rows = [None if r.value is None else r.value.to_dict() for r in records]
    for record in records:
        try:
            (out,) = transform.apply_many([record])
        except DataError:
            continue
        if out is None:
            continue
        for schema, value in (
            (out.key_schema, out.key),
            (out.value_schema, out.value),
            *((h.schema, h.value) for h in out.headers),
        ):
            if schema is not None:
                validate_value(schema, value)
            else:
                assert value is None or isinstance(value, list), (
                    "only the header of dropped fields has no schema"
                )
    assert before == records
    assert rows == [None if r.value is None else r.value.to_dict() for r in records]


@settings(max_examples=80, deadline=None)
@given(events=changes(), keyed=st.booleans())
def test_a_sinks_batches_are_its_records(events, keyed):
    records = [
        SinkRecord(e.topic, 0, e.key_schema, e.key if keyed or n % 2 else None, e.value_schema, e.value, n, None, "CreateTime", e.headers)
        for n, e in enumerate(events)
    ]  # fmt: skip
    for cls, config in SETTINGS:
        note(f"{cls.__name__} {config}")
        compare(made(cls, **config), records)


def compare(transform, records):
    for batch in batches_of(records):
        try:
            wanted = [r for r in transform.apply_many(batch.records()) if r is not None]
        except DataError:
            with pytest.raises(DataError):
                transform.apply_batch(batch.replace())
            continue
        found = [r for part in transform.apply_batch(batch.replace()) for r in part.replace().records()]
        assert found == wanted
        assert [r.original_topic for r in found] == [batch.topic] * len(found)


def test_predicates_choose_the_events():
    config = {
        "transforms": "row", "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState", "transforms.row.predicate": "mine",
        "predicates": "mine", "predicates.mine.type": "TopicNameMatches", "predicates.mine.pattern": "p[.]db[.].*",
    }  # fmt: skip
    chain = make_chain(PluginManager.load(), config)
    other = change("c", None, ANN, topic="other")
    pairs = chain.apply([EVENTS[0], other, EVENTS[2], TOMBSTONE], tolerance=None)
    assert [after if after in (None, other) else plain(after) for _, after in pairs] == [
        ANN,
        other,
        "tombstone",
        None,
    ]


def test_names_for_avro():
    assert [schema_adjuster("avro")(n) for n in ("9a.b", "a-b.ü_1", ".a", "")] == [
        "_9a.b",
        "a_b.__1",
        "_a",
        "",
    ]
    assert [schema_adjuster("avro_unicode")(n) for n in ("9a.b", "a_b", "ü€")] == [
        "_u0039a.b",
        "a_u005fb",
        "_u00fc_u20ac",
    ]
    assert [field_adjuster("avro")(n) for n in ("a.b", "9", ".")] == ["a_b", "_9", "_"]
    assert field_adjuster("none")("a b") == "a b"
    schema, value = JsonPayload(field_adjuster("avro"), keeps_nulls=False).read(
        "p", '{"a.b": 1, "a b": 2, "c": null}'
    )
    assert value.to_dict() == {"a_b": 1}
    assert [field.name for field in schema.fields] == ["a_b"]


def bare(op, before=None, after=None, **more):
    value = {
        "before": before,
        "after": after,
        "source": {"table": "customers", "ts_ms": 5},
        "op": op,
        "ts_ms": 6,
        "transaction": None,
    }
    return SinkRecord("p.db.customers", 0, None, {"id": 1}, None, value | more, 0)  # fmt: skip


def both_ways(transform, records):
    """Returns what becomes of the records, one by one and as batches."""
    by_record = [made for made in transform.apply_many(records) if made is not None]
    by_batch = [record for batch in batches_of(records) for part in transform.apply_batch(batch) for record in part.records()]  # fmt: skip
    shown = [[(r.topic, r.key, r.value, list(r.headers)) for r in found] for found in (by_record, by_batch)]
    assert shown[0] == shown[1]
    return shown[0]


@pytest.mark.parametrize(
    ("mode", "deleted"),
    [("drop", []), ("tombstone", [None]), ("rewrite", [{"id": 1, "a": 2, "__deleted": "true"}])],
)
def test_change_events_without_a_schema_become_rows_too(mode, deleted):
    transform = ExtractNewRecordState()
    transform.configure({"delete.tombstone.handling.mode": mode})
    row = {"id": 1, "a": 2}
    mark = {"__deleted": "false"} if mode == "rewrite" else {}
    plain = {"before": 1, "op": "c", "source": "no block"}
    records = [bare("c", None, row), bare("u", row, {"id": 1, "a": 3}), bare("d", row), bare("t")]
    records.append(SinkRecord("p.db.customers", 0, None, {"id": 1}, None, plain, 0))
    values = [value for _, _, value, _ in both_ways(transform, records)]
    assert values == [row | mark, {"id": 1, "a": 3} | mark, *deleted, plain]


def test_metadata_of_change_events_without_a_schema(caplog):
    transform = ExtractNewRecordState()
    transform.configure(
        {
            "add.fields": "op,table,source.ts_ms:when,transaction.id,nothing",
            "add.headers": "op",
            "route.by.field": "to",
        }
    )
    row = {"id": 1, "to": "other"}
    [(topic, key, value, headers)] = both_ways(transform, [bare("c", None, row)])
    assert (topic, key) == ("other", {"id": 1})
    assert value == row | {"__op": "c", "__table": "customers", "__when": 5, "__transaction_id": None}
    assert [(h.name, h.value) for h in headers] == [("__op", "c")]
    assert caplog.text.count("add.fields names nothing") == 1


def test_tables_without_schemas_go_to_one_topic_with_keys_of_their_own():
    transform = ByLogicalTableRouter()
    transform.configure({"topic.regex": "(.*)customers(.*)", "topic.replacement": "$1all"})
    event = bare("c", None, {"id": 1})
    [(topic, key, value, _)] = both_ways(transform, [event])
    assert (topic, key) == ("p.db.all", {"id": 1, "__dbz__physicalTableIdentifier": "p.db.customers"})
    assert value == event.value
    with pytest.raises(DataError, match="keys with fields"):
        transform.apply_many([SinkRecord("customers", 0, None, 5, None, event.value, 0)])


def test_an_outbox_without_a_schema_is_told_once(caplog):
    transform = EventRouter()
    transform.configure({})
    event = bare("c", None, {"id": 1})
    assert [value for _, _, value, _ in both_ways(transform, [event, event])] == [event.value] * 2
    assert caplog.text.count("change events of p.db.customers have no schema") == 1
