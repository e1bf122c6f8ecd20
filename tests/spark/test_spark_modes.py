"""Modes that our writers do not have are refused: what is there would stay, and nobody would be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.spark import require_spark

from klamm_base.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.usefixtures("apache_spark")
def test_overwrite_is_refused_and_complete_mode_is_not(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import StringType, StructType

    from klamm_spark.datasource.source import KlammDataSource
    from klamm_spark.elasticsearch import ElasticsearchDataSource
    from klamm_spark.sql import SqlDataSource

    schema = StructType().add("id", StringType()).add("value", StringType())
    table = {"url": f"sqlite:///{tmp_path}/t.db", "table": "t", "keys": "id", "create": "true"}
    hosts = {"hosts": "http://127.0.0.1:1", "index": "i", "id": "id"}
    for source in (
        KlammDataSource({**SERVERS, "topic": "t"}),
        ElasticsearchDataSource(hosts),
        SqlDataSource(table),
    ):
        with pytest.raises(ConfigError, match='no mode "overwrite"'):
            source.writer(schema, overwrite=True)
    assert SqlDataSource(table).streamWriter(schema, overwrite=True)
    assert ElasticsearchDataSource(hosts).streamWriter(schema, overwrite=True)
    values = StructType().add("value", StringType())
    assert KlammDataSource({**SERVERS, "topic": "t"}).streamWriter(values, overwrite=True)


@pytest.mark.usefixtures("apache_spark")
def test_a_stream_is_not_refreshed() -> None:
    require_spark()
    from pyspark.sql.types import BinaryType, StructType

    from klamm_spark.datasource.source import KlammDataSource

    options = {**SERVERS, "subscribe": "t", "refreshEachBatch": "true"}
    schema = StructType().add("value", BinaryType())
    assert KlammDataSource(options).reader(schema).partitions()[0].value is None, "planned when it is read"
    with pytest.raises(ConfigError, match="refreshEachBatch is for tables"):
        KlammDataSource(options).streamReader(schema)
