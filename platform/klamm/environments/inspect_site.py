"""Looks at the plugins of one environment, in a process of its own: importing a plugin runs its code.

`python -m klamm.environments.overlay SITE klamm.environments.inspect_site SITE FD`: the answer is JSON on the
descriptor FD, because plugins may print. Only entry points of packages in SITE count.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import distributions
from typing import Any

from klamm_plugins.discovery import GROUP, PluginDesc, PluginManager


def look(site: str) -> dict[str, Any]:
    """Returns a row for each plugin of a site folder, and for each entry point that could not be loaded."""
    found = [e for d in distributions(path=[site]) for e in d.entry_points if e.group == GROUP]
    manager = PluginManager.of(found)
    return {
        "entry_points": sorted(e.name for e in found),
        "plugins": [row(each) for each in manager.plugins()],
        "broken": [list(each) for each in manager.broken],
    }


def row(plugin: PluginDesc) -> list[object]:
    """Returns class, type, version, names and entry point: the facts that the worker keeps of a plugin
    (`PluginInfo`).
    """
    return [
        plugin.class_name,
        plugin.type.value,
        plugin.version,
        plugin.names,
        [plugin.location, plugin.module],
    ]


def main(argv: list[str]) -> None:
    site, fd = argv
    answer = json.dumps(look(site)).encode()
    with os.fdopen(int(fd), "wb") as out:
        out.write(answer)
    sys.stdout.flush()
    os._exit(0)  # threads that a plugin has started must not keep it


if __name__ == "__main__":
    main(sys.argv[1:])
