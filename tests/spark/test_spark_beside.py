"""What is kept beside a checkpoint, in a file system that Spark reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from klamm_spark.beside import HadoopFiles

pytestmark = [pytest.mark.spark]


def test_a_file_is_replaced_whole_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}/cp/")
    assert files.read("plan.json") is None
    assert files.names("folder") == []
    files.write("plan.json", b"one")
    files.write("folder/b", b"\x00\xff")
    files.write("folder/a", b"")
    assert files.read("plan.json") == b"one"
    assert (files.read("folder/b"), files.read("folder/a")) == (b"\x00\xff", b"")
    assert [n for n in files.names("folder") if not n.startswith(".")] == ["a", "b"]
    with pytest.raises(TypeError):
        files.write("plan.json", "no bytes")  # type: ignore[arg-type]
    assert files.read("plan.json") == b"one"
    half = files._writer.createAtomic(files._path(f"file://{tmp_path}/cp/plan.json"), True)
    half.write(bytearray(b"tw"))
    half.flush()
    assert files.read("plan.json") == b"one", "a writer that is killed here leaves it as it was"
    half.cancel()
    files.write("plan.json", b"two")
    assert files.read("plan.json") == b"two"
