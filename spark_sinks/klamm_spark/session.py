"""A Spark session with our formats, and the environment that its Java and Python workers need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from klamm_spark.java import need_java


def defaults(master: str) -> dict[str, str]:
    """Settings that a job may override. A local session answers on loopback only and has no web page."""
    common = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # A query without a trigger of its own asks for new records this often; Spark's default is 10 ms
        "spark.sql.streaming.pollingDelay": "100ms",
        # Options that Spark must not show in plans and logs
        "spark.sql.redaction.options.regex": "(?i)url|password|secret|token|jaas|api_key|hosts|\\.key",
    }
    if not master.startswith("local"):
        return common
    return (
        common
        | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "4",  # the default of 200 is for a cluster; every one costs a task a batch
        }
    )


def prepare_environment(master: str, python_path: Iterable[str] = ()) -> None:
    """Set JAVA_HOME and what workers need. Raises JavaError where there is no Java."""
    os.environ.update(need_java().environment())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    extra = [str(Path(p).resolve()) for p in python_path]
    for path in extra:
        if path not in sys.path:
            sys.path.insert(0, path)
    # Workers are processes of the Java side: they find what this process finds
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in [*extra, *inherited] if p)


def open_session(
    name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start (or get) the process's session and register our formats. Takes five to ten seconds."""
    prepare_environment(master)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (defaults(master) | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    register_formats(spark)
    return spark


def register_formats(spark: SparkSession) -> None:
    """Make `klamm`, `klamm-elasticsearch` and `klamm-sql` known to a session."""
    from klamm_spark.datasource.source import KlammDataSource
    from klamm_spark.elasticsearch import ElasticsearchDataSource
    from klamm_spark.sql import SqlDataSource

    for source in (KlammDataSource, ElasticsearchDataSource, SqlDataSource):
        spark.dataSource.register(source)
