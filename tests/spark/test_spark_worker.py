"""Python processes of Spark that serve batch after batch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from support import needs

pytest.importorskip("pyspark", reason=needs.absent("pyspark", "spark"))

from pyspark.sql.types import BinaryType, StructField, StructType

from klamm_spark.datasource.source import KlammDataSource
from klamm_spark.datasource.worker import settle

SCHEMA = StructType([StructField("value", BinaryType())])
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def unsettled() -> Iterator[None]:
    settle.cache_clear()
    yield
    gc.unfreeze()
    settle.cache_clear()


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize(
    "make",
    [
        lambda: KlammDataSource({**OPTIONS, "topic": "t"}).streamWriter(SCHEMA, False),
        lambda: KlammDataSource({**OPTIONS, "topic": "t"}).writer(SCHEMA, False),
        lambda: KlammDataSource({**OPTIONS, "subscribe": "t"}).streamReader(SCHEMA),
    ],
    ids=["stream writer", "writer", "stream reader"],
)
def test_a_process_does_not_collect_its_modules_after_every_batch(make: Callable[[], object]) -> None:
    gc.unfreeze()
    make()
    assert gc.get_freeze_count() > 1000
