"""The connector class of FileStreamSource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.file.source.config import config_def, file_missing, parse
from klamm_connectors.file.source.positions import FILENAME, POSITION, check_offset, unusable
from klamm_plugins.connector import SourceConnector, SourceOffset, SourcePartition
from klamm_plugins.errors import ConnectError
from klamm_plugins.original_keys import KeyTable

if TYPE_CHECKING:
    from klamm_connectors.file.source.task import FileStreamSourceTask


class FileStreamSourceConnector(BundledConnector, SourceConnector):
    """A connector with one task, which reads one file."""

    kafka_name = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    former_names = ("klamm_connectors.file.source.FileStreamSourceConnector",)
    original_keys = KeyTable("klamm_connectors.file", "source")
    one_task = True

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        values = super().validate(props)
        for value in values:
            if value.name == "file" and not value.errors and not value.value:
                value.errors.append(file_missing(value.value))
        return values

    @classmethod
    def task_class(cls) -> type[FileStreamSourceTask]:
        from klamm_connectors.file.source.task import FileStreamSourceTask

        return FileStreamSourceTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    @classmethod
    def exactly_once_support(cls, props: Mapping[str, str]) -> bool:
        """Returns True: a position is the byte after a line, so a committed position is where the next line begins."""
        return True

    @classmethod
    def alter_offsets(
        cls, props: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        """Accepts positions of files that were configured before, and any removal, as Kafka does.

        In the configured file, a position must be one from which the task could continue: at any other position the
        task would read the file from its beginning.
        """
        path = parse(props).path
        for partition, offset in offsets:
            if offset is None:
                continue
            check_offset(offset)
            if FILENAME not in partition:
                raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
            why = unusable(path, offset[POSITION]) if partition[FILENAME] == path else None
            if why is not None:
                raise ConnectError(
                    f"The position {offset[POSITION]} cannot be used: {why}. Give the byte at which a line begins (0 is "
                    "the first)"
                )
        return True
