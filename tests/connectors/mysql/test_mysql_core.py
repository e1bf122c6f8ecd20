"""The source's pure parts: positions, filters, decoding of rows, schemas and values."""
# ruff: noqa: DTZ001  values of DATETIME have no zone

import json
import re
import struct
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.mysql import signals
from klamm_connectors.mysql.charsets import Charsets
from klamm_connectors.mysql.column_rules import ColumnRules
from klamm_connectors.mysql.columns import Column, Kind, Table, from_information_schema
from klamm_connectors.mysql.config import parse
from klamm_connectors.mysql.connector import MySqlSourceConnector
from klamm_connectors.mysql.events import Origin, TableEvents, topic_name
from klamm_connectors.mysql.filters import Filters
from klamm_connectors.mysql.position import Position, add_gtid, parse_gtid_set
from klamm_connectors.mysql.rows import RowDecoder
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.transactions import TransactionCount
from klamm_connectors.mysql.values import Modes, builder_and_converter
from klamm_connectors.mysql.view import View
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.errors import ConfigError, ConnectError, DataError
from klamm_plugins.schema import OPTIONAL_INT64, validate_value
from klamm_plugins.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from klamm_plugins.transforms.debezium.scripting import FilterByCondition

CHARSETS = Charsets({}.__getitem__)
NEEDED = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}
UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "1c2aad49-ae92-409a-b4df-d05a03e4702e")


@given(st.lists(st.tuples(st.sampled_from(UUIDS), st.integers(1, 40)), max_size=60))
def test_a_gtid_set_holds_what_was_added_in_any_order(added):
    text = ""
    for source, number in added:
        text = add_gtid(text, f"{source}:{number}")
    found = {(s, n) for s, ranges in parse_gtid_set(text).items() for a, b in ranges for n in range(a, b + 1)}
    assert found == set(added)
    for ranges in parse_gtid_set(text).values():
        assert all(b + 1 < c for (_, b), (c, _) in pairwise(ranges)), "merged and sorted"


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9), st.integers(1, 99)), max_size=30))
def test_a_gtid_state_of_mariadb_has_the_last_of_each_domain(added):
    text, last = "", {}
    for domain, server, number in added:
        text = add_gtid(text, f"{domain}-{server}-{number}")
        last[domain] = f"{domain}-{server}-{number}"
    assert text == ",".join(last[d] for d in sorted(last))


@given(
    st.builds(
        Position,
        done=st.none() | st.just("0-1-5"),
        file=st.sampled_from(["", "b.000001"]),
        pos=st.integers(0, 2**40),
        gtid=st.sampled_from(["", "0-1-6"]),
        event=st.integers(1, 9),
        row=st.integers(0, 9),
        snapshot=st.booleans(),
    )
)
def test_positions_survive_their_offsets(position):
    assert Position.from_offset(position.to_offset()) == position


@pytest.mark.parametrize("offset", [{}, {"file": "x"}, {"file": "x", "pos": "no"}, {"file": "x", "pos": -1}])
def test_an_offset_that_is_none_is_refused(offset):
    with pytest.raises(ConnectError, match="offset"):
        MySqlSourceConnector.alter_offsets({}, [({"server": "p"}, offset)])


def test_filters_match_whole_names_and_leave_the_system_out():
    filters = Filters(
        {
            "database.include.list": ["shop.*"],
            "table.exclude.list": [r"shop\.tmp_.*"],
            "column.exclude.list": [r".*\.secret"],
        }
    )
    assert filters.table("shop", "orders")
    assert filters.table("SHOP2", "orders")
    assert not filters.table("shop", "tmp_x")
    assert not filters.table("other", "orders")
    assert not Filters({}).table("mysql", "user")
    assert not filters.column("shop", "users", "secret")
    assert filters.column("shop", "users", "secrets")


