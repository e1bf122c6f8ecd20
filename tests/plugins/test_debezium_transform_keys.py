"""Every key of Debezium's transforms is honoured, refused or warned of: the whole table, through a connector's validation."""

from __future__ import annotations

import pytest

from klamm.connect.child.stage_keys import further_keys, stage_answers
from klamm.connect.child.transform_chain import make_chain
from klamm_base.configdef import NO_DEFAULT, to_string
from klamm_base.errors import ConfigError
from klamm_plugins.discovery import PluginManager
from klamm_plugins.original_keys import Key, KeyTable, Verdict
from klamm_plugins.transform import Transformation
from klamm_plugins.transforms.all import TRANSFORMS

PLUGINS = PluginManager.load()
CLASSES = [cls for cls in TRANSFORMS if (cls.kafka_name or "").startswith("io.debezium.")]
CONFIGS = {
    "ByLogicalTableRouter": {"topic.regex": "a(.*)", "topic.replacement": "b"},
    "FilterByCondition": {"language": "jsr223.groovy", "condition": "value.op == 'u'"},
    "ContentBasedRouter": {"language": "jsr223.groovy", "topic.expression": "null"},
}
EMPTY = {"", "null"}


def config_of(cls: type[Transformation], **more: str) -> dict[str, str]:
    own = {"type": cls.kafka_name or "", **CONFIGS.get(cls.__name__, {}), **more}
    return {"transforms": "t", **{f"transforms.t.{key}": value for key, value in own.items()}}


def table(cls: type[Transformation]) -> KeyTable:
    assert isinstance(cls.original_keys, KeyTable)
    return cls.original_keys


def rows(verdict: Verdict) -> list[object]:
    return [
        pytest.param(cls, name, row, id=f"{cls.__name__}-{name}")
        for cls in CLASSES
        for name, row in table(cls).keys.items()
        if row.verdict is verdict
    ]


def errors(config: dict[str, str]) -> list[str]:
    (answer,) = stage_answers(PLUGINS, config).values()
    return [*answer["errors"], *(e for row in answer["rows"] for e in row["value"]["errors"])]


def test_all_five_have_tables_and_plain_configurations_are_fine() -> None:
    assert len(CLASSES) == 5
    for cls in CLASSES:
        assert errors(config_of(cls)) == []
        assert not further_keys(PLUGINS, config_of(cls)).warnings
        assert {*cls.config().names} <= table(cls).keys.keys(), "a key of ours that Debezium does not have"


@pytest.mark.parametrize(("cls", "name", "row"), rows(Verdict.HONOURED))
def test_what_is_honoured_is_defined(cls: type[Transformation], name: str, row: Key) -> None:
    assert name in cls.config()
    key = cls.config()[name]
    ours = "required" if key.default is NO_DEFAULT else to_string(key.default, key.type)
    same = ours == row.default or {ours or "", row.default} <= {*EMPTY, "required"}
    assert same or row.why, f"{name} is {ours} here and {row.default} there: the table must say why"


@pytest.mark.parametrize(("cls", "name", "row"), rows(Verdict.REFUSED))
def test_what_is_refused_is_an_error_and_starts_no_task(
    cls: type[Transformation], name: str, row: Key
) -> None:
    assert name not in cls.config()
    config = config_of(cls, **{name: "7"})
    said = f"{name}=7 cannot be used: {row.why}"
    assert errors(config) == [f"transforms.t.{said}"]
    assert "; " in row.why or "write " in row.why, "it must say what to do"
    with pytest.raises(ConfigError) as e:
        make_chain(PLUGINS, config)
    assert str(e.value) == f"transforms.t: {said}"
    for fine in row.fine:
        make_chain(PLUGINS, config_of(cls, **{name: fine})).close()
        assert errors(config_of(cls, **{name: fine})) == []
        assert f"transforms.t.{name}" in further_keys(PLUGINS, config_of(cls, **{name: fine})).taken


@pytest.mark.parametrize(("cls", "name", "row"), rows(Verdict.WARNED))
def test_what_has_no_effect_is_named(cls: type[Transformation], name: str, row: Key) -> None:
    assert name not in cls.config()
    config = config_of(cls, **{name: "7"})
    assert errors(config) == []
    assert further_keys(PLUGINS, config).warnings == {
        f"transforms.t.{name}": f"transforms.t.{name} has no effect: {row.why}"
    }


def test_a_warning_is_in_the_answer_once_and_a_fine_value_has_none() -> None:
    from klamm.connect.validation.warnings import Judged, config_warnings

    router = next(cls for cls in CLASSES if cls.__name__ == "EventRouter")
    config = config_of(
        router, **{"table.field.event.type": "kind", "tracing.operation.name": "debezium-read"}
    )
    judged = further_keys(PLUGINS, config)
    (answer,) = stage_answers(PLUGINS, config).values()
    known = {"transforms", "transforms.t.type", *(row["definition"]["name"] for row in answer["rows"])}
    own = Judged(warnings=judged.warnings, taken=judged.taken)
    said = config_warnings(config, known, own, kind="source", worker={}, worker_keys=())
    assert [text.partition(":")[0] for text in said] == ["transforms.t.table.field.event.type has no effect"]


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("ExtractNewRecordState", {"delete.tombstone.handling.mode": "gone"}, "must be one of drop, tombstone"),
        ("ExtractNewRecordState", {"delete.tombstone.handling.mode": "drop", "drop.tombstones": "true"}, "leave drop.tombstones out"),
        ("ExtractNewRecordState", {"add.fields": "a.b.c"}, "write FIELD or BLOCK.FIELD"),
        ("ByLogicalTableRouter", {"key.field.regex": "x"}, "must be non-empty if key.field.regex is set"),
        ("ByLogicalTableRouter", {"topic.replacement": "$7"}, "topic.replacement"),
        ("ByLogicalTableRouter", {"schema.name.adjustment.mode": "ascii"}, "must be one of none, avro, avro_unicode"),
        ("EventRouter", {"table.fields.additional.placement": "a:nowhere"}, "PLACE being one of header, envelope, partition"),
        ("FilterByCondition", {"language": "jsr223.jruby"}, "must be one of jsr223.groovy, jsr223.graal.js"),
        ("FilterByCondition", {"language": "wasm.chicory"}, "scripts and modules are not run"),
        ("FilterByCondition", {"condition": "value.op = 'u'"}, "= at character 10 is not understood"),
        ("ContentBasedRouter", {"topic.expression": "new File('x')"}, "new at character 1 is not understood"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_an_error_of_the_configuration(
    name: str, more: dict[str, str], said: str
) -> None:
    cls = next(cls for cls in CLASSES if cls.__name__ == name)
    assert any(said in error for error in errors(config_of(cls, **more))), errors(config_of(cls, **more))
