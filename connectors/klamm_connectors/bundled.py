"""The common part of the connector classes of this package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from klamm_base.version import __version__
from klamm_plugins.connector import Connector


class BundledConnector(Connector):
    """A connector of Klamm's own version, whose tasks get its configuration as it is."""

    one_task: ClassVar[bool] = False
    """True where the work cannot be divided. Otherwise there are as many tasks as allowed."""

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    @abstractmethod
    def check(cls, props: Mapping[str, str]) -> None:
        """Raises ConfigError if the configuration as a whole cannot work."""

    def start(self, props: Mapping[str, str]) -> None:
        self.check(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props) for _ in range(1 if self.one_task else max_tasks)]
