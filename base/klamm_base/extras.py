"""The sentence with which messages tell users how to install an extra of Klamm."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """Returns the instruction that installs an extra of pyproject.toml.

    It names a checkout, because no package index has Klamm, and a virtual environment, because Debian's own pip
    installs into nothing else.
    """
    return f"in a checkout of Klamm and a virtual environment, pip install '.[{extra}]'"