def test_lists_are_those_of_debezium():
    def hidden(text):
        values = MySqlSourceConnector.config().parse(NEEDED | {"column.exclude.list": text})
        filters = Filters(values)
        names = ["ssn1", "ssn12", "SSN123", "ssn1234", "b", "c", "größe"]
        return [name for name in names if not filters.column("s", "u", name)]

    assert hidden(r"s\.u\.ssn[0-9]{1\,3}, s\.u\.b") == ["ssn1", "ssn12", "SSN123", "b"]
    assert hidden(r"s\.u\.\p{Alpha},,") == ["b", "c"]
    assert hidden(r"\Qs.u.b\E|(?<n>s.u.c)\z") == ["b", "c"]
    assert hidden(r"s\.u\.[^a-z]+") == []
    mask = "column.mask.with.3.chars"
    rules = ColumnRules.from_properties({mask: r"s\.u\.ssn[0-9]{1\,3}"})
    assert rules.of("s", "u", Column("ssn12", Kind.STRING)) is not None
    for key in ("column.exclude.list", "table.include.list", mask, "gtid.source.includes"):
        for text in (r"s\.u\.ssn[0-9]{1,3}", "s[a-z&&[^b]]", r"\p{L}+", "a\\"):
            with pytest.raises(ConfigError, match=re.escape(key)) as refused:
                parse(NEEDED | {key: text})
            assert ("is written \\," in str(refused.value)) == ("{1,3}" in text)
    with pytest.raises(ConfigError, match="&&"):
        parse(NEEDED | {"message.key.columns": "s[a-z&&[^b]]:id"})
    with pytest.raises(DataError, match="&&"):
        signals.parse("execute-snapshot", '{"data-collections": ["s[a-z&&[^b]]"]}')


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"table.include.list": "a(b"}, "table.include.list"),
        ({"table.include.list": "a", "table.exclude.list": "b"}, "table.exclude.list"),
        ({"column.mask.with.x.chars": "a"}, "column.mask.with.x.chars"),
        ({"column.mask.hash.MD9.with.salt.s": "a"}, "column.mask.hash.MD9.with.salt.s"),
        ({"skipped.operations": "c,x"}, "skipped.operations"),
        ({"message.key.columns": "shop.t"}, "message.key.columns"),
        ({"gtid.source.includes": "a", "gtid.source.excludes": "b"}, "gtid.source.excludes"),
        ({"snapshot.select.statement.overrides": "d.t"}, "snapshot.select.statement.overrides"),
        ({"snapshot.select.statement.overrides.d.t": "SELECT 1"}, "snapshot.select.statement.overrides.d.t"),
        ({"topic.prefix": "no spaces"}, "topic.prefix"),
        ({"snapshot.mode": "sometimes"}, "snapshot.mode"),
    ],
)
def test_configurations_that_cannot_work_are_refused_by_their_key(more, key):
    props = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"} | more
    errors = {v.name: v.errors for v in MySqlSourceConnector.validate(props)}
    assert errors[key]


@pytest.mark.parametrize("mode", ["preferred", "verify_ca"])
def test_stores_that_cannot_be_read_are_refused_at_once(tmp_path, mode):
    there, gone = tmp_path / "ca.pem", tmp_path / "gone.p12"
    there.write_text("")
    given = {"database.ssl.truststore": str(gone), "database.ssl.keystore": str(tmp_path), "database.ssl.ca": str(there)}  # fmt: skip
    answer = MySqlSourceConnector.validate(NEEDED | given | {"database.ssl.mode": mode})
    assert {v.name: v.errors for v in answer if v.errors} == {
        "database.ssl.truststore": [
            f"database.ssl.truststore={gone}: cannot be read: No such file or directory"
        ],
        "database.ssl.keystore": [f"database.ssl.keystore={tmp_path}: cannot be read: Is a directory"],
    }
    empty = dict.fromkeys(given, "")
    assert not any(v.errors for v in MySqlSourceConnector.validate(NEEDED | empty))


def test_words_are_read_in_any_case():
    settings = parse(
        NEEDED
        | {
            "decimal.handling.mode": "String",
            "snapshot.mode": " Initial_Only",
            "snapshot.locking.mode": "NONE",
        }
        | {"database.ssl.mode": "Verify-CA", "time.precision.mode": "CONNECT", "event.format": "Row"}
    )
    shape = settings.events.shape
    assert (shape.modes.decimal, shape.modes.time, shape.rows_only) == ("string", "connect", True)
    assert (settings.snapshots.mode, settings.snapshots.lock) == ("initial_only", False)
    assert settings.connection.tls.mode == "verify_ca"


