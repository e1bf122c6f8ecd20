"""The registry's operations on its state, without topic and HTTP: each test writes changes and reads them again from records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klamm.registry import deletion, service
from klamm.registry.errors import RegistryError
from klamm.registry.model import Reference, Schema, Version
from klamm.registry.records import Change, SchemaRecord, decode, encode
from klamm.registry.schemas import resolved
from klamm.registry.service import Registration
from klamm.registry.store import Store
from klamm.registry.subjects import checked


class Registry:
    """A store whose changes pass through records, as through the topic."""

    def __init__(self) -> None:
        self.store = Store()
        self.records: list[tuple[bytes, bytes | None]] = []

    def do(self, write: Any, *args: Any, **more: Any) -> Any:
        written = write(self.store, *args, **more)
        for change in written.changes:
            self.take(change)
        return written.answer

    def take(self, change: Change) -> None:
        record = encode(change)
        self.records.append(record)
        read = decode(*record)
        assert read == change
        self.store.apply(read)

    def register(self, subject: str, text: str, kind: str = "AVRO", **more: Any) -> int:
        references = tuple(more.pop("references", ()))
        given = Registration(schema=Schema(kind=kind, text=text, references=references), **more)
        return int(self.do(service.register, subject, given)["id"])

    def replayed(self) -> Store:
        store = Store()
        for record in self.records:
            change = decode(*record)
            assert change is not None
            store.apply(change)
        return store


@pytest.fixture
def registry() -> Registry:
    return Registry()


def code(write: Any, *args: Any, **more: Any) -> int | None:
    with pytest.raises(RegistryError) as caught:
        write(*args, **more)
    return caught.value.code


def record(*fields: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": f, "type": "int"} for f in fields]})


def test_one_schema_has_one_id_in_all_subjects(registry: Registry) -> None:
    assert registry.register("a", '"int"') == 1
    assert registry.register("a", ' { "type" : "int" } ') == 1
    assert registry.register("b", '"int"') == 1
    assert registry.register("b", '"long"') == 2
    places = service.places_of(registry.store, 1, None, deleted=False)
    assert [(p.subject, p.version) for p in places] == [("a", 1), ("b", 1)]
    assert service.version_of(registry.store, "b", "latest").version == 2
    assert code(service.version_of, registry.store, "b", "3") == 40402
    assert code(service.version_of, registry.store, "c", "1") == 40401
    assert code(service.version_of, registry.store, "b", "0") == 42202
    assert code(service.schema_by_id, registry.store, 9, None) == 40403
    assert code(registry.register, "b", '"none"') == 42201


def test_an_incompatible_schema_is_refused_with_reasons(registry: Registry) -> None:
    registry.register("a", record("x"))
    assert code(registry.register, "a", record("x", "y")) == 409
    registry.do(service.put_config, "a", {"compatibility": "FORWARD"})
    assert registry.register("a", record("x", "y")) == 2
    assert code(registry.do, service.put_config, "a", {"compatibility": "SOMETIMES"}) == 42203
    assert registry.do(service.delete_config, "a") == {"compatibilityLevel": "FORWARD"}
    assert service.config_of(registry.store, "a") == {"compatibilityLevel": "BACKWARD"}


def test_deletions_are_soft_first(registry: Registry) -> None:
    for text in (record("x"), record("x", "x2"), record("x")):
        registry.do(service.put_config, "a", {"compatibility": "NONE"})
        registry.register("a", text)
    assert [v.version for v in service.versions_of(registry.store, "a")] == [1, 2]
    assert code(registry.do, deletion.delete_version, "a", "1", permanent=True) == 40407
    assert registry.do(deletion.delete_version, "a", "1", permanent=False) == 1
    assert code(registry.do, deletion.delete_version, "a", "1", permanent=False) == 40406
    assert code(service.version_of, registry.store, "a", "1") == 40402
    assert service.version_of(registry.store, "a", "1", deleted=True).id == 1
    assert registry.register("a", record("x")) == 1  # its id again, as a new version
    assert [v.version for v in service.versions_of(registry.store, "a")] == [2, 3]
    assert registry.do(deletion.delete_version, "a", "1", permanent=True) == 1
    assert code(registry.do, deletion.delete_subject, "a", permanent=True) == 40405
    assert registry.do(deletion.delete_subject, "a", permanent=False) == [2, 3]
    assert code(registry.do, deletion.delete_subject, "a", permanent=False) == 40404
    assert code(service.versions_of, registry.store, "a") == 40401
    assert registry.do(deletion.delete_subject, "a", permanent=True) == [2, 3]
    assert registry.replayed().subjects == registry.store.subjects == {}
    assert registry.register("a", record("new")) == 3, "an id never means another schema"


def test_references_are_resolved_and_protected(registry: Registry) -> None:
    registry.register("inner", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A"]}))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": "x.E"}]})
    reference = Reference(name="x.E", subject="inner", version=1)
    assert code(registry.register, "outer", text) == 42201
    assert registry.register("outer", text, references=[reference]) == 2
    inner = service.version_of(registry.store, "inner", "1")
    assert [v.id for v in registry.store.referring(inner)] == [2]
    assert code(registry.do, deletion.delete_subject, "inner", permanent=False) == 42206
    missing = Reference(name="x.E", subject="inner", version=7)
    assert code(registry.register, "outer", text, references=[missing]) == 42201
    registry.do(deletion.delete_subject, "outer", permanent=False)
    registry.do(deletion.delete_subject, "inner", permanent=False)


def test_a_softly_deleted_version_that_is_referred_to_stays(registry: Registry) -> None:
    """A reference may be made to a version that is softly deleted already; without it, the schema could be read no more."""
    registry.register("inner", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A"]}))
    registry.do(deletion.delete_subject, "inner", permanent=False)
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": "x.E"}]})
    registry.register("outer", text, references=[Reference(name="x.E", subject="inner", version=1)])
    assert code(registry.do, deletion.delete_version, "inner", "1", permanent=True) == 42206
    assert code(registry.do, deletion.delete_subject, "inner", permanent=True) == 42206
    registry.do(deletion.delete_subject, "outer", permanent=False)
    assert code(registry.do, deletion.delete_subject, "inner", permanent=True) == 42206, (
        "data may be there still"
    )
    assert code(registry.do, deletion.delete_version, "inner", "1", permanent=True) == 42206
    registry.do(deletion.delete_subject, "outer", permanent=True)
    assert registry.do(deletion.delete_subject, "inner", permanent=True) == [1]


def test_a_reference_to_the_newest_version_means_that_one_for_ever(registry: Registry) -> None:
    """As in Confluent's registry: -1 becomes a number when the schema is registered or looked up."""
    registry.do(service.put_config, None, {"compatibility": "NONE"})
    registry.register("inner", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A"]}))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": "x.E"}]})
    newest = Reference(name="x.E", subject="inner", version=-1)
    given = Registration(schema=Schema(kind="AVRO", text=text, references=(newest,)))
    assert registry.register("outer", text, references=[newest]) == 2
    assert registry.register("outer", text, references=[newest]) == 2
    assert service.referred(registry.store, given.schema, "outer") == {"inner"}
    registry.register("inner", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A", "B"]}))
    assert code(service.lookup, registry.store, "outer", given, deleted=False) == 40403
    assert registry.register("outer", text, references=[newest]) == 4
    assert service.lookup(registry.store, "outer", given, deleted=False).version == 2
    shown = [v.schema.references[0].version for v in service.versions_of(registry.replayed(), "outer")]
    assert shown == [1, 2]
    registry.do(deletion.delete_subject, "outer", permanent=False)
    registry.do(deletion.delete_version, "inner", "2", permanent=False)
    assert registry.register("other", text, references=[newest]) == 2, "what is deleted is not the newest"
    registry.do(deletion.delete_subject, "other", permanent=False)
    registry.do(deletion.delete_subject, "inner", permanent=False)
    assert code(registry.register, "third", text, references=[newest]) == 42201


def test_softly_deleted_versions_may_be_listed_as_negative_numbers(registry: Registry) -> None:
    """As in Confluent's registry, which asks for a version that is not deleted, unless deleted=true."""
    registry.do(service.put_config, "a", {"compatibility": "NONE"})
    for kind in ("int", "long", "string"):
        registry.register("a", f'"{kind}"')
    registry.do(deletion.delete_version, "a", "2", permanent=False)
    store = registry.store
    assert service.numbers_of(store, "a") == [1, 3]
    assert service.numbers_of(store, "a", only=True) == [2]
    assert service.numbers_of(store, "a", negative=True) == [1, -2, 3]
    assert service.numbers_of(store, "a", only=True, negative=True) == [1, -2, 3]
    registry.do(deletion.delete_subject, "a", permanent=False)
    assert code(service.numbers_of, store, "a", negative=True) == 40401
    assert service.numbers_of(store, "a", deleted=True, negative=True) == [-1, -2, -3]


def test_protobuf_and_json_refer_to_others(registry: Registry) -> None:
    registry.register("common", 'syntax = "proto3"; package c; message C { int32 i = 1; }', "PROTOBUF")
    main = 'syntax = "proto3"; package m; import "common.proto"; message M { c.C c = 1; }'
    reference = Reference(name="common.proto", subject="common", version=1)
    assert registry.register("main", main, "PROTOBUF", references=[reference]) == 2
    assert code(registry.register, "main", main, "PROTOBUF") == 42201
    registry.register("id", '{"type":"integer"}', "JSON")
    of_json = Reference(name="id.json", subject="id", version=1)
    text = '{"type":"object","properties":{"id":{"$ref":"id.json"}}}'
    assert registry.register("thing", text, "JSON", references=[of_json]) == 4
    assert code(registry.register, "other", text, "JSON") == 42201


def test_modes(registry: Registry) -> None:
    registry.register("a", '"int"')
    registry.do(service.put_mode, "a", "READONLY", force=False)
    assert code(registry.register, "a", '"long"') == 42205
    assert registry.register("a", '"int"') == 1, "what is there is found"
    assert code(registry.do, deletion.delete_subject, "a", permanent=False) == 42205
    assert code(registry.do, service.put_mode, "a", "IMPORT", force=False) == 42205
    assert code(registry.do, service.put_mode, "a", "SOMETIMES", force=False) == 42204
    registry.do(service.put_mode, "b", "IMPORT", force=False)
    assert code(registry.register, "b", '"long"') == 42205
    assert registry.register("b", '"long"', id=77, version=5) == 77
    assert registry.register("b", '"string"', id=78, version=2) == 78
    assert code(registry.register, "b", '"double"', id=77) == 42205
    assert [(v.version, v.id) for v in service.versions_of(registry.store, "b")] == [(2, 78), (5, 77)]
    assert code(registry.register, "c", '"float"', id=5) == 42205
    registry.do(service.delete_mode, "b")
    assert registry.register("c", '"float"') == 79
    registry.do(service.put_mode, None, "READONLY_OVERRIDE", force=False)
    assert code(registry.register, "c", '"bytes"') == 42205


def test_contexts_have_ids_of_their_own(registry: Registry) -> None:
    assert registry.register("a", '"int"') == 1
    assert registry.register(":.x:a", '"long"') == 1
    assert sorted(registry.store.contexts) == [".", ".x"]
    assert service.schema_by_id(registry.store, 1, None).text == '"int"'
    assert service.schema_by_id(registry.store, 1, ":.x:").text == '"long"'
    registry.do(service.put_config, ":.x:", {"compatibility": "NONE"})
    assert registry.register(":.x:a", '"string"') == 2
    assert checked(":.:a") == "a"
    assert code(checked, ":.x") == 42208


def test_an_id_is_meant_in_the_context_that_has_its_subject(registry: Registry) -> None:
    registry.register("a", '"int"')
    for text in ('"long"', '"string"', '"bytes"'):
        registry.do(service.put_config, ":.x:", {"compatibility": "NONE"})
        registry.register(":.x:b", text)
    assert service.schema_by_id(registry.store, 1, "a").text == '"int"'
    assert service.schema_by_id(registry.store, 1, "b").text == '"long"', "b is in .x alone"
    assert service.schema_by_id(registry.store, 1, "c").text == '"int"', "no context has c: the default one"
    assert service.schema_by_id(registry.store, 3, "b").text == '"bytes"'
    assert [p.subject for p in service.places_of(registry.store, 1, "b", deleted=False)] == [":.x:b"]
    assert [p.subject for p in service.places_of(registry.store, 1, ":.x:", deleted=False)] == [":.x:b"]
    assert code(service.schema_by_id, registry.store, 3, None) == 40403, "without a subject: the default one"
    assert code(service.schema_by_id, registry.store, 3, "a") == 40403
    assert code(service.places_of, registry.store, 3, None, deleted=True) == 40403


def test_normalization_and_aliases(registry: Registry) -> None:
    one = '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"int","x":1,"b":2}}]}'
    two = '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"int","b":2,"x":1}}]}'
    assert registry.register("a", one) == 1
    assert registry.register("a", two) == 2
    assert registry.register("n", one, normalize=True) == 2
    assert registry.register("n", two, normalize=True) == 2
    assert registry.register("j", '{"type":"object","title":"t"}', "JSON", normalize=True) == 3
    assert registry.register("j", '{"title":"t","type":"object"}', "JSON", normalize=True) == 3
    registry.do(service.put_config, "other", {"alias": "a"})
    assert service.version_of(registry.store, "other", "1").subject == "a"
    found = service.lookup(
        registry.store, "a", Registration(schema=Schema(kind="AVRO", text=two)), deleted=False
    )
    assert found.version == 2
    new = Registration(schema=Schema(kind="AVRO", text='"bytes"'))
    with pytest.raises(RegistryError):
        service.lookup(registry.store, "a", new, deleted=False)


CONFLUENTS = [
    (b'{"keytype":"NOOP","magic":0}', None),
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
    (
        b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
        b'{"subject":"orders-value","version":1,"id":1,"md5":"eB+2bGXVC8L8ZUzFwv7Azw==","schema":"\\"int\\"","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
        (b'{"subject":"j","version":1,"id":2,"guid":"x","schemaType":"JSON","references":[],"metadata":null,"ruleSet":null,'
        b'"schema":"{}","deleted":false,"ts":1}'),
    ),
    (b'{"keytype":"MODE","subject":"j","magic":0}', b'{"mode":"READONLY"}'),
    (b'{"keytype":"DELETE_SUBJECT","subject":"j","magic":0}', b'{"subject":"j","version":1}'),
    (b'{"keytype":"SCHEMA","subject":"k","version":1,"magic":1}', b'{"subject":"k","version":1,"id":9,"schema":"\\"long\\""}'),
    (b'{"keytype":"SCHEMA","subject":"k","version":1,"magic":1}', None),
]  # fmt: skip


def test_a_topic_of_confluents_is_taken_over() -> None:
    store = Store()
    for key, value in CONFLUENTS:
        change = decode(key, value)
        if change is not None:
            store.apply(change)
            assert encode(change)[0] == key, "compaction compares bytes"
    assert list(store.listed("")) == ["orders-value"]
    assert list(store.listed("", deleted=True)) == ["j", "orders-value"]
    assert store.configs[None] == {"compatibilityLevel": "FULL"}
    written = encode(decode(*CONFLUENTS[2]))  # type: ignore[arg-type]
    assert written[1] == b'{"subject":"orders-value","version":1,"id":1,"schema":"\\"int\\"","deleted":false}'


@pytest.mark.parametrize(
    ("key", "value"), [(b"x", b"{}"), (b"{}", b"{}"), (b'{"keytype":"OTHER"}', b"{}"), (None, b"")]
)
def test_a_record_of_others_is_told(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"keytype|no record"):
        decode(key, value)


def test_avro_is_shown_with_its_references(registry: Registry) -> None:
    registry.register("inner", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A"]}))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": "x.E"} for n in "ab"]})
    references = [Reference(name="x.E", subject="inner", version=1)]
    registry.register("outer", text, references=references)
    version = service.version_of(registry.store, "outer", "1")
    assert json.loads(version.schema.text)["fields"][0]["type"] == "x.E"
    shown = json.loads(resolved(service.parsed(registry.store, version.schema, "outer")[1]))
    assert shown["fields"][0]["type"] == {"type": "enum", "name": "E", "namespace": "x", "symbols": ["A"]}
    assert shown["fields"][1]["type"] == "x.E"


