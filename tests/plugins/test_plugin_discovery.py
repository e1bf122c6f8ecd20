"""Finding plugins: names, aliases, ambiguity, and packages that are broken."""

import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from klamm_connectors import file as file_plugins
from klamm_connectors.file.source.connector import FileStreamSourceConnector
from klamm_plugins import builtin
from klamm_plugins.connector import SourceConnector
from klamm_plugins.converters.json import JsonConverter
from klamm_plugins.converters.simple_header import SimpleHeaderConverter
from klamm_plugins.discovery import PluginManager, PluginType
from klamm_plugins.errors import PluginNotFoundError
from klamm_plugins.hookspecs import hookimpl


def package(connectors=(), converters=()):
    """Returns a plugin package that is not installed."""
    return SimpleNamespace(
        register_connectors=hookimpl(lambda: list(connectors)),
        register_converters=hookimpl(lambda: list(converters)),
    )


def connector(name, module="acme.streams", kafka_name=None):
    body = {
        "kafka_name": kafka_name,
        "__module__": module,
        "task_class": classmethod(lambda cls: None),
        "start": lambda self, props: None,
        "task_configs": lambda self, max_tasks: [],
    }
    return type(name, (SourceConnector,), body)


@pytest.fixture
def manager():
    manager = PluginManager()
    manager.register(builtin, "klamm-converters")
    manager.register(file_plugins, "klamm-file")
    return manager


def test_what_is_installed_holds_what_comes_with_klamm():
    loaded = PluginManager.load()
    assert not [b for b in loaded.broken if b.name.startswith("klamm-")]
    kinds = [(d.class_name, d.type) for d in loaded.plugins() if d.location.startswith("klamm-")]
    expected = [
        ("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink"),
        ("org.apache.kafka.connect.file.FileStreamSourceConnector", "source"),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", "converter"),
        ("org.apache.kafka.connect.json.JsonConverter", "converter"),
        ("org.apache.kafka.connect.storage.StringConverter", "converter"),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", "header_converter"),
        ("org.apache.kafka.connect.json.JsonConverter", "header_converter"),
        ("org.apache.kafka.connect.storage.SimpleHeaderConverter", "header_converter"),
        ("org.apache.kafka.connect.storage.StringConverter", "header_converter"),
    ]
    assert [kind for kind in kinds if kind in expected] == expected


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "FileStreamSourceConnector",
        "FileStreamSource",
        "klamm_connectors.file.source.connector.FileStreamSourceConnector",
        "klamm_connectors.file.source.connector:FileStreamSourceConnector",
        "klamm_connectors.file.source.FileStreamSourceConnector",
        "klamm_connectors.file.source:FileStreamSourceConnector",
    ],
)
def test_names_of_a_connector(manager, name):
    assert manager.find_connector(name) is FileStreamSourceConnector
    assert manager.find_plugin(name).cls is FileStreamSourceConnector


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json"])
def test_names_of_a_converter(manager, name):
    assert manager.find_converter(name) is JsonConverter
    assert manager.find_header_converter("JsonConverter") is JsonConverter
    assert manager.find_header_converter("Simple") is SimpleHeaderConverter


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("no.such.Class", ";"),
        ("FileStreamSnk", "; did you mean FileStreamSink?"),
        ("org.apache.kafka.connect.file.FileStreamSourcConnector", "; did you mean FileStreamSource?"),
    ],
)
def test_an_unknown_connector_is_one_sentence(manager, name, near):
    with pytest.raises(PluginNotFoundError) as raised:
        manager.find_connector(name)
    assert str(raised.value) == (
        f"Failed to find any class that implements Connector and which name matches {name}{near} "
        "`klamm connector plugins` lists all"
    )


@pytest.mark.parametrize(
    ("find", "name", "near"),
    [
        ("converter", "no.Such", ";"),
        ("converter", "x.JsonConvertr", "; did you mean JsonConverter?"),
        ("converter", "SimpleHeaderConverter", ";"),
        ("header_converter", "SimpleHeaderConvertr", "; did you mean SimpleHeaderConverter?"),
        (
            "transformation",
            "InsertField",
            "; did you mean InsertField$Key or InsertField$Value?",
        ),
        ("predicate", "TopicNameMatch", "; did you mean TopicNameMatches?"),
    ],
)
def test_an_unknown_class_of_another_kind_is_one_sentence(manager, find, name, near):
    with pytest.raises(PluginNotFoundError) as raised:
        getattr(manager, f"find_{find}")(name)
    assert str(raised.value) == (
        f"Class {name} could not be found{near} `klamm connector plugins --all` lists all"
    )


def test_an_unknown_or_ambiguous_plugin(manager):
    theirs = type("JsonConverter", (JsonConverter,), {"__module__": "acme.conv", "kafka_name": None})
    manager.register(package(converters=[theirs]), "acme")
    full = r"use a full name, acme\.conv\.JsonConverter or org\.apache\.kafka\.connect\.json\.JsonConverter$"
    with pytest.raises(PluginNotFoundError, match=f"Class JsonConverter is ambiguous: {full}"):
        manager.find_converter("JsonConverter")
    with pytest.raises(PluginNotFoundError, match=r"Unknown plugin no\.Such$"):
        manager.find_plugin("no.Such")


