"""Schemas beside the records: subjects follow their topics, with ids kept, and readers at the target understand the copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic
from support.mirroring import Running, produce, props, read
from support.schema_registry import SchemaRegistry

from klamm_base.configdef import ConfigDef
from klamm_base.errors import ConfigError
from klamm_mirror.schemas.config import KEEP, SchemaSettings, check_registries
from klamm_mirror.schemas.copier import ConflictError, SchemaCopier
from klamm_mirror.schemas.names import SubjectNames
from klamm_mirror.schemas.sync import SchemaSync
from klamm_mirror.source.config import config_def
from klamm_mirror.upkeep import shown
from klamm_plugins.converters.registry import (
    Reference,
    RegisteredSchema,
    RegistryClient,
    RegistryError,
    client_config,
)
from klamm_plugins.converters.registry_admin import RegistryAdmin
from klamm_plugins.errors import RetriableError

TRANSLATE = "translate"


@pytest.fixture
def registries() -> Iterator[tuple[SchemaRegistry, SchemaRegistry]]:
    """Yields two registries whose ids differ."""
    with SchemaRegistry(first_id=101) as a, SchemaRegistry() as b:
        yield a, b


def admin(registry: SchemaRegistry) -> RegistryAdmin:
    parsed = client_config(ConfigDef()).parse({"schema.registry.url": registry.url})
    return RegistryAdmin(RegistryClient.of(parsed))


def record(name: str, *fields: str, type: str = "int") -> RegisteredSchema:
    text = {"type": "record", "name": name, "fields": [{"name": f, "type": type} for f in fields]}
    return RegisteredSchema(0, "AVRO", json.dumps(text))


NAMES = SubjectNames(
    lambda subject: subject != "secret", lambda topic: topic.startswith("orders"), "A.{}".format
)


def settings_of(a: SchemaRegistry, b: SchemaRegistry, **more: Any) -> SchemaSettings:
    source, target = (client_config(ConfigDef()).parse({"schema.registry.url": r.url}) for r in (a, b))
    plugins: Any = None  # a test's names ask none
    return SchemaSettings(clients=(source, target), names=NAMES, plugins=plugins, **more)


def copier(a: SchemaRegistry, b: SchemaRegistry, ids: str = KEEP) -> SchemaCopier:
    return SchemaCopier(admin(a), admin(b), NAMES, ids)


# ---- names


@pytest.mark.parametrize(
    ("subject", "remote"),
    [
        ("orders-value", "A.orders-value"),
        ("orders-eu-key", "A.orders-eu-key"),
        ("orders-com.acme.Order", "A.orders-com.acme.Order"),
        (":.staging:orders-value", ":.staging:A.orders-value"),
        ("com.acme.Order", "com.acme.Order"),
        ("payments-com.acme.Paid", "payments-com.acme.Paid"),
    ],
)
def test_subjects_follow_their_topics(subject, remote):
    assert NAMES.selects(subject)
    assert NAMES.remote(subject) == remote


@pytest.mark.parametrize("subject", ["payments-value", "B.orders-key", ":.staging:payments-key", "secret"])
def test_subjects_of_topics_that_are_not_mirrored_are_left_out(subject):
    assert not NAMES.selects(subject)


# ---- copies


@pytest.mark.parametrize("ids", [KEEP, TRANSLATE])
def test_versions_references_levels_and_modes_are_copied(registries, ids):
    a, b = registries
    at_a = admin(a)
    at_a.register("com.acme.Customer", record("Customer", "id"), {})
    at_a.register("orders-value", record("Order", "a"), {})
    at_a.register("orders-value", record("Order", "a", "b"), {"metadata": {"properties": {"owner": "ann"}}})
    outer = json.dumps({"type": "record", "name": "E", "fields": [{"name": "c", "type": "Customer"}]})
    customer = (Reference("Customer", "com.acme.Customer", 1),)
    at_a.register("orders-eu-value", RegisteredSchema(0, "AVRO", outer, customer), {})
    key = 'syntax = "proto3"; message K { int32 a = 1; }'
    at_a.register("orders-key", RegisteredSchema(0, "PROTOBUF", key), {})
    at_a.set_level("orders-value", "FULL")
    at_a.set_mode("orders-key", "READONLY")
    a.deleted.add(("orders-value", 1))
    copies = copier(a, b, ids)
    subjects = ["com.acme.Customer", "orders-eu-value", "orders-key", "orders-value"]
    assert copies.subjects() == subjects
    assert [len(copies.missing(s)) for s in subjects] == [1, 2, 1, 1], "with what they refer to"
    assert not b.subjects, "a plan writes nothing"
    # The subject that refers to another one comes first, and brings it.
    made = [copies.copy(s) for s in subjects[1:] + subjects[:1]]
    assert made == [2, 1, 1, 0]
    assert [copies.sync_settings(s) for s in subjects] == [False, False, True, True]
    again = copier(a, b, ids)
    assert [again.copy(s) for s in subjects] == [0, 0, 0, 0]
    assert [again.sync_settings(s) for s in subjects] == [False] * 4
    at_b = admin(b)
    assert at_b.subjects() == ["A.orders-eu-value", "A.orders-key", "A.orders-value", "com.acme.Customer"]
    order = at_b.version("A.orders-value", 2 if ids == KEEP else 1)
    assert order is not None
    assert order.contract == {"metadata": {"properties": {"owner": "ann"}}}
    assert at_b.version("A.orders-eu-value", 1).schema.references == customer  # type: ignore[union-attr]
    assert b.levels == {None: "BACKWARD", "A.orders-value": "FULL"}
    assert b.modes == {None: "READWRITE", "A.orders-key": "READONLY"}
    ids_of = {c.source.schema.id: c.target.schema.id for c in copies.copied.values()}
    assert set(ids_of) == {101, 103, 104, 105}
    if ids == KEEP:
        assert all(one == other for one, other in ids_of.items())
    else:
        assert sorted(ids_of.values()) == [1, 2, 3, 4]


def test_a_level_that_a_killed_mirror_has_left_is_taken_away(registries):
    a, b = registries
    admin(a).register("orders-value", record("Order", "a"), {})
    b.levels["A.orders-value"] = "NONE"
    copies = copier(a, b)
    copies.copy("orders-value")
    assert copies.sync_settings("orders-value")
    assert b.levels == {None: "BACKWARD"}
    b.levels["A.orders-value"] = "FULL"
    assert not copies.sync_settings("orders-value"), "somebody wants it so"


def test_a_registry_with_another_level_gives_way_for_copied_subjects_only(registries):
    a, b = registries
    a.levels[None] = "NONE"
    admin(a).register("orders-value", record("Order", "a"), {})
    copies = copier(a, b)
    copies.copy("orders-value")
    assert copies.sync_settings("orders-value")
    assert b.levels == {None: "BACKWARD", "A.orders-value": "NONE"}


def test_an_id_that_another_schema_has_is_a_conflict_and_nothing_is_written(registries):
    a, b = registries
    b.modes[None] = "IMPORT"
    taken = record("Taken", "x")
    admin(b).import_version("mine-value", 1, RegisteredSchema(101, "AVRO", taken.text), {})
    admin(a).register("orders-value", record("Order", "a"), {})
    admin(a).register("orders-key", record("Key", "k"), {})
    copies = copier(a, b)
    with pytest.raises(ConflictError, match=r"orders-value version 1: id 101 is another schema at http://"):
        copies.copy("orders-value")
    assert copies.copy("orders-key") == 1
    assert list(b.subjects) == ["mine-value", "A.orders-key"]


def test_versions_after_a_conflict_are_copied(registries):
    a, b = registries
    for fields in ("a", "ab", "abc"):
        admin(a).register("orders-value", record("Order", *fields), {})
    admin(b).register("A.orders-value", record("Mine", "z"), {})
    copies = copier(a, b)
    with pytest.raises(ConflictError, match="version 1 is at"):
        copies.copy("orders-value")
    assert copies.registered == 2
    assert b.subjects["A.orders-value"] == {1: 1, 2: 102, 3: 103}


def test_a_user_who_may_not_ask_is_no_conflict(registries):
    a, b = registries
    admin(a).register("orders-value", record("Order", "a"), {})
    b._user = "ann:secret"
    sync = SchemaSync(settings_of(a, b))
    with pytest.raises(RegistryError, match="Unauthorized"):
        sync.look()
    assert not sync.figures()["conflicts"]


def test_a_version_that_is_another_schema_is_a_conflict_and_stays(registries):
    a, b = registries
    admin(a).register("orders-value", record("Order", "a"), {})
    admin(b).register("A.orders-value", record("Mine", "z"), {})
    with pytest.raises(
        ConflictError, match=r"A\.orders-value version 1 is at .* id 1, the source's has id 101"
    ):
        copier(a, b).copy("orders-value")
    assert b.subjects == {"A.orders-value": {1: 1}}


def test_a_read_only_registry_is_left_alone(registries):
    a, b = registries
    b.modes[None] = "READONLY"
    admin(a).register("orders-value", record("Order", "a"), {})
    with pytest.raises(ConflictError, match="is READONLY"):
        copier(a, b).copy("orders-value")


def test_versions_that_the_level_forbids_today_are_copied_all_the_same(registries):
    a, b = registries
    for name in ("One", "Two"):
        admin(a).register("orders-value", record(name, "a"), {})
    b.incompatible.add("A.orders-value")
    copies = copier(a, b, TRANSLATE)
    assert copies.copy("orders-value") == 2
    assert sorted(b.subjects["A.orders-value"]) == [1, 2]
    assert b.levels == {None: "BACKWARD"}


@pytest.mark.parametrize("own", [None, "FULL"])
@pytest.mark.parametrize("late", [False, True])
def test_two_tasks_that_loosen_a_level_leave_it_as_it_was(registries, own, late):
    a, b = registries
    for name in ("One", "Two"):
        admin(a).register("orders-value", record(name, "a"), {})
    one = admin(b)
    one.register("A.orders-value", record("One", "a"), {})
    one.set_level("A.orders-value", own)
    levels = dict(b.levels)
    b.incompatible.add("A.orders-value")

    class Two(RegistryAdmin):
        """A second task, which is refused before the first one loosens the level. `late`: and once more after that."""

        def register(self, *args: Any) -> int:
            loosened = b.levels.get("A.orders-value") == "NONE"
            if late and loosened:
                one.set_level("A.orders-value", own)
            try:
                return super().register(*args)
            finally:
                one.set_level("A.orders-value", own if loosened else "NONE")

    copies = SchemaCopier(admin(a), Two(one._client), NAMES, TRANSLATE)
    if late:
        with pytest.raises(RetriableError, match="level was changed meanwhile"):
            copies.copy("orders-value")
    else:
        assert copies.copy("orders-value") == 1
    assert b.levels == levels


def test_a_schema_that_is_refused_at_any_level_stays_refused(registries):
    a, b = registries
    admin(a).register("orders-value", record("Order", "a"), {})
    b.refuse = "never"
    with pytest.raises(RegistryError, match="never"):
        copier(a, b, TRANSLATE).copy("orders-value")
    assert b.levels == {None: "BACKWARD"}


# ---- settings


def test_a_flow_with_one_registry_is_refused(registries):
    def check(**more: str) -> None:
        config = props("a:1", "b:1", sync__schemas__enabled="true", **more)
        check_registries(config, config_def().parse(config))

    urls = {
        "source__cluster__schema__registry__url": "http://a",
        "target__cluster__schema__registry__url": "http://b",
    }
    check(**urls)
    with pytest.raises(ConfigError, match=r"needs target\.cluster\.schema\.registry\.url: .* cluster B"):
        check(source__cluster__schema__registry__url="http://a")
    with pytest.raises(ConfigError, match="address of the source's registry"):
        check(**{**urls, "target__cluster__schema__registry__url": "http://a"})
    with pytest.raises(ConfigError, match=r"source\.cluster.*must begin with http"):
        check(**{**urls, "source__cluster__schema__registry__url": "a:80"})


# ---- from end to end


def order_schema(*fields: str) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": f, "type": "int", "default": 0} for f in fields],
        }
    )


def written(registry: SchemaRegistry, topic: str, schema: str, value: dict[str, int]) -> bytes:
    with SchemaRegistryClient({"url": registry.url}) as client:
        made = AvroSerializer(client, schema)(value, SerializationContext(topic, MessageField.VALUE))
    assert made is not None
    return made


def understood(registry: SchemaRegistry, topic: str, data: bytes | None) -> object:
    with SchemaRegistryClient({"url": registry.url}) as client:
        return AvroDeserializer(client)(data or b"", SerializationContext(topic, MessageField.VALUE))


def config_of(
    a: SchemaRegistry, b: SchemaRegistry, source, target, topic: str, **more: str
) -> dict[str, str]:
    return props(
        source.bootstrap, target.bootstrap, topics=topic, sync__schemas__enabled="true",
        sync__schemas__interval__seconds="1", source__cluster__schema__registry__url=a.url,
        target__cluster__schema__registry__url=b.url, **more,
    )  # fmt: skip


def test_readers_at_the_target_find_schemas_under_the_same_ids(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    produce(source.bootstrap, topic, [(None, written(a, topic, order_schema("a"), {"a": 1}), None, 1000)])
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: mirror.details().get("schemas", {}).get("synced_ms"), "the first pass")
        later = written(a, topic, order_schema("a", "b"), {"a": 2, "b": 3})
        produce(source.bootstrap, topic, [(None, later, None, 1000)])
        mirror.until(lambda: mirror.details()["schemas"]["registered"] == 2, "the second version")
        rows = read(target.bootstrap, f"A.{topic}", 2)
        measured = mirror.contexts[0]
        mirror.until(lambda: any("schemas_age_seconds" in t.columns for t in measured.tables), "figures")
    assert [understood(b, f"A.{topic}", value) for _, value, _, _ in rows] == [{"a": 1}, {"a": 2, "b": 3}]
    assert b.subjects == {f"A.{topic}-value": {1: 101, 2: 102}}
    assert rows[1][1] == later
    details = mirror.details()["schemas"]
    assert (details["subjects"], details["conflicts"]) == (1, 0)


@given(st.dictionaries(st.text(max_size=40), st.text(max_size=1000), max_size=50))
def test_reasons_fit_into_a_status(reasons):
    found = shown(reasons)
    assert bool(found) == bool(reasons)
    assert all(len(why) <= 220 and reasons[name][:219] == why[:219] for name, why in found.items())
    assert len(found) <= 1 or len(json.dumps(found)) <= 500