@pytest.mark.parametrize(
    ("mode", "instead"),
    [
        ("recovery", "use no_data.* or when_needed"),
        ("SCHEMA_ONLY_RECOVERY", "use no_data.* or when_needed"),
        ("configuration_based", "use initial .*initial_only .*no_data .*always"),
        ("custom", "use one of initial, initial_only, no_data"),
        ("sometimes", "must be one of: initial, initial_only"),
    ],
)
def test_a_snapshot_mode_that_is_not_here_names_what_is(mode, instead):
    errors = {v.name: v.errors for v in MySqlSourceConnector.validate(NEEDED | {"snapshot.mode": mode})}
    assert re.search(
        rf"Invalid value {mode} for configuration snapshot.mode: .*{instead}", *errors["snapshot.mode"]
    )


def encode_time(value: timedelta, fsp: int) -> bytes:
    """Packs a time as the server does: hours, minutes, seconds and fraction as one number, negated as a whole."""
    fraction = (fsp + 1) // 2
    us = abs(value) // timedelta(microseconds=1)
    seconds, us = divmod(us, 1_000_000)
    packed = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    packed = packed << 8 * fraction | us // (1, 10_000, 100, 1)[fraction] * (fraction > 0)
    packed = -packed if value < timedelta(0) else packed
    return (packed + (0x800000 << 8 * fraction)).to_bytes(3 + fraction, "big")


