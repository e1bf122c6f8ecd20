"""The cluster that a command writes to, where it is another than the one that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from klamm.cli.cluster import AdminCluster, Cluster
from klamm_base.errors import ConfigError

C = TypeVar("C", bound=Cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Another cluster by a context or an address; none: the same cluster."""

    to_context: Annotated[
        str | None,
        typer.Option("--to-context", help="The cluster of this context; default: the same cluster."),
    ] = None
    to_bootstrap: Annotated[
        str | None, typer.Option("--to-bootstrap-server", help="Or HOST:PORT of its brokers.")
    ] = None
    to_command_config: Annotated[
        Path | None, typer.Option("--to-command-config", help="Client settings for it.")
    ] = None

    def cluster(self, source: C) -> C:
        """Return the cluster to write to. Raises ConfigError, KlammError."""
        if self.to_context is not None and self.to_bootstrap is not None:
            raise ConfigError("--to-context and --to-bootstrap-server: give one of them")
        bootstrap, config = self.to_bootstrap, self.to_command_config
        if self.to_context is not None:
            from klamm.cli.saved_contexts import load

            settings = load().get(self.to_context)
            if "bootstrap_server" not in settings:
                raise ConfigError(f"context {self.to_context!r} has no bootstrap server")
            bootstrap = settings["bootstrap_server"]
            if config is None and "command_config" in settings:
                config = Path(settings["command_config"])
        if bootstrap is None:
            if config is not None:
                raise ConfigError("--to-command-config needs --to-bootstrap-server or --to-context")
            return source
        more = {"timeout": source.timeout} if isinstance(source, AdminCluster) else {}
        return type(source)(bootstrap=bootstrap, command_config=config, **more)
