"""The cluster's settings that can change at run time: `klamm-cluster.json` in the first log directory.

The file holds the dynamic configurations of resources (brokers, groups, client metrics) and the finalized feature
levels; the topic registry holds those of topics. Kafka keeps this in its metadata log; a single node needs only a small
file that is replaced as a whole. A method returns once its change is on the disk; a method that raises has changed
nothing, except with NotSynced. Event loop's thread only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from klamm_base.files import write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.server import features

FILE_NAME: Final = "klamm-cluster.json"
VERSION: Final = 1
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ResourceType(StrEnum):
    """The kinds of resources whose configurations are kept here. A broker's name is its id, or "" for all brokers."""

    BROKER = "BROKER"
    GROUP = "GROUP"
    CLIENT_METRICS = "CLIENT_METRICS"


Listener = Callable[[ResourceType, str], None]
Resource = tuple[ResourceType, str]


class ClusterConfig:
    """The content of the file. `epoch` counts its changes: by it clients recognize the newer of two sets of features."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._configs: dict[Resource, dict[str, str]] = {}
        self._listeners: list[Listener] = []
        self.features: Mapping[str, int] = dict(features.LATEST)
        self.epoch = 1

    @classmethod
    def load(
        cls, path: Path, *, new: Mapping[Resource, Mapping[str, str]] = MappingProxyType({})
    ) -> ClusterConfig:
        """Read the file; if there is none, start with the configurations `new`. Raises DirectoryError."""
        found = cls(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found._configs = {resource: dict(configs) for resource, configs in new.items()}
            return found
        except (ValueError, RecursionError) as e:
            raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise DirectoryError(f"{path}: no document of version {VERSION}")
        try:
            found._take(document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
        return found

    def _take(self, document: Mapping[str, Any]) -> None:
        self.epoch = int(document["epoch"])
        stored = {str(name): int(level) for name, level in document["features"].items()}
        self.features = {name: stored.get(name, level) for name, level in features.LATEST.items()}
        for kind, resources in document["configs"].items():
            for name, configs in resources.items():
                own = {str(key): str(value) for key, value in configs.items()}
                self._configs[ResourceType(kind), str(name)] = own

    # ---- configurations

    def get(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Returns a resource's own configurations, as texts; empty if it has none."""
        own = self._configs.get((resource_type, name))
        return _NOTHING if own is None else MappingProxyType(own)

    def names(self, resource_type: ResourceType) -> list[str]:
        """Returns the resources of a type that have configurations of their own, sorted."""
        return sorted(name for kind, name in self._configs if kind is resource_type)

    def alter(self, resource_type: ResourceType, name: str, configs: Mapping[str, str]) -> None:
        """Replace a resource's own configurations; an empty mapping forgets the resource. Raises OSError."""
        resource = (resource_type, name)
        changed = {**self._configs, resource: dict(configs)}
        if not configs:
            del changed[resource]

        def take() -> None:
            self._configs = changed
            for listener in self._listeners:
                listener(resource_type, name)

        self._save(changed, self.features, take)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(resource_type, name)` after every change of configurations."""
        self._listeners.append(listener)

    # ---- features

    def update_features(self, levels: Mapping[str, int]) -> None:
        """Replace the finalized levels; `features.updated` has checked them. Raises OSError."""

        def take() -> None:
            self.features = dict(levels)

        self._save(self._configs, levels, take)

    def _save(
        self,
        configs: Mapping[Resource, Mapping[str, str]],
        levels: Mapping[str, int],
        take: Callable[[], None],
    ) -> None:
        by_kind: dict[str, dict[str, Mapping[str, str]]] = {}
        for (kind, name), own in sorted(configs.items(), key=lambda item: item[0]):
            by_kind.setdefault(kind, {})[name] = own
        epoch = self.epoch + 1
        document = {"version": VERSION, "epoch": epoch, "features": dict(levels), "configs": by_kind}

        def written() -> None:
            self.epoch = epoch
            take()

        write_and_take(self._path, (json.dumps(document, indent=1) + "\n").encode(), written)