@given(st.integers(-(838 * 3600 + 3599), 838 * 3600 + 3599), st.integers(0, 999_999), st.integers(0, 6))
def test_times_of_both_signs_with_fractions(seconds, us, fsp):
    unit = (1_000_000, 10_000, 100, 1)[(fsp + 1) // 2]
    value = timedelta(seconds=seconds, microseconds=us // unit * unit if fsp else 0)
    decoder = RowDecoder("d.t", [Column("t", Kind.TIME, fsp=fsp)], CHARSETS)
    assert decoder.rows(b"\0" + encode_time(value, fsp)) == [[value]]


@given(st.data(), st.integers(1, 65), st.integers(0, 30))
def test_decimals_are_exact(data, precision, scale):
    scale = min(scale, precision)
    unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    digits = str(abs(unscaled)).zfill(precision)
    whole, part = digits[: precision - scale], digits[precision - scale :]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    first, packed = len(whole) % 9, b""
    groups = [whole[:first]] * (first > 0) + [whole[i : i + 9] for i in range(first, len(whole), 9)]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    for group in groups:
        packed += int(group).to_bytes(sizes[len(group)], "big")
    raw = bytearray(packed)
    raw[0] ^= 0x80
    if unscaled < 0:
        raw = bytearray(b ^ 0xFF for b in raw)
    decoder = RowDecoder("d.t", [Column("d", Kind.DECIMAL, precision=precision, scale=scale)], CHARSETS)
    ((found,),) = decoder.rows(b"\0" + bytes(raw))
    assert found == Decimal(f"{'-' if unscaled < 0 else ''}{whole or 0}.{part}0")
    assert -found.as_tuple().exponent == scale


@given(
    st.lists(
        st.tuples(st.none() | st.integers(-(2**23), 2**23 - 1), st.none() | st.text(max_size=20)), max_size=20
    )
)
def test_rows_with_nulls_follow_each_other(values):
    columns = [Column("m", Kind.INT, size=3), Column("s", Kind.STRING, length_bytes=2)]
    data = b""
    for number, text in values:
        data += bytes([(number is None) | (text is None) << 1])
        data += b"" if number is None else number.to_bytes(3, "little", signed=True)
        data += b"" if text is None else struct.pack("<H", len(text.encode())) + text.encode()
    assert RowDecoder("d.t", columns, CHARSETS).rows(data) == [list(v) for v in values]


def test_fixed_binary_gets_its_zeros_back_and_a_part_of_a_row_is_refused():
    decoder = RowDecoder(
        "d.t", [Column("b", Kind.BYTES, size=4, length_bytes=1), Column("x", Kind.YEAR)], CHARSETS
    )
    assert decoder.rows(b"\0\x02ab\x7c") == [[b"ab\0\0", 2024]]
    with pytest.raises(ConnectError, match="binlog_row_image=FULL"):
        decoder.check_present(b"\x01")


def info(name, full, **more):
    base = {
        "column_name": name,
        "data_type": full.split("(")[0].split()[0],
        "column_type": full,
        "is_nullable": "YES",
    }
    empty = dict.fromkeys(
        (
            "numeric_precision",
            "numeric_scale",
            "datetime_precision",
            "character_set_name",
            "character_maximum_length",
        )
    )
    return from_information_schema(empty | base | more)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (info("a", "bigint(20) unsigned"), 2**63 - 1, 2**63 - 1),
        (info("a", "int(10) unsigned"), 2**32 - 1, 2**32 - 1),
        (info("a", "tinyint(1)"), 1, 1),
        (info("a", "set('x','it''s')"), "x,it's", "x,it's"),
        (info("a", "bit(1)", numeric_precision=1), b"\1", True),
        (info("a", "bit(9)", numeric_precision=9), b"\1\2", b"\2\1"),
        (
            info("a", "time", datetime_precision=6),
            timedelta(hours=-838, microseconds=-1),
            -838 * 3600 * 10**6 - 1,
        ),
        (info("a", "date"), date(1000, 1, 1), -354285),
        (
            info("a", "datetime", datetime_precision=6),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
            253402300799999999,
        ),
        (
            info("a", "timestamp", datetime_precision=3),
            datetime(2024, 1, 2, 3, 4, 5, 6000),
            "2024-01-02T03:04:05.006Z",
        ),
        (info("a", "uuid"), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (info("a", "inet6"), b"\0" * 15 + b"\1", "::1"),
    ],
)
def test_values_fit_their_schemas(column, value, expected):
    builder, convert = builder_and_converter(column, Modes())
    found = value if convert is None else convert(value)
    assert found == expected
    validate_value(builder.build(), found)


def test_values_beyond_their_schema_are_sentences():
    _, convert = builder_and_converter(info("a", "bigint(20) unsigned"), Modes())
    with pytest.raises(DataError, match=r"column a: 9223372036854775808 .*precise"):
        convert(2**63)
    builder, convert = builder_and_converter(
        info("a", "bigint(20) unsigned"), Modes(bigint_unsigned="precise")
    )
    validate_value(builder.build(), convert(2**64 - 1))
    _, convert = builder_and_converter(info("a", "time", datetime_precision=0), Modes(time="connect"))
    with pytest.raises(DataError, match="no time of day"):
        convert(timedelta(hours=25))
    assert convert(timedelta(hours=23)).hour == 23
    builder, convert = builder_and_converter(
        info("a", "datetime", datetime_precision=0), Modes(time="connect")
    )
    assert convert(datetime(2024, 1, 1)) == datetime(2024, 1, 1, tzinfo=UTC)


TIMED = {
    "date": (date(2024, 1, 2), date(1, 1, 1)),
    "time": (timedelta(hours=10, microseconds=500_000), timedelta(hours=-838, microseconds=-1)),
    "datetime": (datetime(2024, 1, 2, 10, 0, 0, 500_000), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
}


@pytest.mark.parametrize(
    ("mode", "kind", "fsp", "name", "expected"),
    [
        ("isostring", "date", 0, "IsoDate", ("2024-01-02Z", "0001-01-01Z")),
        ("isostring", "time", 6, "IsoTime", ("10:00:00.5Z", DataError)),
        (
            "isostring",
            "datetime",
            6,
            "IsoTimestamp",
            ("2024-01-02T10:00:00.5Z", "1969-12-31T23:59:59.999999Z"),
        ),
        ("microseconds", "date", 0, "Date", (19724, -719162)),
        ("microseconds", "time", 0, "MicroTime", (36_000_500_000, -3_016_800_000_001)),
        ("microseconds", "datetime", 0, "MicroTimestamp", (1_704_189_600_500_000, -1)),
        ("nanoseconds", "date", 0, "Date", (19724, -719162)),
        ("nanoseconds", "time", 6, "NanoTime", (36_000_500_000_000, -3_016_800_000_001_000)),
        ("nanoseconds", "datetime", 0, "NanoTimestamp", (1_704_189_600_500_000_000, -1000)),
    ],
)
def test_times_in_debeziums_other_modes(mode, kind, fsp, name, expected):
    column = info("a", kind, datetime_precision=None if kind == "date" else fsp)
    builder, convert = builder_and_converter(
        column, parse(NEEDED | {"time.precision.mode": mode}).events.shape.modes
    )
    schema = builder.build()
    assert (schema.name, schema.version) == (f"io.debezium.time.{name}", 1)
    for value, found in zip(TIMED[kind], expected, strict=True):
        if found is DataError:
            with pytest.raises(DataError, match=r"column a: -838:00:00.000001 is no time of day.*=isostring"):
                convert(value)
            continue
        assert convert(value) == found
        validate_value(schema, found)


def test_times_that_no_mode_holds_are_sentences():
    _, convert = builder_and_converter(info("a", "datetime", datetime_precision=0), Modes(time="nanoseconds"))
    with pytest.raises(DataError, match=r"column a: the nanoseconds of 2263-01-01 00:00:00 do not fit INT64"):
        convert(datetime(2263, 1, 1))
    errors = {
        v.name: v.errors for v in MySqlSourceConnector.validate(NEEDED | {"time.precision.mode": "adaptive"})
    }
    assert "use adaptive_time_microseconds" in errors["time.precision.mode"][0]


TABLE = Table("d", "t", (Column("id", Kind.INT, nullable=False, size=4), Column("v", Kind.STRING)), ("id",))
VIEW = View(frozenset({"id", "v"}), ("id",))
ORIGIN = Origin(1_234_567, 1, "0-1-2", "b.1", 4)
NOW_NS = 5_678_901


def records(op, before, after, **shape):
    return TableEvents(TABLE, VIEW, Shape("p", **shape)).records(op, before, after, ORIGIN, {}, {}, 0, NOW_NS)


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create():
    found = records("u", [1, "a"], [2, "a"])
    assert [r.value and r.value["op"] for r in found] == ["d", None, "c"]
    assert [r.key["id"] for r in found] == [1, 1, 2]
    for r in found:
        if r.value is not None:
            r.value.validate()
    assert [r.value and r.value.to_dict() for r in records("u", [1, "a"], [2, "b"], rows_only=True)] == [
        None,
        {"id": 2, "v": "b"},
    ]


@pytest.mark.parametrize(("plain", "new", "old"), [(False, b'{"id":2}', b'{"id":1}'), (True, b"2", b"1")])
def test_records_of_a_changed_key_name_the_other_key(plain, new, old):
    converter = SimpleHeaderConverter()
    found = records("u", [1, "a"], [2, "a"], plain_keys=plain)
    headers = [
        [(h.name, converter.from_connect_header("t", h.name, h.schema, h.value)) for h in r.headers]
        for r in found
    ]
    names = [("__debezium.newkey", new), ("__debezium.newkey", new), ("__debezium.oldkey", old)]
    assert headers == [[one] for one in names]
    assert [r.headers[0].schema for r in found] == [r.key_schema for r in found]
    assert not any(r.headers for r in records("u", [1, "a"], [1, "b"]) + records("d", [1, "a"], None))


def test_a_hidden_column_of_the_key_is_said_to_be_in_clear_there(caplog):
    salted, mask = "column.mask.hash.SHA-256.with.salt.S3CR3T", "column.mask.with.3.chars"
    props = NEEDED | {salted: "s.t.id", mask: "d.t.v", "column.truncate.to.3.chars": "d.t.v"}
    warned = MySqlSourceConnector.warnings(props)
    assert warned.keys() == {salted, mask}
    assert all("stays in clear in the key" in said and "S3CR3T" not in said for said in warned.values())
    capture = parse(props | {"message.key.columns": "d.t:v"}).capture
    capture.view(TABLE)
    assert "d.t.v is masked in the values of records, and in clear in their keys" in caplog.text
    caplog.clear()
    parse(props).capture.view(TABLE)
    assert not caplog.text


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.none() | st.sampled_from("ab")), min_size=1, max_size=5)


