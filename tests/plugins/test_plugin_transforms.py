"""Transforms and predicates as plugins: found by their names, given lists, and never changing what they get."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support.transforms import record_of, written

from klamm_plugins import builtin
from klamm_plugins.discovery import PluginManager, PluginType
from klamm_plugins.errors import DataError, PluginNotFoundError
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.predicates import TopicNameMatches
from klamm_plugins.records import Headers, SourceRecord
from klamm_plugins.transform import Predicate, Transformation
from klamm_plugins.transforms.all import TRANSFORMS
from klamm_plugins.transforms.cast import CastKey, CastValue
from klamm_plugins.transforms.debezium.scripting import FilterByCondition
from klamm_plugins.transforms.filter import Filter

KAFKA = "org.apache.kafka.connect.transforms."


@pytest.fixture
def manager():
    manager = PluginManager()
    manager.register(builtin, "klamm-converters")
    return manager


@pytest.mark.parametrize(
    "name",
    [f"{KAFKA}Cast$Value", "Cast$Value", "CastValue", "klamm_plugins.transforms.cast.CastValue", "klamm_plugins.transforms.cast:CastValue"],
)  # fmt: skip
def test_names_of_a_transform(manager, name):
    assert manager.find_transformation(name) is CastValue


def test_key_and_value_are_two(manager):
    assert manager.find_transformation(f"{KAFKA}Cast$Key") is CastKey
    assert manager.find_transformation("Filter") is Filter
    for name in ("io.debezium.transforms.Filter", "FilterByCondition"):
        assert manager.find_transformation(name) is FilterByCondition
    with pytest.raises(PluginNotFoundError, match="could not be found"):
        manager.find_transformation(f"{KAFKA}Cast")
    with pytest.raises(PluginNotFoundError, match="could not be found"):
        manager.find_transformation("TopicNameMatches")


@pytest.mark.parametrize("name", [f"{KAFKA}predicates.TopicNameMatches", "TopicNameMatches"])
def test_names_of_a_predicate(manager, name):
    assert manager.find_predicate(name) is TopicNameMatches


def test_a_strangers_transform_and_predicate_are_found(manager):
    class Upper(Transformation):
        def apply(self, record):
            made = record.copy()
            made.value = record.value.upper()
            return made

    class IsShort(Predicate):
        def test(self, record):
            return len(record.value) < 3

    package = SimpleNamespace(
        register_transforms=hookimpl(lambda: [Upper]), register_predicates=hookimpl(lambda: [IsShort])
    )
    manager.register(package, "acme")
    assert not manager.broken
    assert manager.find_transformation("Upper") is Upper
    assert manager.find_predicate("IsShort") is IsShort
    kinds = {d.class_name: d.type for d in manager.plugins() if d.location == "acme"}
    assert sorted(kinds.values()) == [PluginType.PREDICATE, PluginType.TRANSFORMATION]
    records = [SourceRecord({}, {}, "t", value=v) for v in ("a", "long")]
    assert [r.value for r in Upper().apply_many(records)] == ["A", "LONG"]
    assert IsShort().test_many(records) == [True, False]
    assert [r.value for r in records] == ["a", "long"]


def test_a_class_of_no_kind_breaks_only_its_package(manager):
    manager.register(SimpleNamespace(register_transforms=hookimpl(lambda: [int])), "acme")
    (broken,) = manager.broken
    assert "is not a connector, converter, transform, predicate or mirror plugin class" in broken.error
    assert manager.find_transformation("Filter") is Filter


def test_every_transform_of_kafka_is_there():
    both = ("Cast", "ExtractField", "Flatten", "HeaderFrom", "HoistField", "InsertField", "MaskField", "ReplaceField",
            "SetSchemaMetadata", "TimestampConverter")  # fmt: skip
    alone = ("DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TimestampRouter", "ValueToKey")
    names = {f"{KAFKA}{name}${part}" for name in both for part in ("Key", "Value")} | {
        KAFKA + name for name in alone
    }
    assert {
        cls.kafka_name for cls in TRANSFORMS if cls.kafka_name and cls.kafka_name.startswith(KAFKA)
    } == names
    assert len(both) + len(alone) == 16


@pytest.mark.usefixtures("processes")
def test_the_base_classes_do_not_bring_all_transforms_along():
    code = "import klamm_plugins.transform, sys; print([m for m in sys.modules if m.startswith('klamm_plugins.transforms')])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = {
    "Cast": {"spec": "a:string,b:int8"},
    "ExtractField": {"field": "a"},
    "HeaderFrom": {"fields": "a", "headers": "h", "operation": "move"},
    "HoistField": {"field": "x"},
    "InsertField": {"topic.field": "a", "static.field": "s", "static.value": "v"},
    "MaskField": {"fields": "a,b"},
    "ReplaceField": {"exclude": "a", "renames": "b:z"},
    "SetSchemaMetadata": {"schema.name": "n"},
    "TimestampConverter": {"field": "a", "target.type": "unix", "format": "yyyy"},
    "DropHeaders": {"headers": "h"},
    "InsertHeader": {"header": "h", "value.literal": "5"},
    "RegexRouter": {"regex": "(.*)", "replacement": "x-$1"},
    "ValueToKey": {"fields": "a,b"},
    "io.debezium.transforms.ByLogicalTableRouter": {"topic.regex": "(.*)", "topic.replacement": "x-$1"},
    "io.debezium.transforms.ContentBasedRouter": {"language": "jsr223.groovy", "topic.expression": "value.a"},
    "io.debezium.transforms.Filter": {"language": "jsr223.graal.js", "condition": "value.a > 1"},
}


def configured(cls):
    transform = cls()
    name = (cls.kafka_name or cls.__name__).removeprefix(KAFKA).partition("$")[0]
    config = CONFIGS.get(name, {})
    transform.configure(cls.config().parse(config))
    return transform


@settings(max_examples=40, deadline=None)
@given(values=st.lists(VALUES, max_size=4), keys=st.lists(VALUES, min_size=4, max_size=4))
def test_a_list_is_as_its_records_and_what_comes_in_stays(values, keys):
    """`apply_many` and `apply` agree, records are not changed, and what does not fit is a DataError."""
    for cls in TRANSFORMS:
        note(cls.__name__)
        compare(configured(cls), values, keys)


def compare(transform, values, keys):
    def made():
        return [
            SourceRecord({}, {}, "t", 1, None, k, None, v, 5, Headers.of(("h", 1), ("i", 2)))
            for k, v in zip(keys, values, strict=False)
        ]

    records = made()
    one_by_one = []
    for record in records:
        try:
            one_by_one.append(transform.apply(record))
        except DataError:
            one_by_one.append(DataError)
    try:
        together = transform.apply_many(records)
    except DataError:
        assert DataError in one_by_one
    else:
        assert together == one_by_one
    assert records == made()


def test_records_of_many_schemas_in_one_list():
    """Each has the plan of its own schema, whatever came before it."""
    transform = configured(CastValue)
    kinds = ["int64", "int32", "string", "int64", "double"]
    data = [
        {"schema": {"type": "struct", "optional": False, "fields": [{"field": "a", "type": k, "optional": False}]},
         "payload": {"a": v}}
        for k, v in zip(kinds, [1, 2, "3", 4, 5.5], strict=True)
    ]  # fmt: skip
    made = transform.apply_many([record_of({"topic": "t", "value": d}) for d in data])
    payloads = [written(r)["value"]["payload"]["a"] for r in made]
    assert payloads == ["1", "2", "3", "4", "5.5"]


def test_a_struct_of_another_schema_than_its_record_is_refused():
    transform = configured(CastValue)
    one, other = (
        record_of(
            {"topic": "t", "value": {"schema": {"type": "struct", "optional": False, "fields": [
                {"field": name, "type": "int32", "optional": False}]}, "payload": {name: 1}}}
        )
        for name in "ab"
    )  # fmt: skip
    one.value = other.value
    with pytest.raises(DataError, match="not those of the record's schema"):
        transform.apply(one)
