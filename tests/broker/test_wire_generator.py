"""The field tables that are checked in are those that the generator writes."""

import importlib.util
from pathlib import Path

import pytest
from support import kafka_oracle

from klamm_kafka.wire.messages import __file__ as messages_init

GENERATOR = Path(__file__).parents[2] / "broker" / "codegen" / "generate.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("klamm_codegen_generate", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("apache_kafka")
def test_tables_are_up_to_date(generator, tmp_path):
    libs = kafka_oracle.require().home / "libs"
    parts = (
        "kafka-clients",
        "kafka-group-coordinator",
        "kafka-share-coordinator",
        "kafka-transaction-coordinator",
    )
    jars = [str(next(libs.glob(f"{part}-[0-9]*.jar"))) for part in parts]
    assert generator.main(["--output", str(tmp_path), *jars]) == 0
    checked_in = {
        p.name: p.read_text() for p in Path(messages_init).parent.glob("*.py") if p.name != "__init__.py"
    }
    assert {p.name: p.read_text() for p in tmp_path.glob("*.py")} == checked_in


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("isrNodes", "isr_nodes"),
        ("Name", "name"),
        ("Class", "class_"),
    ],
)
def test_names(generator, name, snake):
    assert generator.snake_case(name) == snake


def document(name, kind, fields, **more):
    return {
        "name": name,
        "type": kind,
        "apiKey": 3,
        "validVersions": "0-2",
        "flexibleVersions": "1+",
        "fields": fields,
        **more,
    }


def test_a_module_is_a_readable_table(generator):
    shared = {"name": "Things", "type": "[]Thing", "versions": "0+", "fields": [{"name": "Id", "type": "int32", "versions": "0+"}]}  # fmt: skip
    request = document(
        "XRequest", "request", [shared, {"name": "Password", "type": "string", "versions": "2+"}]
    )
    response = document(
        "XResponse",
        "response",
        [
            shared,
            {"name": "Rack", "type": "string", "versions": "1+", "nullableVersions": "1+", "default": "null", "ignorable": True},
            {"name": "Limit", "type": "int32", "versions": "0+", "default": "0x7fffffff"},
            {"name": "Zero", "type": "int64", "taggedVersions": "1+", "tag": 3, "default": "0"},
        ],
        latestVersionUnstable=True,
    )  # fmt: skip
    text = generator.module_source("X.", [request, response])
    body = text.partition("field\n\n\n")[2]
    assert (
        body
        == """class XRequestThing(Struct):
    id: int = field("int32", "0+")


class XRequest(Message, api_key=3, kind="request", versions="0-2", flexible="1+"):
    things: list[XRequestThing] = field([XRequestThing], "0+")
    password: str = field("string", "2+", secret=True)


class XResponseThing(Struct):
    id: int = field("int32", "0+")


class XResponse(Message, api_key=3, kind="response", versions="0-2", flexible="1+", unstable=True):
    things: list[XResponseThing] = field([XResponseThing], "0+")
    rack: str | None = field("string", "1+", nullable="1+", default=None, ignorable=True)
    limit: int = field("int32", "0+", default=2147483647)
    zero: int = field("int64", "1+", tag=3)
"""
    )


def test_missing_definitions_are_named(generator, tmp_path, capsys):
    with pytest.raises(SystemExit):
        generator.main([str(tmp_path)])
    assert "no definition of RequestHeader" in capsys.readouterr().err
