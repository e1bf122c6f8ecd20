"""The packages and entry points that a configuration needs, and the version of a plugin that it means."""

import pytest

from klamm.connect.errors import BadRequest
from klamm.connect.model import PluginInfo
from klamm.connect.plugins.admin import _read_spec
from klamm.connect.plugins.catalog import PluginRegistry, PluginVersionNotFound
from klamm.connect.plugins.requirements import requirements_of
from klamm.environments.inspection import Broken
from klamm_base.errors import ConfigError
from klamm_plugins.discovery import unknown_connector

JSON = "org.apache.kafka.connect.json.JsonConverter"
HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
WORKER = {"key.converter": JSON, "value.converter": JSON, "header.converter": HEADERS}


def plugin(name, kind, version, package="", module="m"):
    return PluginInfo(name, kind, version, (name, name.rpartition(".")[2]), (f"ep-{module}", module), package)


REGISTRY = PluginRegistry(
    [
        plugin(JSON, "converter", "0.1", module="builtin"),
        plugin(HEADERS, "header_converter", "0.1", module="builtin"),
        plugin("acme.Src", "source", "1.0", "acme==1.0", "acme"),
        plugin("acme.Src", "source", "2.0", "acme==2.0", "acme"),
        plugin("acme.Conv", "converter", "1.0", "acme==1.0", "acme"),
        plugin("acme.Conv", "converter", "2.0", "acme==2.0", "acme"),
        plugin("acme.Conv", "converter", "3.0", "conv==3.0", "conv"),
        plugin("acme.Mask", "transformation", "1.0", "mask==1.0", "mask"),
        plugin("acme.If", "predicate", "1.0", "mask==1.0", "mask"),
        plugin("acme.Teams", "mirror", "1.0", "teams==1.0", "teams"),
        plugin("one.Twin", "sink", "1.0", "one==1"),
        plugin("two.Twin", "sink", "1.0", "two==1"),
        plugin("acme.Beside", "sink", "1.0", "", "beside"),
        plugin("acme.Beside", "sink", "1.0", "beside==1.0", "beside"),
    ]
)

