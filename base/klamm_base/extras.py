"""The one sentence of all messages that tells how to install an extra of Klamm."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Returns what to do for an extra of pyproject.toml: no index has Klamm, and Debian's own pip installs into environments only."""
    return f"in a checkout of Klamm and a virtual environment, pip install '.[{extra}]'"
