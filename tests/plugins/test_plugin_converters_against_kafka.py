"""Every row of a table that Apache Kafka's converters made (tests/fixtures/connect_converters).

Where we differ on purpose, the row is listed below with our answer and the reason: a row that is not listed
must be Kafka's, and a listed row that has become Kafka's fails too.
"""

import json
from pathlib import Path

import pytest

from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter, parse_text
from klamm_plugins.converters.string import StringConverter
from klamm_plugins.errors import DataError
from klamm_plugins.schema import Type

TABLE = json.loads((Path(__file__).parents[1] / "fixtures/connect_converters/table.json").read_text("utf-8"))
ERROR = "DataError"


def envelope(schema, payload):
    return f'{{"schema":{{{schema},"optional":false}},"payload":{payload}}}'


DOUBLE = '"type":"double"'
STRING = '"type":"string"'
OUR_JSON = {
    # Kafka parses floats as BigDecimal, which knows no negative zero and no infinity.
    '{"schema":{"type":"double","optional":false},"payload":-0.0}': envelope(DOUBLE, "-0.0"),
    "-0.0": "-0.0",
    "1E400": ERROR,
    # Before version 19 Java did not always write the shortest digits.
    '{"schema":{"type":"double","optional":false},"payload":1e+23}': envelope(DOUBLE, "1.0E23"),
    '{"schema":{"type":"float","optional":false},"payload":1.17549435e-38}': envelope(
        '"type":"float"', "1.1754944E-38"
    ),
    # Kafka makes null, 0, false or nothing of a payload that its schema does not allow.
    '{"schema":{"type":"string","optional":false},"payload":5}': ERROR,
    '{"schema":{"type":"int32","optional":false},"payload":"5"}': ERROR,
    '{"schema":{"type":"boolean","optional":false},"payload":"true"}': ERROR,
    '{"schema":{"type":"int8","optional":false},"payload":300}': ERROR,
    '{"schema":{"type":"array","optional":false,"items":{"type":"int32","optional":false}},"payload":{}}': ERROR,
    '{"schema":{"type":"int32","optional":false},"payload":1.5}': ERROR,
    # Kafka's order is that of a hash map.
    '{"b":1,"a":2}': '{"b":1,"a":2}',
}

NO_SCHEMA = '{"schema":null,"payload":%s}'
FLOAT64 = envelope('"type":"double"', "%s")
OUR_HEADERS = {
    # Kafka drops what follows the first value.
    "1,2": envelope(STRING, '"1,2"'),
    "1:2": envelope(STRING, '"1:2"'),
    "12:34:56": envelope(STRING, '"12:34:56"'),
    "[1,2] x": envelope(STRING, '"[1,2] x"'),
    # Kafka keeps the digits that a 32-bit float has.
    "3.141592653589793": FLOAT64 % "3.141592653589793",
    "1e-50": FLOAT64 % "1.0E-50",
    "123456789.123456789": (
        '{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
        '"parameters":{"scale":"9"}},"payload":123456789.123456789}'
    ),
    # Kafka wraps dates and times that do not exist.
    "2020-13-02": envelope(STRING, '"2020-13-02"'),
    "99:99:99.999Z": envelope(STRING, '"99:99:99.999Z"'),
    # Kafka gives these an array or map schema without the schemas of what is inside.
    **{
        text: NO_SCHEMA % text
        for text in ("[]", '["a",1]', '[1,"a",true]', "[null]", "{}", '{"a":1,"b":"x"}')
    },
    '{"a":null}': NO_SCHEMA % '{"a":null}',
    # Kafka writes these headers itself and cannot read them back.
    "[1,null]": NO_SCHEMA % "[1,null]",
    '["a",null]': NO_SCHEMA % '["a",null]',
    '["a\\"b"]': (
        '{"schema":{"type":"array","items":{"type":"string","optional":false},"optional":false},'
        '"payload":["a\\"b"]}'
    ),
}


def text(data):
    return None if data is None else data.decode()


def rewritten(row):
    converter = JsonConverter()
    converter.configure(row.get("config", {}), is_key=False)
    data = converter.to_connect_data("t", row["in"].encode())
    return data, text(converter.from_connect_data("t", data.schema, data.value))


@pytest.mark.parametrize("row", TABLE["json"], ids=lambda r: r["in"][:60])
def test_json_converter(row):
    ours = OUR_JSON.get(row["in"])
    if ours is not None:
        assert ours != row.get("out"), "no longer a difference: take it off the list"
        if ours != ERROR:
            assert rewritten(row)[1] == ours
    if ours == ERROR:
        with pytest.raises(DataError):
            rewritten(row)
    elif "read_error" in row:
        with pytest.raises(DataError) as raised:
            rewritten(row)
        assert row["read_error"] in str(raised.value)
    elif ours is None:
        assert rewritten(row)[1] == row["out"]


@pytest.mark.parametrize(
    "row", [r for r in TABLE["json"] if "string" in r and r["in"] not in OUR_JSON], ids=lambda r: r["in"][:60]
)
def test_text_of_values(row):
    data, _ = rewritten(row)
    header = SimpleHeaderConverter().from_connect_header("t", "h", data.schema, data.value)
    if data.schema is not None and data.schema.type is Type.BYTES and not data.schema.name:
        assert text(header) == row["header"]  # Kafka's StringConverter writes the address of the array
        return
    string = StringConverter().from_connect_data("t", data.schema, data.value)
    if data.schema is not None and (data.schema.name or "").rpartition(".")[2] in {
        "Date",
        "Time",
        "Timestamp",
    }:
        # Kafka's words for a date depend on the locale, and its header on the value: the epoch is a time to it.
        if not (data.schema.name.endswith("Date") or "1970" in row["string"] or "1969" in row["string"]):
            assert text(header) == row["header"]
        assert text(string) == data.value.isoformat()
        return
    assert text(header) == row["header"]
    assert text(string) == row["string"]


@pytest.mark.parametrize("row", TABLE["headers"], ids=lambda r: r["in"][:60])
def test_simple_header_converter_reads(row):
    data = parse_text(row["in"])
    converter = JsonConverter()
    converter.configure({"decimal.format": "NUMERIC"}, is_key=False)
    out = text(converter.from_connect_data("t", data.schema, data.value))
    ours = OUR_HEADERS.get(row["in"])
    assert ours != row.get("out") or ours is None, "no longer a difference: take it off the list"
    assert out == (row.get("out") if ours is None else ours)


def test_every_listed_difference_is_in_the_table():
    assert OUR_JSON.keys() <= {r["in"] for r in TABLE["json"]}
    assert OUR_HEADERS.keys() <= {r["in"] for r in TABLE["headers"]}
