"""The hooks that a plugin package may implement: the whole of the extension surface.

A package names a module in its entry points, group `klamm`. Functions of that module that are marked with
`@hookimpl` are called. Klamm's own plugins are registered in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from klamm_plugins.command import Command
    from klamm_plugins.config_provider import ConfigProvider
    from klamm_plugins.connector import SinkConnector, SourceConnector
    from klamm_plugins.converter import Converter, HeaderConverter
    from klamm_plugins.mirror import MirrorPlugin
    from klamm_plugins.rest_extension import RestExtension
    from klamm_plugins.transform import Predicate, Transformation

PROJECT: Final = "klamm"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_connectors() -> Sequence[type[SourceConnector] | type[SinkConnector]]:
    """Returns the connector classes of this package."""
    raise NotImplementedError


@hookspec
def register_converters() -> Sequence[type[Converter] | type[HeaderConverter]]:
    """Returns the converter classes of this package; a class may be of both kinds."""
    raise NotImplementedError


@hookspec
def register_transforms() -> Sequence[type[Transformation]]:
    """Returns the transform classes of this package."""
    raise NotImplementedError


@hookspec
def register_predicates() -> Sequence[type[Predicate]]:
    """Returns the predicate classes of this package."""
    raise NotImplementedError


@hookspec
def register_mirror_plugins() -> Sequence[type[MirrorPlugin]]:
    """Returns the filters, replication policies and forwarding admins of this package."""
    raise NotImplementedError


@hookspec
def register_config_providers() -> Sequence[type[ConfigProvider]]:
    """Returns the config provider classes of this package; they run in the worker."""
    raise NotImplementedError


@hookspec
def register_rest_extensions() -> Sequence[type[RestExtension]]:
    """Returns the REST extension classes of this package; they run in the worker."""
    raise NotImplementedError


@hookspec
def register_commands() -> Sequence[Command]:
    """Returns the `klamm NAME` commands of this package; each is imported when it is run."""
    raise NotImplementedError