@given(st.sampled_from("crud"), CHANGES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_a_batch_is_the_records_of_its_rows(op, rows, rows_only, plain_keys, tombstones, in_transaction):
    shape = Shape("p", rows_only=rows_only, plain_keys=plain_keys, tombstones=tombstones)
    events = TableEvents(TABLE, VIEW, shape)
    before = None if op in "cr" else rows
    after = None if op == "d" else [(number, "c") for number, _ in rows]

    def origin():
        return replace(ORIGIN, transaction=TransactionCount("x") if in_transaction else None)

    def columns(images):
        return images and events.converted(list(zip(*images, strict=True)))

    one_by_one, place = [], origin()
    for number in range(len(rows)):
        images = [i and events.convert(i[number]) for i in (before, after)]
        one_by_one += events.records(op, *images, place, {"s": 1}, {"row": number + 1}, number, 5)
    if not events.one_for_each(op):
        assert op == "d"
        assert len(one_by_one) != len(rows) or rows_only
        return
    found = events.batch(
        op, columns(before), columns(after), [(origin(), len(rows))], {"s": 1}, range(len(rows)),
        lambda n: {"row": n + 1}, range(len(rows)), 5,
    )  # fmt: skip
    assert list(found) == one_by_one


SNAPSHOT_FIELD = {
    "type": "string",
    "optional": True,
    "default": "false",
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    },
    "field": "snapshot",
}