def test_a_subject_whose_versions_refer_to_each_other_can_be_deleted(registry: Registry) -> None:
    registry.do(service.put_config, "s", {"compatibility": "NONE"})
    registry.register("s", json.dumps({"type": "enum", "name": "x.E", "symbols": ["A"]}))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": "x.E"}]})
    registry.register("s", text, references=[Reference(name="x.E", subject="s", version=1)])
    assert code(registry.do, deletion.delete_version, "s", "1", permanent=False) == 42206
    assert registry.do(deletion.delete_subject, "s", permanent=False) == [1, 2]
    assert registry.do(deletion.delete_subject, "s", permanent=True) == [1, 2]
    assert registry.replayed().referrers.get(("s", 1), set()) == set()


def test_level_and_mode_go_with_the_last_version(registry: Registry) -> None:
    """As in Confluent's registry, whose topic has no records for that when a subject is softly deleted."""
    registry.register("a", '"int"')
    registry.do(service.put_config, "a", {"compatibility": "FULL"})
    registry.do(service.put_mode, "a", "READWRITE", force=False)
    registry.do(deletion.delete_subject, "a", permanent=False)
    assert registry.replayed().configs == {"a": {"compatibilityLevel": "FULL"}}
    registry.register("a", '"long"')
    assert service.config_of(registry.store, "a")["compatibilityLevel"] == "FULL"
    registry.do(deletion.delete_version, "a", "1", permanent=True)
    assert registry.store.modes == {"a": "READWRITE"}
    registry.do(deletion.delete_version, "a", "2", permanent=False)
    registry.do(deletion.delete_version, "a", "2", permanent=True)
    assert (registry.replayed().configs, registry.replayed().modes) == ({}, {})


