"""Compatibility of Avro, JSON Schema and Protobuf: what may change, and the reasons in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klamm.registry.compatibility import LEVELS, Earlier, reasons
from klamm.registry.errors import RegistryError
from klamm.registry.model import AVRO, JSON, PROTOBUF, Schema
from klamm.registry.schemas import Parsed, differences, read


def parsed(kind: str, schema: Any) -> Parsed:
    text = schema if isinstance(schema, str) and kind == PROTOBUF else json.dumps(schema)
    return read(Schema(kind=kind, text=text))[1]


def kinds(kind: str, new: Any, old: Any) -> list[str]:
    return [d.kind for d in differences(parsed(kind, new), parsed(kind, old), ("new", "old"))]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    made = [{"name": f, "type": "int"} if isinstance(f, str) else f for f in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


NODE = record(field("next", ["null", "R"], default=None), "value")

AVRO_CASES = [
    # new, old, what keeps the new from reading the old
    ("int", "int", []),
    ("long", "int", []),
    ("double", "float", []),
    ("int", "long", ["TYPE_MISMATCH"]),
    ("string", "bytes", []),
    ("bytes", "string", []),
    (["null", "int"], "int", []),
    ("int", ["null", "int"], ["TYPE_MISMATCH"]),
    (["null", "string"], "int", ["MISSING_UNION_BRANCH"]),
    (["null", "string"], ["null", "int"], ["MISSING_UNION_BRANCH"]),
    (["null", "long"], ["int", "null"], []),
    (record("a"), record("a", "b"), []),
    (record("a", "b"), record("a"), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record("a", field("b", "int", default=0)), record("a"), []),
    (record(field("b", "int", aliases=["a"])), record("a"), []),
    (record("a", name="S"), record("a"), ["NAME_MISMATCH"]),
    (record("a", name="S", aliases=["R"]), record("a"), []),
    (record("a", namespace="x"), record("a", namespace="y"), []),
    (record(field("a", "string")), record("a"), ["TYPE_MISMATCH"]),
    (record("b", field("a", "string")), record("a"), ["READER_FIELD_MISSING_DEFAULT_VALUE", "TYPE_MISMATCH"]),
    (enum("A", "B"), enum("A"), []),
    (enum("A"), enum("A", "B"), ["MISSING_ENUM_SYMBOLS"]),
    (enum("A", default="A"), enum("A", "B"), []),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, ["FIXED_SIZE_MISMATCH"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, ["TYPE_MISMATCH"]),
    (NODE, NODE, []),
    (record(field("next", ["null", "R"], default=None), field("value", "string")), NODE, ["TYPE_MISMATCH"]),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "expected"), AVRO_CASES)
def test_avro(new: Any, old: Any, expected: list[str]) -> None:
    assert kinds(AVRO, new, old) == expected


def obj(properties: dict[str, Any], *, required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **more,
    }


CLOSED: dict[str, Any] = {"additionalProperties": False}
A: dict[str, Any] = {"a": {"type": "string"}}
AB: dict[str, Any] = {**A, "b": {"type": "integer"}}

S: dict[str, Any] = {"type": "string"}
N: dict[str, Any] = {"type": "number"}


def tuple_of(*first: Any, **more: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "prefixItems": list(first),
        **more,
    }


JSON_CASES = [
    ({"type": "number"}, {"type": "integer"}, []),
    ({"type": "integer"}, {"type": "number"}, ["TYPE_NARROWED"]),
    ({"type": "string"}, {"type": "integer"}, ["TYPE_CHANGED"]),
    ({}, {"type": "integer"}, []),
    ({"type": "integer"}, {}, ["SCHEMA_ADDED"]),
    ({"type": ["string", "null"]}, {"type": "string"}, []),
    ({"type": "string"}, {"type": ["string", "null"]}, ["TYPE_CHANGED"]),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 3}, []),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 5}, ["MAX_LENGTH_DECREASED"]),
    ({"type": "string", "minLength": 3}, {"type": "string"}, ["MIN_LENGTH_ADDED"]),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, ["PATTERN_CHANGED"]),
    ({"type": "number", "maximum": 1}, {"type": "number"}, ["MAXIMUM_ADDED"]),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}, []),
    ({"type": "number", "multipleOf": 4}, {"type": "number", "multipleOf": 2}, ["MULTIPLE_OF_EXPANDED"]),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": ["c"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_CHANGED"]),
    ({"type": "string"}, {"enum": ["a"]}, []),
    (obj(AB), obj(A), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (obj({**A, "b": {}}), obj(A), []),
    (obj(A), obj(AB), []),
    (obj(AB, **CLOSED), obj(A, **CLOSED), []),
    (obj(AB, required=["b"], **CLOSED), obj(A, **CLOSED), ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (obj({**A, "b": {"type": "integer", "default": 1}}, required=["b"], **CLOSED), obj(A, **CLOSED), []),
    (obj(A, **CLOSED), obj(AB, **CLOSED), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (obj(A, additionalProperties={"type": "integer"}), obj(AB, **CLOSED), []),
    (obj(A, additionalProperties={"type": "string"}), obj(AB, **CLOSED), ["TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (obj(A, required=["a"]), obj(A), ["REQUIRED_ATTRIBUTE_ADDED"]),
    (obj(A), obj(A, required=["a"]), []),
    (obj(A, **CLOSED), obj(A), ["ADDITIONAL_PROPERTIES_REMOVED"]),
    ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}, []),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}, ["TYPE_CHANGED"]),
    ({"type": "array", "maxItems": 1}, {"type": "array", "maxItems": 2}, ["MAX_ITEMS_DECREASED"]),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"oneOf": [{"type": "string"}]}, []),
    ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["SUM_TYPE_NARROWED"]),
    ({"not": {"type": "string"}}, {"not": {"type": "string"}}, []),
    ({"not": {"type": "integer"}}, {"not": {"type": "number"}}, []),
    ({"not": {"type": "number"}}, {"not": {"type": "integer"}}, ["NOT_TYPE_EXTENDED"]),
    # the following go by the pairs that Confluent's registry is tested with: keywords, and which of them break what
    (obj(AB, unevaluatedProperties=False), obj(A, unevaluatedProperties=False), []),
    (obj(AB, unevaluatedProperties={"type": "integer"}), obj(A, unevaluatedProperties={"type": "integer"}), []),
    (obj(AB, unevaluatedProperties={"type": "null"}), obj(A, unevaluatedProperties={"type": "null"}),
     ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (obj(AB, required=["b"], unevaluatedProperties={"type": "integer"}), obj(A, unevaluatedProperties={"type": "integer"}),
     ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (obj(A, unevaluatedProperties=False), obj(A), ["UNEVALUATED_PROPERTIES_REMOVED"]),
    (obj(A, unevaluatedProperties={"type": "null"}), obj(A), ["UNEVALUATED_PROPERTIES_NARROWED"]),
    (obj(AB, required=["b"]), obj(A), ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (obj({**A, "b": {"default": 1, "type": "integer"}}, required=["b"]), obj(A), ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"]),
    ({"dependentSchemas": {"x": {"type": "string"}}}, {"dependentSchemas": {"x": {"type": "null"}}}, ["TYPE_CHANGED"]),
    ({"dependencies": {"x": {"type": "string"}}}, {"dependencies": {"x": {"type": "null"}}}, ["TYPE_CHANGED"]),
    ({"dependencies": {"x": {"type": "string"}}}, {"dependencies": {"y": {"type": "string"}}}, ["DEPENDENCY_SCHEMA_ADDED"]),
    ({"dependentSchemas": {"x": obj(A)}}, {"dependencies": {"x": obj(A), "y": obj(A)}}, []),
    ({"dependentRequired": {"x": ["a"]}}, {"dependencies": {"x": ["a", "b"]}}, []),
    ({"dependentRequired": {"x": ["a", "b"]}}, {"dependentRequired": {"x": ["a"]}}, ["DEPENDENCY_ARRAY_EXTENDED"]),
    ({"dependentRequired": {"x": ["a"]}}, {"dependentRequired": {"y": ["a"]}}, ["DEPENDENCY_ARRAY_ADDED"]),
    (tuple_of(S, N, S, unevaluatedItems=S), tuple_of(S, N, unevaluatedItems=S), []),
    (tuple_of(S, N, N, unevaluatedItems=S), tuple_of(S, N, unevaluatedItems=S), ["TYPE_CHANGED", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (tuple_of(S, unevaluatedItems=S), tuple_of(S, N, unevaluatedItems=S), ["TYPE_CHANGED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (tuple_of(S, items=S), tuple_of(S, N, items=False), ["TYPE_CHANGED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"]),
    (tuple_of(S, unevaluatedItems=False), tuple_of(S), ["UNEVALUATED_ITEMS_REMOVED"]),
    ({"type": "array", "contains": N, "minContains": 2}, {"type": "array", "contains": N, "minContains": 1}, ["MIN_CONTAINS_INCREASED"]),
    ({"type": "array", "contains": N, "maxContains": 2}, {"type": "array", "contains": N, "maxContains": 3}, ["MAX_CONTAINS_DECREASED"]),
    ({"type": "array", "contains": N, "maxContains": 4}, {"type": "array", "contains": N, "maxContains": 3}, []),
    ({"additionalItems": False}, {"additionalItems": True}, ["ADDITIONAL_ITEMS_REMOVED"]),
    ({"additionalItems": S}, {"additionalItems": N}, ["TYPE_CHANGED"]),
    ({"oneOf": [S]}, {"anyOf": [S, N]}, ["COMBINED_TYPE_CHANGED"]),
    ({"anyOf": [S]}, {"oneOf": [S, N]}, ["SUM_TYPE_NARROWED"]),
    ({"anyOf": [S, N]}, {"oneOf": [S]}, []),
    ({"allOf": [S, N]}, {"anyOf": [S, N]}, ["COMBINED_TYPE_CHANGED"]),
    ({"anyOf": [S, N]}, {"allOf": [S]}, []),
    ({"allOf": [S]}, {"allOf": [S, {"enum": ["a"]}]}, []),
    ({"allOf": [S, {"enum": ["b"]}]}, {"allOf": [S, {"enum": ["a"]}]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
    ({"type": "number", "multipleOf": 11}, {"type": "number", "multipleOf": 10}, ["MULTIPLE_OF_CHANGED"]),
    ({"type": ["object", "array"]}, {"type": ["object"]}, []),
    ({"$ref": "#/definitions/x", "definitions": {"x": {"type": "string"}}}, {"type": "string"}, []),
    ({"$ref": "#/definitions/x", "definitions": {"x": {"type": "null"}}}, {"type": "string"}, ["TYPE_CHANGED"]),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "expected"), JSON_CASES)
def test_json(new: Any, old: Any, expected: list[str]) -> None:
    assert kinds(JSON, new, old) == expected


def test_a_json_schema_may_contain_itself() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, **CLOSED}
    other = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "string"}}, **CLOSED}
    assert kinds(JSON, tree, tree) == []
    assert kinds(JSON, tree, other) == ["TYPE_CHANGED"]


def proto(body: str, package: str = "p") -> str:
    return f'syntax = "proto3"; package {package}; {body}'


M = proto("message M { int32 a = 1; string s = 2; }")

PROTOBUF_CASES = [
    (M, M, []),
    (proto("message M { int64 a = 1; bytes s = 2; }"), M, []),
    (proto("message M { string a = 1; string s = 2; }"), M, ["FIELD_SCALAR_KIND_CHANGED"]),
    (proto("message M { sint32 a = 1; string s = 2; }"), M, ["FIELD_SCALAR_KIND_CHANGED"]),
    (proto("message M { int32 other = 1; string s = 2; int32 new = 3; }"), M, []),
    (proto("message M { string s = 2; }"), M, []),
    (proto("message M { repeated int32 a = 1; string s = 2; }"), M, ["FIELD_NUMERIC_LABEL_CHANGED"]),
    (proto("message M { int32 a = 1; repeated string s = 2; }"), M, []),
    (proto("message N { int32 a = 1; }"), M, ["MESSAGE_REMOVED"]),
    (proto("message N { } message M { int32 a = 1; string s = 2; }"), M, []),
    (proto("message M { int32 a = 1; string s = 2; }", "q"), M, ["PACKAGE_CHANGED"]),
    (proto("message M { N a = 1; string s = 2; } message N { }"), M, ["FIELD_KIND_CHANGED"]),
    (proto("message M { E a = 1; string s = 2; } enum E { Z = 0; }"), M, []),
    (proto("message M { oneof o { int32 a = 1; } string s = 2; }"), M, []),
    (proto("message M { oneof o { int32 a = 1; string s = 2; } }"), M, ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]),
    (
        proto("message M { oneof o { int32 a = 1; } }"),
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        proto("message M { oneof o { int32 a = 1; } int32 b = 2; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    # a oneof is known by its name, or by where its fields come from
    (
        proto("message M { oneof n { int32 a = 1; int32 b = 2; int32 c = 3; } }"),
        proto("message M { int32 a = 1; oneof o { int32 b = 2; int32 c = 3; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        proto("message M { oneof n { int32 b = 2; int32 c = 3; } }"),
        proto("message M { oneof o { int32 b = 2; int32 c = 3; } }"),
        [],
    ),
    (
        proto("message M { oneof o { int32 a = 1; } oneof p { int32 c = 3; int32 b = 2; } }"),
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        proto("message M { oneof p { int32 b = 2; int32 a = 1; } }"),
        proto("message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        proto("message M { oneof q { int32 a = 1; int32 b = 2; } }"),
        proto("message M { oneof o { int32 a = 1; } oneof p { int32 b = 2; } }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    (
        proto("message M { oneof p { int32 a = 1; } }"),
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (proto("message M { int32 x = 9; }"), proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"), []),
    (
        proto("message M { int32 a = 1; oneof o { int32 b = 2; } }"),
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        [],
    ),
    (
        proto("message M { map<string, int64> m = 1; }"),
        proto("message M { map<string, int32> m = 1; }"),
        [],
    ),
    (
        proto("message M { map<string, string> m = 1; }"),
        proto("message M { map<string, int32> m = 1; }"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (
        proto("message M { B b = 1; } message A { } message B { }"),
        proto("message M { A b = 1; } message A { } message B { }"),
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (
        'syntax = "proto2"; package p; message M { required int32 a = 1; optional string b = 2; }',
        'syntax = "proto2"; package p; message M { optional int32 a = 1; repeated string b = 2; }',
        ["FIELD_NUMERIC_LABEL_CHANGED"],
    ),
    (
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; } }"),
        proto("message M { oneof p { int32 a = 1; int32 b = 2; } oneof o { int32 c = 3; int32 d = 4; } }"),
        [],
    ),
    (
        proto("message M { int32 a = 1; }"),
        proto("message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        'syntax = "proto2"; package p; message M { required int32 a = 1; }',
        'syntax = "proto2"; package p; message M { required int32 b = 2; }',
        ["REQUIRED_FIELD_REMOVED", "REQUIRED_FIELD_ADDED"],
    ),
]


@pytest.mark.parametrize(("new", "old", "expected"), PROTOBUF_CASES)
def test_protobuf(new: str, old: str, expected: list[str]) -> None:
    assert kinds(PROTOBUF, new, old) == expected


HOME = "message Home { int32 id = 1; bool on = 2; map<string, int32> rooms = 3; }"


def importing(*bodies: str, main: str = 'import "home.proto"; message M { h.Home home = 1; }') -> Parsed:
    """A schema that imports home.proto; with a second text, that one imports inner.proto."""
    names = ("home.proto", "inner.proto")[: len(bodies)]
    texts = tuple(zip(names, (f'syntax = "proto3"; {each}' for each in bodies), strict=True))
    return read(Schema(kind=PROTOBUF, text=f'syntax = "proto3"; package m; {main}'), texts[::-1])[1]


H = f"package h; {HOME}"
IN_MAP = 'import "home.proto"; message M { map<string, h.Home> homes = 1; }'
DEEP = 'package h; import "inner.proto"; message Home { i.Room room = 1; }'
PUBLIC = 'package p; import public "inner.proto";'
LOOP = "package h; message Home { Home next = 1; int32 id = 2; }"

IMPORTING_CASES = [
    (importing(H), importing(H), []),
    (importing(f"{H} message New {{}}"), importing(H), []),
    (importing(H.replace("int32 id", "int64 id")), importing(H), []),
    (importing(H.replace("bool on = 2;", "")), importing(H), []),
    (importing(H.replace("int32 id", "string id")), importing(H), ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    (importing(H.replace("<string, int32>", "<string, string>")), importing(H), ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    # an import may move to another package, if it keeps its content
    (importing(H.replace("package h", "package g"), main='import "home.proto"; message M { g.Home home = 1; }'), importing(H), []),
    (importing(f"package h; {HOME.replace('Home', 'Flat')}", main='import "home.proto"; message M { h.Flat home = 1; }'), importing(H),
     ["FIELD_NAMED_TYPE_CHANGED"]),
    (importing("package h; enum Home { A = 0; }"), importing(H), ["FIELD_KIND_CHANGED"]),
    # a message may move out of an import, and not into one
    (importing(main=f"message M {{ Home home = 1; }} {HOME}"), importing(H), []),
    (importing(H), importing(main=f"message M {{ Home home = 1; }} {HOME}"), ["MESSAGE_REMOVED"]),
    # what an import imports, also by `import public`
    (importing(DEEP, "package i; message Room { string n = 1; }"), importing(DEEP, "package i; message Room { int32 n = 1; }"),
     ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    (importing(DEEP, "package i; message Room { bytes n = 1; }"), importing(DEEP, "package i; message Room { string n = 1; }"), []),
    (importing(PUBLIC, f"package h; {HOME.replace('int32 id', 'bytes id')}"), importing(PUBLIC, H),
     ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    (importing(H.replace("int32 id", "string id"), main=IN_MAP), importing(H, main=IN_MAP),
     ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    (importing(H.replace("int32 id = 1; bool on = 2;", "oneof o { int32 id = 1; bool on = 2; }")), importing(H),
     ["MULTIPLE_FIELDS_MOVED_TO_ONEOF", "FIELD_NAMED_TYPE_CHANGED"]),
    (importing(LOOP.replace("int32 id", "string id")), importing(LOOP), ["FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"]),
    # a message that is in no field is not the schema's
    (importing(f"{H} message Other {{ string a = 1; }}"), importing(f"{H} message Other {{ int32 a = 1; }}"), []),
]  # fmt: skip


@pytest.mark.parametrize(("new", "old", "expected"), IMPORTING_CASES)
def test_protobuf_with_imports(new: Parsed, old: Parsed, expected: list[str]) -> None:
    assert [d.kind for d in differences(new, old, ("new", "old"))] == expected


def test_no_schema_holds_up_the_registry() -> None:
    """Each of these small schemas took for ever."""
    depth = 40
    levels = [
        record(*(field(n, ["null", f"R{i + 1}"]) for n in "lr"), name=f"R{i}") for i in reversed(range(depth))
    ]
    texts = [json.dumps(record("end", name=f"R{depth}")), *map(json.dumps, levels)]
    references = tuple((str(n), text) for n, text in enumerate(texts))
    avro = read(Schema(kind=AVRO, text='["null","R0"]'), references)[1]
    other = read(Schema(kind=AVRO, text='["null","R0"]'), (*references[:-1], ("x", texts[-1])))[1]
    assert differences(avro, other, ("new", "old")) == []

    for key in ("anyOf", "oneOf", "allOf"):
        names = {}
        for i in range(30):
            ref = {"$ref": f"#/definitions/d{i + 1}"}
            names[f"d{i}"] = {key: [obj({"p": ref}), {"type": "array", "items": ref}]}
        choices = {"$ref": "#/definitions/d0", "definitions": {**names, "d30": {"type": "string"}}}
        assert kinds(JSON, {**choices, "title": "t"}, choices) == []
    names = {f"d{i}": obj({p: {"$ref": f"#/definitions/d{i + 1}"} for p in "ab"}) for i in range(40)}
    for last in ("string", "integer"):
        tree = {"$ref": "#/definitions/d0", "definitions": {**names, "d40": {"type": last}}}
        assert len(kinds(JSON, {**tree, "title": "t"}, tree)) == 0
    string = {"$ref": "#/definitions/d0", "definitions": {**names, "d40": {"type": "string"}}}
    assert set(kinds(JSON, tree, string)) == {"TYPE_CHANGED"}

    slow = {
        "type": "object",
        "patternProperties": {"^(a+)+$": {"type": "string"}},
        "additionalProperties": False,
    }
    name = "a" * 60 + "!"
    assert kinds(JSON, slow, {"type": "object", "properties": {name: {"type": "string"}}}) != []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":[]}]}'),
        (AVRO, '{"type":"record","name":"R","doc":"\\ud800","fields":[]}'),
        (AVRO, '{"type":"record","name":"R","aliases":[1],"fields":[]}'),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1e999}]}'),
        (JSON, '{"maximum":NaN}'),
        (JSON, '{"maximum":1e999}'),
        (JSON, '{"$schema":[]}'),
        (JSON, '{"title":"\\ud800"}'),
    ],
)
def test_odd_schemas_are_refused_in_words(kind: str, text: str) -> None:
    with pytest.raises(RegistryError, match="Invalid schema"):
        read(Schema(kind=kind, text=text))


def test_odd_numbers_are_compared() -> None:
    """Fractions as they stand in the text, and integers that no float can hold."""
    step = {"type": "number", "multipleOf": 0.1}
    assert kinds(JSON, step, {"type": "number", "multipleOf": 0.3}) == []
    large = {"type": "number", "maximum": 10**400}
    assert kinds(JSON, large, {"type": "number", "maximum": 1.5}) == []
    fields = record(field("a", ["double", {"type": "array", "items": "int"}], default=[]))
    assert kinds(AVRO, fields, record()) == []


def test_another_kind_is_never_compatible() -> None:
    found = differences(parsed(JSON, {}), parsed(AVRO, "int"), ("new", "old"))
    assert [d.kind for d in found] == ["TYPE_MISMATCH"]


WITH_B, A_ONLY, WITH_OPTIONAL = record("a", "b"), record("a"), record("a", field("b", "int", default=1))


@pytest.mark.parametrize(
    ("level", "earlier", "new", "well"),
    [
        ("NONE", ["string"], "int", True),
        ("BACKWARD", [A_ONLY], WITH_B, False),
        ("BACKWARD", [WITH_B], A_ONLY, True),
        ("BACKWARD", [A_ONLY, WITH_OPTIONAL], WITH_B, True),
        ("BACKWARD_TRANSITIVE", [A_ONLY, WITH_OPTIONAL], WITH_B, False),
        ("FORWARD", [WITH_B], A_ONLY, False),
        ("FORWARD", [A_ONLY], WITH_B, True),
        ("FORWARD", [WITH_B, WITH_OPTIONAL], A_ONLY, True),
        ("FORWARD_TRANSITIVE", [WITH_B, WITH_OPTIONAL], A_ONLY, False),
        ("FULL", [A_ONLY], WITH_OPTIONAL, True),
        ("FULL", [A_ONLY], WITH_B, False),
        ("FULL", [WITH_B], A_ONLY, False),
        ("FULL_TRANSITIVE", [A_ONLY, WITH_OPTIONAL], WITH_B, False),
    ],
)
def test_levels(level: str, earlier: list[Any], new: Any, well: bool) -> None:
    assert level in LEVELS
    versions = [
        Earlier(version=n, text=json.dumps(e), parsed=parsed(AVRO, e)) for n, e in enumerate(earlier, 1)
    ]
    assert (reasons(parsed(AVRO, new), versions, level) == []) is well


def test_reasons_are_in_words() -> None:
    earlier = [Earlier(version=3, text="…", parsed=parsed(AVRO, A_ONLY))]
    assert reasons(parsed(AVRO, WITH_B), earlier, "BACKWARD") == [
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new schema has no "
            "default value and is missing in the old schema', additionalInfo:'b'}"
        ),
        "{oldSchemaVersion: 3}",
        "{oldSchema: '…'}",
        "{compatibility: 'BACKWARD'}",
    ]