@pytest.mark.parametrize(
    ("snapshot", "shown"), [(None, "false"), ("true", "true"), ("incremental", "incremental")]
)
def test_the_source_says_false_where_no_snapshot_has_read_the_row(snapshot, shown):
    events, origin = TableEvents(TABLE, VIEW, Shape("p")), replace(ORIGIN, snapshot=snapshot)
    (record,) = events.records("c", None, [1, "a"], origin, {}, {}, 0, NOW_NS)
    batch = events.batch("c", None, [[1], ["a"]], [(origin, 1)], {}, range(1), dict, range(1), NOW_NS)
    kept = FilterByCondition()
    kept.configure({"language": "jsr223.groovy", "condition": f"value.source.snapshot == '{shown}'"})
    assert kept.apply(record) is record
    converter = JsonConverter()
    converter.configure({}, is_key=False)
    one = converter.from_connect_data("t", record.value_schema, record.value)
    assert converter.from_connect_data_many("t", batch.value_schema, batch.values) == [one]
    made = json.loads(one)
    source = next(field for field in made["schema"]["fields"] if field["field"] == "source")
    assert SNAPSHOT_FIELD in source["fields"]
    assert made["payload"]["source"]["snapshot"] == shown


def test_times_are_in_three_units_and_fields_in_debeziums_order():
    (record,) = records("c", None, [1, "a"])
    envelope, source = record.value_schema, record.value_schema.field("source").schema
    names = ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert ([field.name for field in envelope.fields], envelope.version) == (names, 2)
    of_all = ["version", "connector", "name", "ts_ms", "snapshot", "db", "ts_us", "ts_ns", "table"]
    assert ([field.name for field in source.fields][:9], source.version) == (of_all, 1)
    assert record.timestamp == 5
    for block, schema, ns in (
        (record.value, envelope, NOW_NS),
        (record.value["source"], source, ORIGIN.ts_ns),
    ):
        assert [block[name] for name in ("ts_ms", "ts_us", "ts_ns")] == [ns // 10**6, ns // 10**3, ns]
        assert {schema.field(name).schema for name in ("ts_us", "ts_ns")} == {OPTIONAL_INT64}


def test_times_and_places_become_fields_of_rows(caplog):
    row = ExtractNewRecordState()
    row.configure({"add.fields": "ts_ns,source.ts_us,transaction.id,source.query", "add.headers": "lsn,op"})
    for table in (TABLE, replace(TABLE, name="other")):
        (record,) = TableEvents(table, VIEW, Shape("p")).records(
            "c", None, [1, "a"], ORIGIN, {}, {}, 0, NOW_NS
        )
        added = {"__ts_ns": NOW_NS, "__source_ts_us": 1_234, "__transaction_id": None}
        assert row.apply(record).value.to_dict() == {"id": 1, "v": "a"} | added
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        "add.fields names source.query, which change events p.d.t.Envelope do not have",
        "add.headers names lsn, which change events p.d.t.Envelope do not have",
    ]


