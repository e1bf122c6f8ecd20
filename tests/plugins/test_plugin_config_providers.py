"""Config providers: Kafka's three, and how others are found."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from klamm_base.errors import ConfigError
from klamm_plugins.config_provider import (
    ConfigData,
    ConfigProvider,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
)
from klamm_plugins.config_provider_discovery import find_config_provider

KAFKA = "org.apache.kafka.common.config.provider."


class OwnProvider(ConfigProvider):
    def get(self, path, keys=None):
        return ConfigData({})


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        (KAFKA + "FileConfigProvider", FileConfigProvider),
        ("FileConfigProvider", FileConfigProvider),
        ("file", FileConfigProvider),
        (KAFKA + "DirectoryConfigProvider", DirectoryConfigProvider),
        ("dir", DirectoryConfigProvider),
        (KAFKA + "EnvVarConfigProvider", EnvVarConfigProvider),
        ("env", EnvVarConfigProvider),
    ],
)
def test_names(name, cls):
    assert find_config_provider(name) is cls


def test_own_classes_by_path_and_by_hook(tmp_path, monkeypatch):
    module = ModuleType("own_providers_of_a_test")
    module.OwnProvider = OwnProvider
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert find_config_provider("own_providers_of_a_test.OwnProvider") is OwnProvider
    (tmp_path / "hooked_providers.py").write_text(
        "from klamm_plugins.config_provider import ConfigData, ConfigProvider\n"
        "from klamm_plugins.hookspecs import hookimpl\n"
        "class Vault(ConfigProvider):\n"
        "    kafka_name = 'com.example.VaultConfigProvider'\n"
        "    def get(self, path, keys=None):\n"
        "        return ConfigData({})\n"
        "@hookimpl\n"
        "def register_config_providers():\n"
        "    return [Vault]\n"
    )
    info = tmp_path / "hooked-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooked\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[klamm]\nhooked = hooked_providers\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_config_provider("com.example.VaultConfigProvider").__name__ == "Vault"
    with pytest.raises(ConfigError, match=r"nothing\.Such could not be found; config providers are: .*Vault"):
        find_config_provider("nothing.Such")


def test_file(tmp_path):
    file = tmp_path / "s.properties"
    file.write_text("a=1\nb = x y\n")
    provider = FileConfigProvider()
    assert provider.get(str(file)).data == {"a": "1", "b": "x y"}
    assert provider.get(str(file), {"b", "c"}).data == {"b": "x y"}
    assert provider.get("").data == {}
    with pytest.raises(ConfigError, match="Could not read properties from file /absent"):
        provider.get("/absent")


def test_directory(tmp_path):
    (tmp_path / "password").write_text("two\nlines\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff")
    provider = DirectoryConfigProvider()
    assert provider.get(str(tmp_path), {"password", "sub", "absent"}).data == {"password": "two\nlines\n"}
    with pytest.raises(ConfigError, match="not UTF-8"):
        provider.get(str(tmp_path), {"binary"})
    with pytest.raises(ConfigError, match="is not a directory"):
        provider.get(str(tmp_path / "password"))
    assert provider.get(str(tmp_path), {"../" + tmp_path.name + "/password"}).data == {}


def test_paths_outside_of_those_allowed_are_refused(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "s").write_text("a=1")
    (inside / "s").write_text("a=2")
    (inside / "link").symlink_to(outside / "s")
    file, folder = FileConfigProvider(), DirectoryConfigProvider()
    for provider in (file, folder):
        provider.configure({"allowed.paths": str(inside)})
    assert file.get(str(inside / "s")).data == {"a": "2"}
    for path in (outside / "s", inside / "link", inside / "../out/s"):
        with pytest.raises(ConfigError, match="is not allowed to be accessed"):
            file.get(str(path))
    with pytest.raises(ConfigError, match="is not allowed"):
        folder.get(str(inside), {"link"})
    with pytest.raises(ConfigError, match="is not allowed"):
        folder.get(str(outside))


def test_environment(monkeypatch):
    monkeypatch.setenv("KLAMM_TEST_A", "1")
    provider = EnvVarConfigProvider()
    assert provider.get("", {"KLAMM_TEST_A", "KLAMM_TEST_ABSENT"}).data == {"KLAMM_TEST_A": "1"}
    provider.configure({"allowlist.pattern": "OTHER.*"})
    assert provider.get("", {"KLAMM_TEST_A"}).data == {}
    with pytest.raises(
        ConfigError, match="Path is not supported for EnvVarConfigProvider, invalid value 'x'"
    ):
        provider.get("x")