def test_levels_and_modes_hold_in_a_context_or_in_all(registry: Registry) -> None:
    """As in Confluent's registry: without a subject they are those of the default context."""
    levels = {None: "NONE", ":.__GLOBAL:": "FULL", ":.x:": "FORWARD"}
    for place, level in levels.items():
        registry.do(service.put_config, place, {"compatibility": level})
    of = {
        s: service.config_of(registry.store, s)["compatibilityLevel"] for s in ("a", ":.x:a", ":.y:a", None)
    }
    assert of == {"a": "NONE", ":.x:a": "FORWARD", ":.y:a": "FULL", None: "NONE"}
    registry.do(service.put_mode, None, "READONLY", force=False)
    assert [service.mode_of(registry.store, s) for s in ("a", ":.x:a")] == ["READONLY", "READWRITE"]
    registry.do(service.put_mode, ":.__GLOBAL:", "READONLY", force=False)
    assert service.mode_of(registry.store, ":.x:a") == "READONLY"
    assert code(checked, ":.__GLOBAL:a") == code(checked, "__GLOBAL") == 42208


RULES = {"domainRules": [{"name": "encrypt", "kind": "TRANSFORM", "type": "ENCRYPT"}]}
OWNER = {"properties": {"owner": "me", "confluent:version": "1"}}


