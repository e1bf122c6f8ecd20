"""The version of the package, which all its plugins say.

Two versions of a package may be installed side by side; configurations choose by what `version()` says.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The version in pyproject.toml, of the package that this code was installed with."""
    try:
        return version("klamm-example-plugin")
    except PackageNotFoundError:  # run from its folder, not installed
        return "0+unknown"
