"""The files beside a checkpoint, in a file system that Spark reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from klamm_spark import beside
from klamm_spark.beside import HadoopFiles

pytestmark = pytest.mark.usefixtures("apache_spark")


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
    half = files._replacer().createAtomic(files._path(f"file://{tmp_path}/cp/plan.json"), True)
    half.write(bytearray(b"tw"))
    half.flush()
    assert files.read("plan.json") == b"one", "a writer that is killed here leaves it as it was"
    half.cancel()
    files.write("plan.json", b"two")
    assert files.read("plan.json") == b"two"


def test_an_object_stores_file_is_written_as_it_is_and_refusals_are_os_errors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_RENAMING", frozenset())
    files = HadoopFiles(spark, f"file://{tmp_path}/cp")
    files.write("plan.json", b"one")
    files.write("plan.json", b"two")
    assert files.read("plan.json") == b"two"
    assert files._replacing is None
    monkeypatch.undo()
    (tmp_path / "taken").touch()
    other = HadoopFiles(spark, f"file://{tmp_path}/taken")
    with pytest.raises(OSError, match=r"taken/plan\.json: .*taken"):
        other.write("plan.json", b"x")