def test_metadata_and_rules_are_handed_on(registry: Registry) -> None:
    """A producer that registers its schema without rules does not take them away."""
    first = Registration(schema=Schema(kind="AVRO", text=record("x"), metadata=OWNER, rules=RULES))
    assert registry.do(service.register, "a", first)["id"] == 1
    assert registry.register("a", record("x")) == 1
    assert [v.version for v in registry.store.versions("a")] == [1]
    plain = Registration(schema=Schema(kind="AVRO", text=record("x")))
    assert service.lookup(registry.store, "a", plain, deleted=False).version == 1
    registry.do(service.put_config, "a", {"compatibility": "NONE"})
    assert registry.register("a", record("x", "y")) == 2
    second = service.version_of(registry.store, "a", "latest").schema
    assert second.rules == RULES
    assert second.metadata == {"properties": {"owner": "me", "confluent:version": "2"}}
    assert registry.register("a", record("x", "y")) == 2
    found = service.latest_with(registry.store, "a", {"owner": "me", "confluent:version": "1"}, deleted=False)
    assert found.version == 1
    assert code(service.latest_with, registry.store, "a", {"owner": "you"}, deleted=False) == 40403


def test_metadata_may_be_sent_without_a_schema(registry: Registry) -> None:
    more = Registration(schema=Schema(kind="AVRO", text="", metadata={"tags": {"x": ["PII"]}}))
    assert code(registry.do, service.register, "a", more) == 42201
    registry.register("a", record("x"))
    registry.do(
        service.put_config,
        "a",
        {"overrideMetadata": {"properties": {"team": "red"}}, "defaultRuleSet": RULES},
    )
    registry.do(service.register, "a", more)
    latest = service.version_of(registry.store, "a", "latest")
    assert (latest.version, latest.schema.text) == (
        2,
        service.version_of(registry.store, "a", "1").schema.text,
    )
    assert latest.schema.metadata == {"tags": {"x": ["PII"]}, "properties": {"team": "red"}}
    assert latest.schema.rules == RULES


