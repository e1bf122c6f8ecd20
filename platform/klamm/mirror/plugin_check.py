"""Validates connectors whose configurations name plugin classes, in a process of its own: no other process runs plugin code.

`python -m klamm.mirror.plugin_check` reads configurations by connector as JSON, and prints keys and errors as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from klamm_base.errors import KlammError
from klamm_mirror.plugin import CONNECTORS

TIMEOUT_S: Final = 60.0

Errors = list[tuple[str, str]]
"""Keys and what is wrong with their values."""


def errors_in_child(configs: Mapping[str, Mapping[str, str]]) -> Errors:
    """Returns the errors of connectors' configurations. Raises KlammError when the process fails."""
    command = [sys.executable, "-m", "klamm.mirror.plugin_check"]
    given = json.dumps({name: dict(config) for name, config in configs.items()})
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as e:
        last = (getattr(e, "stderr", None) or str(e)).strip().splitlines()[-1]
        raise KlammError(f"the plugin classes of the mirror cannot be checked: {last}") from None
    return [(key, error) for key, error in json.loads(done.stdout.splitlines()[-1])]


def errors_of(configs: Mapping[str, Mapping[str, str]]) -> Errors:
    """Returns the errors of connectors' configurations, in this process."""
    classes = {connector.__name__: connector for connector in CONNECTORS}
    return [
        (value.name, error)
        for name, config in configs.items()
        for value in classes[name].validate(config)
        for error in value.errors
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(errors_of(json.load(sys.stdin))))
