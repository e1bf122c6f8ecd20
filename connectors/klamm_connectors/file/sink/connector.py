"""The connector class of FileStreamSink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef
from klamm_base.version import __version__
from klamm_connectors.file.sink.config import config_def, parse
from klamm_plugins.connector import SinkConnector
from klamm_plugins.records import TopicPartition

if TYPE_CHECKING:
    from klamm_connectors.file.sink.task import FileStreamSinkTask


class FileStreamSinkConnector(SinkConnector):
    """A connector whose tasks all append to one file. Each batch is one write, so their lines do not mix."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    former_names = ("klamm_connectors.file.sink.FileStreamSinkConnector",)

    def __init__(self) -> None:
        self._props: dict[str, str] = {}

    @classmethod
    def version(cls) -> str:
        return __version__

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def task_class(cls) -> type[FileStreamSinkTask]:
        from klamm_connectors.file.sink.task import FileStreamSinkTask

        return FileStreamSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [dict(self._props) for _ in range(max_tasks)]

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts any offset: the file stores no offsets."""
        return True
