"""Lets a worker's children find plugin classes whose package is not installed.

Children get a folder with the metadata of an invented package, whose entry point names a generated module, and the test
process's own import path. Classes of installed packages need nothing.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm_plugins.connector import Connector
from klamm_plugins.converter import Converter, HeaderConverter
from klamm_plugins.discovery import PluginManager, python_name
from klamm_plugins.mirror import MirrorPlugin
from klamm_plugins.transform import Predicate, Transformation

_HOOKS: Final[dict[str, tuple[type, ...]]] = {
    "register_connectors": (Connector,),
    "register_converters": (Converter, HeaderConverter),
    "register_transforms": (Transformation,),
    "register_predicates": (Predicate,),
    "register_mirror_plugins": (MirrorPlugin,),
}
_MODULE: Final = "klamm_plugins_under_test"


def expose(classes: Sequence[type], directory: Path) -> list[str]:
    """Returns folders for a worker's PYTHONPATH that let it find these classes. Raises ValueError for a class that it cannot import."""
    known = {desc.cls for desc in PluginManager.load().plugins()} if classes else set()
    missing = [cls for cls in classes if cls not in known]
    path = _import_path()
    if not missing:
        return path
    for cls in missing:
        if "<locals>" in cls.__qualname__ or cls.__module__ == "__main__":
            raise ValueError(f"{python_name(cls)}: another process cannot import it; move it into a module")
    info = directory / f"{_MODULE}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (directory / f"{_MODULE}.py").write_text(_hooks_of(missing), "utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_MODULE}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[klamm]\nunder-test = {_MODULE}\n", "utf-8")
    return [str(directory), *path]


def _hooks_of(classes: Sequence[type]) -> str:
    """Returns the source of a module whose hooks return these classes."""
    text = "from klamm_plugins.hookspecs import hookimpl\n"
    for hook, bases in _HOOKS.items():
        found = [cls for cls in classes if issubclass(cls, bases)]
        if not found:
            continue
        imports = "".join(f"    import {module}\n" for module in sorted({cls.__module__ for cls in found}))
        names = ", ".join(python_name(cls) for cls in found)
        text += f"\n\n@hookimpl\ndef {hook}():\n{imports}    return [{names}]\n"
    strangers = [python_name(cls) for cls in classes if not issubclass(cls, sum(_HOOKS.values(), ()))]
    if strangers:
        raise ValueError(
            f"{', '.join(strangers)}: no connector, converter, transform, predicate or mirror plugin"
        )
    return text


def _import_path() -> list[str]:
    """Returns what the test process added to the interpreter's own import path, such as pytest's `pythonpath`."""
    usual = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    usual.add(os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), "lib-dynload"))  # noqa: PTH118
    return [p for p in sys.path if Path(p).is_dir() and p and os.path.realpath(p) not in usual]
