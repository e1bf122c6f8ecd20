"""Small wheels, made without any tool, and plugin packages of which each brings the library that it wants."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from klamm.environments.errors import ToolFailure
from klamm.environments.names import wheel_name
from klamm.environments.tools import Resolved, Sources

_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

PLUGIN = """
from pathlib import Path

from klamm_base.configdef import ConfigDef, Type
from klamm_plugins.connector import SourceConnector, SourceTask
from klamm_plugins.converter import Converter
from klamm_plugins.hookspecs import hookimpl
from klamm_plugins.schema import STRING

import acme_lib


class {name}Connector(SourceConnector):
    @classmethod
    def version(cls):
        return "{version}"

    @classmethod
    def config(cls):
        return ConfigDef().define("file", Type.STRING, documentation="Gets the library's version.")

    @classmethod
    def task_class(cls):
        return {name}Task

    def start(self, props):
        self._props = dict(props)

    def task_configs(self, max_tasks):
        return [self._props]


class {name}Task(SourceTask):
    def start(self, props):
        Path(props["file"]).write_text("{name} {version} with lib " + acme_lib.VERSION)

    def poll(self):
        self.context.stopping.wait(0.2)

    def stop(self):
        pass


class {name}Converter(Converter):
    @classmethod
    def version(cls):
        return "{version}"

    def from_connect_data(self, topic, schema, value):
        return None if value is None else str(value).encode()

    def to_connect_data(self, topic, value):
        return STRING, value.decode()


@hookimpl
def register_connectors():
    return [{name}Connector]


@hookimpl
def register_converters():
    return [{name}Converter]
"""


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: Sequence[str] = (),
    entry_points: Mapping[str, str] | None = None,
) -> Path:
    """Returns a pure Python wheel; `entry_points` are those of the group `klamm`."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": _WHEEL,
    }
    if entry_points:
        lines = "".join(f"{key} = {value}\n" for key, value in entry_points.items())
        content[f"{info}/entry_points.txt"] = f"[klamm]\n{lines}"
    record = "".join(
        f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items()
    )
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (content | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
            archive.writestr(zipfile.ZipInfo(member, (2026, 1, 1, 0, 0, 0)), text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def make_plugin(folder: Path, name: str, version: str, *requires: str) -> Path:
    """Returns the package `acme-NAME` with NameConnector and NameConverter; it imports `acme_lib`."""
    module = f"acme_{name}"
    code = PLUGIN.format(name=name.title(), version=version)
    return make_wheel(
        folder,
        f"acme-{name}",
        version,
        {f"{module}.py": code},
        requires=requires,
        entry_points={f"acme-{name}": module},
    )


def make_lib(folder: Path, version: str) -> Path:
    return make_wheel(folder, "acme-lib", version, {"acme_lib.py": f"VERSION = {version!r}\n"})


def make_index(folder: Path) -> Path:
    """Returns a folder with acme-lib 1.0 and 2.0, acme-old that needs the first, acme-new (1.0, 2.0) that needs the second,
    acme-any that takes either, and acme-broken, which cannot be imported.
    """
    for version in ("1.0", "2.0"):
        make_lib(folder, version)
        make_plugin(folder, "new", version, "acme-lib>=2", "klamm", "orjson")
    make_plugin(folder, "old", "1.0", "acme-lib<2", "confluent-kafka")
    make_plugin(folder, "any", "1.0", "acme-lib")
    make_wheel(
        folder, "acme-broken", "1.0", {"acme_broken.py": "import no_such_library\n"},
        entry_points={"acme-broken": "acme_broken"},
    )  # fmt: skip
    return folder


class Unzip:
    """An installer for wheels that need nothing: no index, no resolver, no process."""

    name = "unzip"

    def build_wheel(self, folder: Path, into: Path, sources: Sources) -> Path:
        raise ToolFailure(f"{folder} is not built here")

    def resolve(
        self, requirements: Sequence[str], sources: Sources, *, constraints: str, work: Path
    ) -> list[Resolved]:
        found = [Path(unquote(urlsplit(r.partition(" @ ")[2]).path)) for r in requirements]
        return [Resolved(*wheel_name(path), (), path) for path in found]

    def install(self, requirements: str, target: Path, sources: Sources, *, work: Path) -> None:
        for url in re.findall(r" @ (\S+)", requirements):
            with zipfile.ZipFile(unquote(urlsplit(url).path)) as archive:
                archive.extractall(target)
