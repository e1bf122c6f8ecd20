"""How to install what an extra of Klamm brings: the one sentence that every message uses."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Returns what to do for an extra of pyproject.toml: no index has Klamm, and Debian's own pip installs into environments only."""
    return f"in a checkout of Klamm and a virtual environment, pip install '.[{extra}]'"
