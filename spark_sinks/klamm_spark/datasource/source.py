"""The data source class behind `format("klamm")`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from klamm_base.errors import ConfigError
from klamm_spark.datasource.agent_lines import COLUMNS
from klamm_spark.datasource.options import WriteOptions, read_options, write_options
from klamm_spark.datasource.reader import KlammBatchReader, KlammStreamReader
from klamm_spark.datasource.worker import settle
from klamm_spark.datasource.writer import KlammBatchWriter, KlammStreamWriter, check_columns

_SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class KlammDataSource(DataSource):
    """The data source. Columns and options are those of Spark's Kafka source and sink; docs/spark.md has the list."""

    @classmethod
    def name(cls) -> str:
        return "klamm"

    def schema(self) -> str:
        options = read_options(self.options)
        lines = "".join(f", {name} {kind}" for name, kind in COLUMNS.items()) if options.agent_lines else ""
        return _SCHEMA + lines + (_HEADERS if options.include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return KlammBatchReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        settle()
        return KlammStreamReader(read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError(
                'format klamm has no mode "overwrite": records that are in a topic stay; use append',
                key="mode",
            )
        return KlammBatchWriter(self._to_write(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return KlammStreamWriter(self._to_write(schema))

    def _to_write(self, schema: StructType) -> WriteOptions:
        settle()  # Spark asks for a writer in every batch, in a process that serves nothing else
        options = write_options(self.options)
        check_columns(schema, options.topic)
        return options
