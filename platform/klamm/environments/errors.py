"""The errors of plugin packages: one tree, each error a sentence for the operator."""

from __future__ import annotations

from klamm_base.errors import KlammError


class EnvironmentFailure(KlammError):
    """A plugin package or a set of them cannot be used."""


class BadRequirement(EnvironmentFailure):
    """The request is no requirement, wheel or folder."""


class Unresolvable(EnvironmentFailure):
    """No set of versions satisfies the packages, or one of the packages cannot be found."""


class ToolFailure(EnvironmentFailure):
    """The installer (uv or pip) is missing, failed, or took too long."""


class NotInstalled(EnvironmentFailure):
    """There is no such plugin package."""


class NoPlugins(EnvironmentFailure):
    """The package was installed and has no entry point in the group `klamm`."""
