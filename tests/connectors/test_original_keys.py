"""Every key of the connectors whose names ours take is honoured, refused or warned of: the whole tables, through the real classes."""

from __future__ import annotations

import runpy

import pytest
from support import original_keys

from klamm_base.configdef import NO_DEFAULT, to_string
from klamm_base.errors import ConfigError
from klamm_connectors.elasticsearch.connector import ElasticsearchSinkConnector
from klamm_connectors.file.sink.connector import FileStreamSinkConnector
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_connectors.mysql.connector import MariaDbSourceConnector, MySqlSourceConnector
from klamm_connectors.sql.connector import SqlSinkConnector
from klamm_plugins.connector import Connector
from klamm_plugins.discovery import PluginManager
from klamm_plugins.original_keys import FAMILY, Key, KeyTable, Verdict, refusals, taken

_MYSQL = {"name": "c", "database.hostname": "h", "database.user": "u", "topic.prefix": "p"}
CLASSES: dict[type[Connector], dict[str, str]] = {
    MySqlSourceConnector: _MYSQL,
    MariaDbSourceConnector: _MYSQL,
    SqlSinkConnector: {"name": "c", "topics": "t", "connection.url": "sqlite:///x.db"},
    ElasticsearchSinkConnector: {"name": "c", "topics": "t", "connection.url": "http://es:9200"},
    FileStreamSourceConnector: {"name": "c", "file": "f", "topic": "t"},
    FileStreamSinkConnector: {"name": "c", "topics": "t", "file": "f"},
}
EMPTY = {"", "null"}


def table(cls: type[Connector]) -> KeyTable:
    assert isinstance(cls.original_keys, KeyTable)
    return cls.original_keys


def sample(key: Key) -> str:
    """Returns a value that is no exception to the verdict."""
    if key.default not in {*EMPTY, "required"} and key.default.lower() not in key.fine:
        return key.default
    return next(v for v in ("true", "false", "7", "sample") if v not in key.fine)


def cases(verdict: Verdict) -> list[object]:
    return [
        pytest.param(cls, name, row, id=f"{cls.__name__}-{name}")
        for cls in CLASSES
        for name, row in table(cls).keys.items()
        if row.verdict is verdict
    ]


def errors(cls: type[Connector], props: dict[str, str], name: str) -> list[str]:
    return [e for value in cls.validate(props) if value.name == name for e in value.errors]


def test_every_connector_with_a_java_name_has_a_table() -> None:
    classes = [desc.cls for desc in PluginManager.load().connectors()]
    foreign = {cls for cls in classes if not (vars(cls).get("kafka_name") or "klamm.").startswith("klamm.")}
    assert {cls for cls in foreign if cls.original_keys is None} == set()  # type: ignore[attr-defined]
    assert foreign >= CLASSES.keys()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_plain_configuration_has_neither_errors_nor_warnings(cls: type[Connector]) -> None:
    props = CLASSES[cls]
    assert [e for value in cls.validate(props) for e in value.errors] == []
    assert cls.warnings(props) == {}


@pytest.mark.parametrize(("cls", "name", "row"), cases(Verdict.HONOURED))
def test_what_is_honoured_is_defined(cls: type[Connector], name: str, row: Key) -> None:
    if FAMILY in name:
        given = name.replace(FAMILY, "7")
        assert taken(cls.original_keys, {given: "x"}) == [given]
        return
    assert name in cls.config(), f"{name} is honoured, but the connector does not define it"
    key = cls.config()[name]
    ours = "required" if key.default is NO_DEFAULT else to_string(key.default, key.type)
    same = ours == row.default or {ours or "", row.default} <= {*EMPTY, "required"}
    assert same or row.why, f"{name} is {ours} here and {row.default} there: the table must say why"


@pytest.mark.parametrize(("cls", "name", "row"), cases(Verdict.REFUSED))
def test_what_is_refused_is_an_error_with_key_value_and_remedy(
    cls: type[Connector], name: str, row: Key
) -> None:
    assert name not in cls.config(), f"{name} is refused, and defined as if it were not"
    key, value = name.replace(FAMILY, "7"), sample(row)
    [said] = errors(cls, CLASSES[cls] | {key: value}, key)
    hidden = FAMILY in name or key.endswith(".statements") or "password" in key or "ssl.keystore.key" in key
    shown = "…" if hidden else value
    said = said.partition("; did you mean")[0]
    assert said == f"{key}={shown} cannot be used: {row.why}"
    assert "; " in row.why or "write " in row.why or "belong into" in row.why, "it must say what to do"
    for fine in row.fine:
        assert errors(cls, CLASSES[cls] | {key: fine}, key) == []
        assert cls.warnings(CLASSES[cls] | {key: fine}) == {}


@pytest.mark.parametrize(("cls", "name", "row"), cases(Verdict.WARNED))
def test_what_has_no_effect_is_named(cls: type[Connector], name: str, row: Key) -> None:
    assert name not in cls.config(), f"{name} has no effect, and is defined as if it had"
    key = name.replace(FAMILY, "7")
    props = CLASSES[cls] | {key: sample(row)}
    assert errors(cls, props, key) == []
    assert cls.warnings(props) == {key: f"{key} has no effect: {row.why}"}
    assert row.why


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_our_own_keys_are_in_no_table_and_others_are_unknown(cls: type[Connector]) -> None:
    rulings = dict(cls.original_keys.rule({"fiel": "x", "batch.sise": "1"}))  # type: ignore[union-attr]
    assert all(ruling.unknown for ruling in rulings.values())
    own = {name: "x" for name in cls.config().names if name not in table(cls).keys}
    assert all(ruling.unknown for _, ruling in table(cls).rule(own)), "a family has a key of our own"
    for row in table(cls).keys.values():
        assert not row.why.endswith("."), "the reason is a part of a sentence"


def test_a_misspelt_password_is_not_shown_and_its_key_is_named() -> None:
    refused = refusals(
        SqlSinkConnector.original_keys, {"connection.pasword": "hush", "connection.pass": "hush"}
    )
    assert list(refused) == ["connection.pasword", "connection.pass"]
    assert "hush" not in "".join(refused.values())
    assert "did you mean connection.password?" in refused["connection.pasword"]


def test_values_that_would_reach_topics_in_another_form_are_refused() -> None:
    key = "sourceinfo.struct.maker"
    [said] = errors(MySqlSourceConnector, _MYSQL | {key: "x.Maker"}, key)
    assert said.startswith(f"{key}=x.Maker cannot be used: it is a Java class, ")


def test_a_task_with_an_old_configuration_does_not_start() -> None:
    from klamm.connect.child.plugins import check_keys

    with pytest.raises(ConfigError, match=r"read\.only=true cannot be used"):
        check_keys(MariaDbSourceConnector, _MYSQL | {"read.only": "true"})


def test_the_page_of_keys_is_up_to_date() -> None:
    made = runpy.run_path(str(original_keys.ROOT / "docs/reference/make_keys.py"))
    assert made["connectors_page"]() == made["CONNECTORS_PAGE"].read_text("utf-8"), "run ./dev docs"


@pytest.mark.usefixtures("apache_kafka")
@pytest.mark.parametrize("name", [name for name in original_keys.ORIGINALS if name != "mirror"])
def test_the_tables_have_the_keys_of_the_jars(name: str) -> None:
    original = original_keys.ORIGINALS[name]
    if missing := original.missing():
        pytest.skip(
            f"no jars of {original.version} in {', '.join(missing)}: see tests/support/original_keys.py"
        )
    made = original_keys.merged(original.rows(), original_keys.written(original))
    assert original_keys.as_text(made) == original.path.read_text("utf-8")
