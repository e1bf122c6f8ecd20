"""LogTail: the log agent's inputs as a source connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.logs.config import (
    INODE,
    INPUT,
    POSITION,
    ROOT,
    TASK,
    TASKS,
    config_def,
    errors_of,
    parse,
)
from klamm_plugins.connector import SinkConnector, SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError
from klamm_plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from klamm_connectors.logs.task import LogTailTask


class LogTailConnector(BundledConnector, SourceConnector):
    """The connector LogTail: follows log files (or the journal, or syslog) on the worker's machine. Inodes spread the files over tasks."""

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        by_name = {value.name: value for value in values}
        rest = {
            name: value for name, value in props.items() if name not in by_name or not by_name[name].errors
        }
        for error in errors_of(rest):
            value = by_name.get(error.key or "", by_name["settings"])
            if not value.errors:
                value.errors.append(str(error))
        return values

    @classmethod
    def task_class(cls) -> type[LogTailTask]:
        from klamm_connectors.logs.task import LogTailTask

        return LogTailTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        tasks = max_tasks if self._props.get("type", "file") == "file" else 1
        return [self._props | {TASK: str(i), TASKS: str(tasks)} for i in range(tasks)]

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool:
        """Tells that all but syslog support exactly-once: one read is at most one transaction, and ends where the next read begins. Syslog
        cannot be read again.
        """
        return props.get("type", "file") != "syslog"

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts `{"position": byte}` for a file, where a line begins; any offset may be removed."""
        for partition, offset in offsets:
            if offset is None or INPUT in partition:
                continue
            if not isinstance(partition.get(ROOT), str) or not _is_count(partition.get(INODE)):
                raise ConnectError(
                    f"Partition objects should contain the keys '{ROOT}' (text) and '{INODE}' (number)"
                )
            if not _is_count(offset.get(POSITION)):
                raise ConnectError(
                    f"Offset objects should either be null or contain the key '{POSITION}', the byte at which a line begins"
                )
        return True


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@hookimpl
def register_connectors() -> list[type[SourceConnector] | type[SinkConnector]]:
    return [LogTailConnector]