CASES = [
    ({"connector.class": "acme.Src"}, ("acme==2.0",)),
    ({"connector.class": "Src"}, ("acme==2.0",)),
    ({"connector.class": "acme.Src", "connector.plugin.version": "latest"}, ("acme==2.0",)),
    ({"connector.class": "acme.Src", "connector.plugin.version": "1.0"}, ("acme==1.0",)),
    ({"connector.class": "acme.Src", "connector.plugin.version": "[1.0,2.0)"}, ("acme==1.0",)),
    # Without a version the connector's own package comes first, as with Kafka's class loaders.
    ({"connector.class": "acme.Src", "connector.plugin.version": "1.0", "key.converter": "acme.Conv"}, ("acme==1.0",)),
    ({"connector.class": "acme.Src", "key.converter": "Conv", "key.converter.plugin.version": "3.0"},
     ("acme==2.0", "conv==3.0")),
    ({"connector.class": "acme.Src", "key.converter": "Conv", "key.converter.plugin.version": "[3,)"},
     ("acme==2.0", "conv==3.0")),
    ({"connector.class": "acme.Src", "transforms": "a, b", "transforms.a.type": "acme.Mask"},
     ("acme==2.0", "mask==1.0")),
    ({"connector.class": "acme.Src", "predicates": "p", "predicates.p.type": "acme.If"}, ("acme==2.0", "mask==1.0")),
    ({"connector.class": "acme.Src", "transforms.a.type": "acme.Mask"}, ("acme==2.0",)),
    ({"connector.class": "acme.Src", "topic.filter.class": "Teams"}, ("acme==2.0", "teams==1.0")),
    ({"connector.class": "acme.Src", "topic.filter.class": "DefaultTopicFilter"}, ("acme==2.0",)),
    ({"connector.class": "acme.Beside"}, ("beside==1.0",)),
    ({"connector.class": "no.Such"}, ()),
    ({"connector.class": "Twin"}, ()),
    ({}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("config", "packages"), CASES)
def test_the_packages_of_a_configuration(config, packages):
    assert requirements_of(REGISTRY, config, WORKER).packages == packages


def test_entry_points_are_those_that_are_needed_the_connectors_first():
    config = {"connector.class": "acme.Src", "transforms": "a", "transforms.a.type": "acme.Mask"}
    found = requirements_of(REGISTRY, config, WORKER).entry_points
    assert found == (("ep-acme", "acme"), ("ep-builtin", "builtin"), ("ep-mask", "mask"))


def test_the_workers_converter_and_its_version_count_where_the_connector_has_none():
    worker = WORKER | {"key.converter": "acme.Conv", "key.converter.plugin.version": "1.0"}
    assert requirements_of(REGISTRY, {"connector.class": "acme.Src"}, worker).packages == (
        "acme==1.0",
        "acme==2.0",
    )
    own = {"connector.class": "acme.Src", "key.converter": JSON}
    assert requirements_of(REGISTRY, own, worker).packages == ("acme==2.0",)


def test_a_version_that_is_not_there_is_kafkas_error():
    config = {"connector.class": "acme.Src", "connector.plugin.version": "[3.0,4.0)"}
    with pytest.raises(PluginVersionNotFound) as raised:
        requirements_of(REGISTRY, config, WORKER)
    assert str(raised.value) == (
        "Plugin acme.Src not found that matches the version range [3.0,4.0), available versions: [1.0, 2.0]"
    )
    assert raised.value.key == "connector.plugin.version"
    assert requirements_of(REGISTRY, config, WORKER, strict=False).packages == ()


def test_a_version_that_is_none_is_an_error_of_its_key():
    config = {"connector.class": "acme.Src", "key.converter": JSON, "key.converter.plugin.version": "[1.0"}
    with pytest.raises(
        ConfigError, match=r"Invalid value \[1.0 for configuration key.converter.plugin.version: "
    ):
        requirements_of(REGISTRY, config, WORKER)


def test_versions_and_the_newest():
    assert REGISTRY.versions("acme.Conv", "converter") == ["1.0", "2.0", "3.0"]
    assert REGISTRY.connector("acme.Src").version == "2.0"
    assert REGISTRY.connector("acme.Src", "1.0").package == "acme==1.0"
    assert REGISTRY.connector("acme.Src", "7") is None


BAD_REQUESTS = [
    ({}, "Give package (a requirement, a wheel or a folder), or file and wheel (in base64)"),
    ({"package": 7}, "package must be a text that is not empty, not 7"),
    ({"package": " "}, "package must be a text that is not empty"),
    ({"package": "a", "file": "b"}, "Give either package, or file and wheel"),
    ({"pakage": "a"}, "Unknown field pakage; there are package, or file and wheel"),
    ({"file": "../x.whl", "wheel": "YQ=="}, "file must be a wheel's name"),
    ({"file": "x-1-py3-none-any.whl", "wheel": "?"}, "wheel: it is not base64"),
    (
        {"file": "x.whl", "wheel": "YQ=="},
        "x.whl is no wheel: its name must be name-version-python-abi-platform.whl",
    ),
    ({"file": "x\0-1-py3-none-any.whl", "wheel": "YQ=="}, "is no wheel"),
    ({"file": "a b-1-py3-none-any.whl", "wheel": "YQ=="}, "is no wheel"),
    ({"file": f"{'x' * 300}-1-py3-none-any.whl", "wheel": "YQ=="}, "is no wheel"),
]


@pytest.mark.parametrize(("body", "said"), BAD_REQUESTS)
def test_what_cannot_be_installed_is_told_before_anything_is_touched(body, said):
    with pytest.raises(BadRequest) as raised:
        _read_spec(body)
    assert said in str(raised.value)


def test_a_request_for_a_package_or_a_wheel_is_read():
    assert _read_spec(" acme>=1 ") == _read_spec({"package": "acme>=1"}) == ("acme>=1", None)
    name = "Acme_x-1.0+local.2-1-cp311.cp312-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert _read_spec({"file": name, "wheel": "YQ=="}) == (name, b"a")


def test_a_suggestion_counts_installed_packages():
    said = unknown_connector("acme.Sr", ())
    hint = "; these plugin packages could not be loaded: a (b)"
    whole = REGISTRY.unknown_connector("acme.Sr", said + hint)
    assert whole == f"{unknown_connector('acme.Sr', ['Src'])}{hint}"
    assert "; did you mean Src? " in whole
    assert REGISTRY.unknown_connector("acme.Sr", "something else") == "something else"
    assert PluginRegistry().unknown_connector("acme.Sr", said) == said


def test_a_version_that_is_installed_and_broken_says_its_own_error():
    whole = PluginInfo("acme.Sink", "sink", "1.0", ("Sink",), package="acme==1.0")
    broken = [
        Broken("acme==2.0", "SyntaxError: '(' was never closed (acme.py, line 3)", "…"),
        Broken("other==1", "no", "…"),
    ]
    registry = PluginRegistry([whole], broken)
    with pytest.raises(
        PluginVersionNotFound,
        match=r"available versions: \[1\.0\]; .* acme==2\.0 \(SyntaxError: .* line 3\)\)$",
    ):
        registry.choose("Sink", ("sink",), version="2.0")
