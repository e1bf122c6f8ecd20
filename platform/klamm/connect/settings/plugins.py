"""Worker properties about plugin packages, and the default plugin directory. No I/O but the environment's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from klamm.environments.tools import Sources
from klamm_base.configdef import ConfigDef, Importance, Type
from klamm_base.files import make_private_folder

DIRECTORY_VARIABLE: Final = "KLAMM_PLUGINS_DIRECTORY"

PLUGIN_CONFIG: Final = (
    ConfigDef()
    .define(
        "plugins.directory",
        Type.STRING,
        None,
        importance=Importance.MEDIUM,
        documentation="The folder for installed plugin packages and their environments. By default the folder that "
        f"{DIRECTORY_VARIABLE} names, else klamm/plugins in the user's data folder (~/.local/share).",
    )
    .define(
        "plugins.index.url",
        Type.STRING,
        None,
        importance=Importance.LOW,
        documentation="The package index that plugins are installed from. Without it the one that uv or pip is "
        "configured with.",
    )
    .define(
        "plugins.find.links",
        Type.LIST,
        [],
        importance=Importance.LOW,
        documentation="Further folders and pages with packages, besides the index.",
    )
    .define(
        "plugins.offline",
        Type.BOOLEAN,
        False,
        importance=Importance.LOW,
        documentation="true: install packages only from plugins.find.links and wheels, without an index.",
    )
)


def default_directory() -> Path:
    """Returns the default plugin directory, which the worker and `klamm plugins` share."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "klamm" / "plugins"


def directory_of(values: Mapping[str, Any]) -> Path:
    given = values["plugins.directory"]
    return Path(given).expanduser() if given else default_directory()


def not_writable(values: Mapping[str, Any]) -> str | None:
    """Returns the reason why packages cannot be installed in the plugin directory, None if they can. Creates a
    directory that the user has named.
    """
    directory = directory_of(values)
    asked = values["plugins.directory"] or os.environ.get(DIRECTORY_VARIABLE)
    why = None
    try:
        if asked:
            make_private_folder(directory)
        there = next(each for each in (directory, *directory.parents) if each.exists())
        if not there.is_dir():
            why = f"{there} is not a folder"
        elif not os.access(there, os.W_OK | os.X_OK):
            why = f"{there} cannot be written by this user"
    except OSError as e:
        why = e.strerror or str(e)
    if why is None:
        return None
    return (
        f"plugins.directory: plugin packages cannot be installed or removed in {directory}: {why}; set plugins.directory (or "
        f"{DIRECTORY_VARIABLE}) to a folder that this worker may write"
    )


def sources_of(values: Mapping[str, Any]) -> Sources:
    return Sources(
        index_url=values["plugins.index.url"],
        find_links=tuple(values["plugins.find.links"]),
        offline=values["plugins.offline"],
    )
