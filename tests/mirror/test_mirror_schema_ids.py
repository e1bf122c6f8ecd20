"""Ids of schemas that are translated in records: prefixes and headers, keys and values, and what is no id."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from support.broker import new_topic
from support.mirroring import Running, produce, props, read, rows
from support.schema_registry import SchemaRegistry

from klamm_kafka.wire.batch import Record
from klamm_mirror.schemas.prefix import SchemaId, translate
from klamm_mirror.schemas.translation import RefusedError, Translation
from klamm_mirror.source.config import INDEX, parse
from klamm_mirror.source.upkeep import upkeep_of
from klamm_plugins.converters.registry import RegisteredSchema
from klamm_plugins.discovery import PluginManager
from klamm_plugins.errors import RetriableError
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.mirror import TopicFilter

from .test_mirror_schemas import (
    admin,
    order_schema,
    record,
    registries,
    settings_of,
    understood,
    written,
)

__all__ = ["registries"]


def head(id_: int) -> bytes:
    return struct.pack(">bI", 0, id_)


# ---- prefixes


def shifted(_: int, schema: SchemaId) -> int | str:
    return schema.name + 1 if isinstance(schema.name, int) else str(uuid.UUID(int=7))


@given(st.binary(), st.integers(1, 2**31), st.sampled_from(["key", "value"]))
def test_only_the_id_changes_whatever_follows(rest, id_, part):
    given_ = Record(5, 1000, **{part: head(id_) + rest})  # type: ignore[arg-type]
    [made] = translate([given_], shifted)
    assert made == given_._replace(**{part: head(id_ + 1) + rest})


@given(st.binary(max_size=4) | st.binary().filter(lambda b: b[:1] != b"\0") | st.just(b"\0" * 8) | st.none())
def test_other_bytes_pass_in_the_same_list(data):
    given_ = [Record(5, 1000, data, data, [("h", b"x")])]
    assert translate(given_, shifted) is given_


def test_ids_and_guids_in_headers_are_translated_and_the_payload_is_left_alone():
    guid = uuid.UUID(int=99)
    headers = [
        ("__key_schema_id", b"\1" + guid.bytes + b"\x02\x00"),
        ("x", b"y"),
        ("__value_schema_id", head(4)),
    ]
    [made] = translate([Record(5, 1000, head(1), head(2), headers)], shifted)
    assert (made.key, made.value) == (head(1), head(2))
    assert made.headers == [
        ("__key_schema_id", b"\1" + uuid.UUID(int=7).bytes + b"\x02\x00"),
        ("x", b"y"),
        ("__value_schema_id", head(5)),
    ]


# ---- what an id means


def translation(a: SchemaRegistry, b: SchemaRegistry, **more: Any) -> Translation:
    """Returns a translation for which each look at the clock is a minute."""
    return Translation(settings_of(a, b, ids="translate", **more), clock=count(0, 60).__next__)


def found_later(it: Translation, topic: str, schema: SchemaId) -> int | str:
    """Returns what is found when the registry had time to catch up."""
    with pytest.raises(RetriableError, match="does not know yet what schema"):
        it.find(topic, schema)
    return it.find(topic, schema)


def value(id_: int) -> SchemaId:
    return SchemaId("value", id=id_)


def test_ids_are_translated_by_the_subjects_that_they_are_of(registries):
    a, b = registries
    order = admin(a).register("orders-value", record("Order", "a"), {})
    named = admin(a).register("orders-com.acme.Paid", record("Paid", "a"), {})
    shared = admin(a).register("com.acme.Shared", record("Shared", "a"), {})
    found = translation(a, b)
    assert [found.find("orders", value(i)) for i in (named, order)] == [1, 2]
    assert found.find("orders", value(shared)) == 3, "the topic's values have schemas"
    asked = len(a.requests)
    assert found.known("orders", value(order)) == 2
    assert len(a.requests) == asked
    assert sorted(b.subjects) == ["A.orders-com.acme.Paid", "A.orders-value", "com.acme.Shared"]


def test_bytes_of_a_topic_without_schemas_pass(registries, caplog):
    a, b = registries
    other = admin(a).register("orders-value", record("Order", "a"), {})
    found = translation(a, b)
    assert found_later(found, "orders-raw", value(77)) == 77
    assert "set sync.schemas.records=orders-raw-value; if not, schemas.exclude=" in caplog.text
    assert found.find("orders-raw", value(other)) == other, "an id of another topic's subject, by chance"
    admin(a).register("orders-raw-value", record("Order", "a"), {})
    assert found.find("orders-raw", value(other)) == 1, "nothing else is remembered"


def test_a_record_s_own_subject_needs_a_word(registries):
    a, b = registries
    id_ = admin(a).register("com.acme.Order", record("Order", "a"), {})
    with pytest.raises(
        RefusedError, match=r"com\.acme\.Order.*sync\.schemas\.records=orders-value.*schemas\.exclude"
    ):
        found_later(translation(a, b), "orders", value(id_))
    import re

    assert translation(a, b, records=re.compile("orders-value")).find("orders", value(id_)) == 1


def test_an_unknown_id_is_refused_unless_it_may_pass(registries):
    a, b = registries
    admin(a).register("orders-value", record("Order", "a"), {})
    with pytest.raises(
        RefusedError, match=r"schema 9 of the value is not at the registry of the source.*unknown\.ids=pass"
    ):
        found_later(translation(a, b), "orders", value(9))
    assert found_later(translation(a, b, passes_unknown=True), "orders", value(9)) == 9


def test_an_id_waits_for_a_registry_that_is_behind(registries):
    a, b = registries
    shared = admin(a).register("payments-value", record("Order", "a"), {})
    found = translation(a, b)
    with pytest.raises(RetriableError, match="does not know yet"):
        found.find("orders", value(shared))
    admin(a).register("orders-value", record("Order", "a"), {})
    assert found.find("orders", value(shared)) == 1


@pytest.mark.parametrize("answer", ["<html>404</html>", {"message": "no Route matched"}, [], 7])
@pytest.mark.parametrize("status", [404, 405])
def test_a_proxy_without_a_registry_decides_nothing(registries, status, answer):
    a, b = registries
    id_ = admin(a).register("orders-value", record("Order", "a"), {})
    found = translation(a, b)
    for registry in (a, b):
        registry.proxy = status, answer
        for _ in range(3):
            with pytest.raises(RetriableError, match=f"not available: http.*{status}"):
                found.find("orders", value(id_))
        registry.proxy = None
    assert found.find("orders", value(id_)) == 1


def test_a_registry_without_modes_may_say_so_plainly(registries):
    a, _ = registries
    a.proxy = 404, "Not Found"
    assert admin(a).mode("orders-value") is None
    assert admin(a).mode_in_force("orders-value") == "READWRITE"


def test_a_deleted_schema_is_copied_for_its_records_and_deleted_again(registries):
    a, b = registries
    id_ = admin(a).register("orders-value", record("Order", "a"), {})
    admin(a).register("orders-value", record("Order", "a", "b"), {})
    admin(a).delete_version("orders-value", 1)
    assert translation(a, b).find("orders", value(id_)) == 1
    assert translation(a, b).find("orders", value(id_)) == 1, "it is there, deleted"
    assert b.subjects["A.orders-value"] == {1: 1}
    assert b.deleted == {("A.orders-value", 1)}
    assert translation(a, b).find("orders", value(id_ + 1)) == 2


def test_guids_are_those_of_the_copy(registries):
    a, b = registries
    admin(a).register("orders-value", record("Inner", "a"), {})
    from klamm_plugins.converters.registry import Reference

    outer = json.dumps({"type": "record", "name": "E", "fields": [{"name": "c", "type": "Inner"}]})
    refers = RegisteredSchema(0, "AVRO", outer, (Reference("Inner", "orders-value", 1),))
    admin(a).register("orders-key", refers, {})
    there = admin(a).version("orders-key", 1)
    assert there is not None
    guid = translation(a, b).find("orders", SchemaId("key", guid=there.guid, sure=True))
    copy = admin(b).version("A.orders-key", 1)
    assert copy is not None
    assert guid == copy.guid != there.guid


# ---- from end to end


def config_of(
    a: SchemaRegistry, b: SchemaRegistry, source, target, topic: str, **more: str
) -> dict[str, str]:
    return props(
        source.bootstrap, target.bootstrap, topics=topic, sync__schemas__enabled="true", sync__schemas__ids="translate",
        source__cluster__schema__registry__url=a.url, target__cluster__schema__registry__url=b.url, **more,
    )  # fmt: skip


def with_header(registry: SchemaRegistry, topic: str, schema: str, row: dict[str, int]) -> Any:
    context = SerializationContext(topic, MessageField.VALUE, [])
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = AvroSerializer(
            client, schema, conf={"schema.id.serializer": header_schema_id_serializer}
        )
        return serializer(row, context), context.headers


def test_readers_at_the_target_find_schemas_under_ids_of_their_own(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    first = written(a, topic, order_schema("a"), {"a": 1})
    later, headers = with_header(a, topic, order_schema("a", "b"), {"a": 2_000_000, "b": 3_000_000})
    number = struct.pack(">q", 5)
    given_ = [(number, first, None, 1000), (None, later, headers, 1001), (b"k", None, None, 1002)]
    produce(source.bootstrap, topic, given_)
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: mirror.records == 3, "three records")
    found = read(target.bootstrap, f"A.{topic}", 3)
    assert [r[0] for r in found] == [number, None, b"k"]
    assert found[0][1] == head(1) + first[5:]
    assert understood(b, f"A.{topic}", found[0][1]) == {"a": 1}
    context = SerializationContext(f"A.{topic}", MessageField.VALUE, found[1][2])
    with SchemaRegistryClient({"url": b.url}) as client:
        assert AvroDeserializer(client)(found[1][1], context) == {"a": 2_000_000, "b": 3_000_000}
    assert found[2][1] is None
    assert list(b.subjects) == [f"A.{topic}-value"]


def test_a_topic_without_schemas_passes_raw(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    produce(source.bootstrap, topic, rows(500), **{"compression.type": "zstd"})
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: mirror.records == 500, "500 records")
        assert mirror.details()["batches_reencoded"] == 0
    assert read(target.bootstrap, f"A.{topic}", 500) == read(source.bootstrap, topic, 500)


@pytest.mark.parametrize("policy", ["fail", "record"])
def test_a_record_without_a_schema_is_a_gap(registries, source, target, policy):
    a, b = registries
    topic = new_topic(source)
    good = written(a, topic, order_schema("a"), {"a": 1})
    values = [good, good, head(4711) + b"x", good]
    produce(source.bootstrap, topic, [(None, v, None, 1000 + i) for i, v in enumerate(values)])
    config = config_of(a, b, source, target, topic, mirror__gap__policy=policy)
    with Running(config) as mirror:
        if policy == "record":
            mirror.until(lambda: mirror.records == 3, "the others")
            assert mirror.details()["gaps"]["latest"][0]["from"] == 2
            return
        mirror.until(lambda: mirror.details().get("stopped"), "the stop")
        stop = mirror.details()["stopped"][f"{topic}-0"]
        assert (stop["kind"], stop["from"], stop["to"]) == ("refused", 2, 3)
        assert "schema 4711 of the value" in stop["why"]
        assert len(read(target.bootstrap, f"A.{topic}", None)) == 2


def test_records_wait_for_a_registry_that_is_away(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    produce(source.bootstrap, topic, [(None, written(a, topic, order_schema("a"), {"a": 1}), None, 1000)])
    b.failures = 10_000
    with Running(config_of(a, b, source, target, topic)) as mirror:
        mirror.until(lambda: "not available" in str(mirror.details().get("why")), "the reason")
        assert not mirror.details().get("stopped")
        b.failures = 0
        mirror.until(lambda: mirror.records == 1, "the record")
    assert understood(b, f"A.{topic}", read(target.bootstrap, f"A.{topic}", 1)[0][1]) == {"a": 1}


class Counted(TopicFilter):
    """A filter of topics by a list; counts those that are open."""

    open: ClassVar[set[int]] = set()

    def configure(self, props: Mapping[str, Any]) -> None:
        self._topics = props["topics"].split(",")
        self.open.add(id(self))

    def should_replicate_topic(self, topic: str) -> bool:
        assert id(self) in self.open, "asked after its end"
        return topic in self._topics

    def close(self) -> None:
        self.open.remove(id(self))


@pytest.fixture
def counted(monkeypatch) -> None:
    manager = PluginManager()
    manager.register(SimpleNamespace(register_mirror_plugins=hookimpl(lambda: [Counted])), "counted")
    monkeypatch.setattr(PluginManager, "load", lambda: manager)


@pytest.mark.usefixtures("counted")
def test_records_of_a_topic_that_a_reload_adds_are_translated(registries, source, target):
    a, b = registries
    topics = [new_topic(source), new_topic(source)]
    for topic in topics:
        row = written(a, topic, order_schema(topic.replace("-", "_")), {})
        produce(source.bootstrap, topic, [(None, row, None, 1000)])
    config = config_of(a, b, source, target, topics[0], topic__filter__class="Counted")
    after = Running({**config, "topics": ",".join(topics)})
    [update] = after.connector.task_configs(1)
    after.connector.stop()
    with Running(config) as mirror:
        mirror.until(lambda: mirror.records == 1, "the first topic")
        mirror.contexts[0].update = update
        mirror.until(lambda: mirror.records == 2, "the added topic")
        assert not mirror.details().get("stopped")
    assert not Counted.open
    for topic in topics:
        [(_, value, _, _)] = read(target.bootstrap, f"A.{topic}", 1)
        assert set(understood(b, f"A.{topic}", value)) == {topic.replace("-", "_")}  # type: ignore[call-overload]


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("index", [0, 1])
def test_each_task_makes_the_plugins_that_it_closes(registries, index):
    config = props(
        "a:1", "b:1", sync__schemas__enabled="true", sync__schemas__ids="translate", topics="t", topic__filter__class="Counted",
        source__cluster__schema__registry__url=registries[0].url, target__cluster__schema__registry__url=registries[1].url,
    )  # fmt: skip
    settings = parse({**config, INDEX: str(index)})
    works = upkeep_of(settings)
    assert settings.translation is not None
    Translation(settings.translation).close()
    for work in works:
        work.stop()
    assert (len(works), Counted.open) == (1 - index, set())


def test_both_ways_each_record_has_the_ids_of_its_cluster(registries, source, target):
    a, b = registries
    topic = new_topic(source)
    new_topic(target, name=topic)
    ours, theirs = ((a, source), (b, target))
    for number, (registry, broker) in enumerate((ours, theirs)):
        written(registry, f"pad-{number}", order_schema("pad" * (number + 1)), {})
        value = written(registry, topic, order_schema("a"), {"a": number})
        produce(broker.bootstrap, topic, [(None, value, None, 1000)])
    there = config_of(a, b, source, target, topic)
    there["replication.policy.class"] = "IdentityReplicationPolicy"
    back = {**there, **config_of(b, a, target, source, topic)}
    back |= {"source.cluster.alias": "B", "target.cluster.alias": "A"}
    with Running(there) as flow, Running(back) as flow_back:
        for mirror in (flow, flow_back):
            mirror.until(lambda mirror=mirror: mirror.records == 1, "the other side's record")
        flow.until(lambda: flow.details().get("batches_of_target"), "its own record, left out")
    for registry, broker in (ours, theirs):
        found = [understood(registry, topic, value) for _, value, _, _ in read(broker.bootstrap, topic, None)]
        assert sorted(row["a"] for row in found) == [0, 1]  # type: ignore[index]
