"""The wheel that users install holds every module, nothing else, and says the same version everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.release import ABSENT, COMPILED, MODULES, extras, main

from klamm_base.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "klamm": "platform",
    "klamm_base": "base",
    "klamm_kafka": "broker",
    "klamm_broker": "broker",
    "klamm_agent": "agent",
    "klamm_plugins": "plugins",
    "klamm_connectors": "connectors",
    "klamm_mirror": "mirror",
    "klamm_spark": "spark_sinks",
}


@pytest.fixture(scope="module")
def built(processes, tmp_path_factory):
    """Returns the folder with wheel and sdist: what `./dev release` has built, or built here without an isolated environment."""
    if given := os.environ.get("KLAMM_DIST"):
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as opened:
        yield opened


def test_every_module_is_in_the_wheel_and_nothing_else(wheel):
    expected = {
        f"{package}/{path.relative_to(ROOT / folder / package).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.suffix in {".py", ".json"}
        or path.name == "py.typed"
        or (path.is_file() and {"static", "templates"} & set(path.parts))
    }
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= found


def test_versions_agree(wheel, built):
    (metadata,) = (n for n in wheel.namelist() if n.endswith("/METADATA"))
    assert Parser().parsestr(wheel.read(metadata).decode())["Version"] == __version__
    assert {p.name.split("-")[1].removesuffix(".tar.gz") for p in built.iterdir()} == {__version__}
    released = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == "Unreleased"
    assert released[1:] in ([], [__version__, *released[2:]])


def test_entry_points_lead_to_what_is_in_the_wheel(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    parser = ConfigParser()
    parser.read_string(wheel.read(name).decode())
    assert set(parser.sections()) == {"console_scripts", "klamm"}
    assert dict(parser["console_scripts"]) == {"klamm": "klamm.cli.main:main"}
    for section in parser.sections():
        for target in parser[section].values():
            module = target.partition(":")[0].replace(".", "/")
            assert {f"{module}.py", f"{module}/__init__.py"} & set(wheel.namelist()), target


def test_the_source_distribution_can_be_tested(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        top = {name.split("/", 2)[1] for name in sdist.getnames() if "/" in name}
    assert {
        "dev",
        ".ci",
        "tests",
        "examples",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        *PACKAGES.values(),
    } <= top


def test_plugin_authors_need_no_extra(processes):
    """Imports all of klamm_plugins, and klamm.testing, where none of the extras' packages can be found."""
    script = f"""
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Nothing())
import importlib, pkgutil
import klamm_plugins, klamm.testing
for module in pkgutil.iter_modules(klamm_plugins.__path__, "klamm_plugins."):
    importlib.import_module(module.name)
assert klamm.testing.EmbeddedBroker and klamm.testing.EmbeddedWorker
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_release_tries_every_extra():
    assert set(MODULES) == set(extras())
    for extra, modules in MODULES.items():
        assert extra in COMPILED or all(find_spec(module) for module in modules), modules


def test_a_release_of_an_unknown_extra_builds_nothing(capsys):
    assert main(["mysq"]) == 2
    assert "there is no extra mysq; there are base, spark" in capsys.readouterr().err