def test_an_import_may_be_done_again(registry: Registry) -> None:
    registry.do(service.put_mode, None, "IMPORT", force=False)
    for _ in range(2):
        assert registry.register("a", '"int"', id=7) == 7
        assert registry.register("a", '"long"', id=9, version=4) == 9
    assert [(v.version, v.id) for v in registry.store.versions("a")] == [(1, 7), (4, 9)]
    registry.do(service.put_mode, None, "READWRITE", force=False)
    assert registry.register("a", '"int"', id=7) == 7, "nothing is written"
    assert code(registry.register, "a", '"int"', id=8) == 42205


def test_an_alias_stays_in_its_context(registry: Registry) -> None:
    registry.register("real", '"int"')
    registry.register(":.x:real", '"long"')
    registry.do(service.put_config, ":.x:other", {"alias": "real"})
    assert service.version_of(registry.store, ":.x:other", "1").schema.text == '"long"'


def test_what_an_earlier_registry_took_does_not_stop_a_subject(registry: Registry) -> None:
    """Confluent's took defaults that do not fit, and JSON Schemas that break their draft."""
    bad = '{"type":"record","name":"R","namespace":"a-b","fields":[{"name":"x","type":"int","default":"0"}]}'
    old = '{"type":"object","properties":{"a":{"type":"string","minLength":"1"}},"required":[]}'
    for number, (subject, text, kind) in enumerate((("a", bad, "AVRO"), ("j", old, "JSON")), 1):
        version = Version(subject=subject, version=1, id=number, schema=Schema(kind=kind, text=text))
        registry.take(SchemaRecord(subject=subject, version=1, value=version))
    assert code(registry.register, "b", bad) == 42201
    assert code(registry.register, "k", old, "JSON") == 42201
    assert registry.register("a", bad) == 1
    assert registry.register("a", bad.replace('"0"', "0").replace("a-b", "ab")) == 3
    assert registry.register("j", '{"type":"object","properties":{"a":{"type":"string"}}}', "JSON") == 4