@pytest.mark.parametrize(
    ("mode", "name", "fields"),
    [
        ("none", "p-1.d.2t_x.Value", ["Größe", "1st", "a.b"]),
        ("avro", "p_1.d.2t_x.Value", ["Gr__e", "_1st", "a_b"]),
        ("Avro_Unicode", "p_u002d1.d.2t_u005fx.Value", ["Gr_u00f6_u00dfe", "_u0031st", "a_u002eb"]),
    ],
)
def test_names_are_adjusted_to_avro(mode, name, fields):
    columns = (
        Column("Größe", Kind.INT, nullable=False, size=4),
        Column("1st", Kind.STRING),
        Column("a.b", Kind.STRING),
    )
    names = [column.name for column in columns]
    keys = {f"{of}.name.adjustment.mode": mode for of in ("schema", "field")}
    shape = parse(NEEDED | {"topic.prefix": "p-1"} | keys).events.shape
    events = TableEvents(Table("d", "2t_x", columns, names[:1]), View(frozenset(names), names[:1]), shape)
    (record,) = events.records("c", None, [1, "a", "b"], ORIGIN, {}, {}, 0, NOW_NS)
    after = record.value_schema.field("after").schema
    assert (after.name, [field.name for field in after.fields]) == (name, fields)
    assert record.value_schema.name == name.replace("Value", "Envelope")
    assert record.key.to_dict() == {fields[0]: 1}
    assert record.topic == "p-1.d.2t_x", "topics stay as they are"


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "avro"),
        ({"key.converter": "AvroConverter", "field.name.adjustment.mode": "avro_unicode"}, "avro_unicode"),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, "none"),
    ],
)
def test_fields_have_names_for_avro_with_a_converter_of_avro(more, mode):
    assert parse(NEEDED | more).events.shape.field_names == mode


def test_columns_that_would_be_one_field_are_told():
    columns = (Column("a-b", Kind.STRING), Column("a.b", Kind.STRING))
    view = View(frozenset({"a-b", "a.b"}), ())
    with pytest.raises(ConfigError, match=r"columns a-b and a\.b of d\.t would both be the field a_b"):
        TableEvents(Table("d", "t", columns, ()), view, Shape("p", field_names="avro"))


def test_rows_whose_keys_change_are_known():
    events = TableEvents(TABLE, VIEW, Shape("p"))
    same, other = ([(1, 2), ("a", "b")], [(1, 3), ("a", "b")])
    assert events.same_keys(same, same)
    assert not events.same_keys(same, other)


def test_deleted_rows_with_and_without_tombstones():
    assert len(records("d", [1, "a"], None)) == 2
    assert len(records("d", [1, "a"], None, tombstones=False)) == 1
    assert [r.value for r in records("d", [1, "a"], None, rows_only=True)] == [None]


def test_keys_of_one_column_may_be_bare_values():
    assert [r.key for r in records("u", [1, "a"], [2, "b"], rows_only=True, plain_keys=True)] == [1, 2]
    assert records("c", None, [1, "a"], plain_keys=True)[0].key_schema.type == "int32"


def test_topics_hold_what_topics_can():
    assert topic_name(Shape("p"), "d", "täble$") == "p.d.t_ble_"
    assert topic_name(Shape("p", delimiter="-"), "d.x", "t") == "p-d.x-t"


def test_missing_libraries_are_a_sentence(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[mysql\]'"):
        MySqlSourceConnector.task_class()
    said = {value.name: value.errors for value in MySqlSourceConnector.validate({})}
    assert said["connector.class"] == [
        "The MySQL source needs the Python package pymysql, which is not installed: in a checkout of Klamm and a virtual environment, pip install '.[mysql]'"
    ]


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_the_source_has_the_name_of_its_connector(connector):
    (record,) = records("c", None, [1, "a"], connector=connector)
    assert record.value_schema.field("source").schema.name == f"io.debezium.connector.{connector}.Source"
    assert record.value["source"]["connector"] == connector
    record.value.validate()