def test_an_ambiguous_name_is_refused_and_a_full_one_is_not(manager):
    ours, theirs = connector("FileStreamSourceConnector"), connector("ThingConnector")
    manager.register(package([ours, theirs]), "acme")
    with pytest.raises(
        PluginNotFoundError, match="More than one connector matches alias FileStreamSource"
    ) as raised:
        manager.find_connector("FileStreamSource")
    assert "acme.streams.FileStreamSourceConnector" in str(raised.value)
    assert manager.find_connector("acme.streams.FileStreamSourceConnector") is ours
    assert (
        manager.find_connector("org.apache.kafka.connect.file.FileStreamSourceConnector")
        is FileStreamSourceConnector
    )
    assert manager.find_connector("Thing") is theirs
    with pytest.raises(PluginNotFoundError, match="More than one plugin is called FileStreamSource"):
        manager.find_plugin("FileStreamSource")


def raises():
    raise RuntimeError("no licence")


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (SimpleNamespace(register_connectors=hookimpl(raises)), "RuntimeError: no licence"),
        (
            package([int]),
            "ConnectError: <class 'int'> is not a connector, converter, transform, predicate or mirror plugin class",
        ),
        (
            package(["not a class"]),
            "is not a connector, converter, transform, predicate or mirror plugin class",
        ),
        (
            package([type("Half", (SourceConnector,), {"__module__": "m"})]),
            "m.Half does not implement start, task_class",
        ),
        (SimpleNamespace(register_connectors=hookimpl(lambda unknown: [])), "PluginValidationError"),
    ],
)
def test_a_broken_package_hides_nobody(manager, broken, error):
    manager.register(broken, "broken-one")
    manager.register(package([connector("LateConnector")]), "acme")
    assert [b.name for b in manager.broken] == ["broken-one"]
    assert error in manager.broken[0].error
    assert manager.find_connector("Late")
    assert manager.find_connector("FileStreamSource")
    with pytest.raises(
        PluginNotFoundError, match=r"these plugin packages could not be loaded: broken-one \("
    ):
        manager.find_connector("Missing")


def test_a_class_that_comes_twice_counts_once(manager):
    manager.register(package([FileStreamSourceConnector]), "again")
    assert manager.find_connector("FileStreamSource") is FileStreamSourceConnector
    assert len(manager.plugins(PluginType.SOURCE)) == 1


def test_a_package_installed_a_moment_ago_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not [e for e in importlib.metadata.entry_points(group="klamm") if e.name == "fresh"]
    info = tmp_path / "fresh_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fresh-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[klamm]\nfresh = fresh_plugin\ngone = no_such_module\n")
    (tmp_path / "fresh_plugin.py").write_text(
        "from klamm_plugins.hookspecs import hookimpl\n"
        "from klamm_plugins.converters.string import StringConverter\n"
        "class FreshConverter(StringConverter):\n"
        "    kafka_name = None\n"
        "@hookimpl\n"
        "def register_converters():\n"
        "    return [FreshConverter]\n"
    )
    try:
        loaded = PluginManager.load()
        assert loaded.find_converter("fresh_plugin:FreshConverter").__name__ == "FreshConverter"
        assert [b.name for b in loaded.broken] == ["gone"]
        assert "No module named 'no_such_module'" in loaded.broken[0].error
        assert loaded.find_connector("FileStreamSink")
    finally:
        sys.modules.pop("fresh_plugin", None)


def test_a_subclass_of_a_shipped_plugin_is_another_plugin(manager):
    """The subclass does not inherit the Kafka name of its parent: the parent stays what it was."""
    child = type("ReversedJsonConverter", (JsonConverter,), {"__module__": "acme.conv"})
    manager.register(package(converters=[child]), "acme")
    assert manager.broken == []
    assert manager.find_converter("org.apache.kafka.connect.json.JsonConverter") is JsonConverter
    assert manager.find_converter("acme.conv.ReversedJsonConverter") is child
    assert manager.find_converter("ReversedJsonConverter") is child


def test_who_takes_the_name_of_another_plugin_is_the_broken_one(manager):
    thief = connector("Thief", kafka_name="org.apache.kafka.connect.file.FileStreamSourceConnector")
    manager.register(package([thief]), "acme")
    assert [(b.name, b.error) for b in manager.broken] == [
        (
            "acme",
            "ConnectError: org.apache.kafka.connect.file.FileStreamSourceConnector is a plugin of klamm-file already",
        )
    ]
    assert manager.find_connector("FileStreamSource") is FileStreamSourceConnector


def test_a_plugin_lists_every_name_it_answers_to(manager):
    names = next(d.names for d in manager.plugins(PluginType.CONVERTER) if d.cls is JsonConverter)
    assert names == [
        "org.apache.kafka.connect.json.JsonConverter",
        "klamm_plugins.converters.json.JsonConverter",
        "klamm_plugins.converters.json:JsonConverter",
        "JsonConverter",
        "Json",
    ]
    assert all(manager.find_converter(name) is JsonConverter for name in names)
