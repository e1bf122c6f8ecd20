"""The connector class of FileStreamSink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.file.sink.config import config_def, parse
from klamm_plugins.connector import SinkConnector
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.records import TopicPartition

if TYPE_CHECKING:
    from klamm_connectors.file.sink.task import FileStreamSinkTask


class FileStreamSinkConnector(BundledConnector, SinkConnector):
    """A connector whose tasks all append to one file. Each batch is one write, so their lines do not mix."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    former_names = ("klamm_connectors.file.sink.FileStreamSinkConnector",)
    original_keys = KeyTable("klamm_connectors.file", "sink")

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def task_class(cls) -> type[FileStreamSinkTask]:
        from klamm_connectors.file.sink.task import FileStreamSinkTask

        return FileStreamSinkTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts any offset: the file stores no offsets."""
        return True
