"""Settings of Spark's connectors that a worker without credentials refuses, and those that it takes. Pure."""

from __future__ import annotations

import pytest

from klamm.connect.rest.spark_code import PLAIN, danger
from klamm_spark import elasticsearch_options, sql_options
from klamm_spark.datasource import options


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("query.sql", "SELECT 1", "query.sql may name code to run"),
        ("spark.jars", "x.jar", "spark.jars may name code to run"),
        ("source.format", "com.acme.Evil", "source.format=com.acme.Evil may name a Java class"),
        ("output.format", "${file:/tmp/x:y}", "output.format=${file:/tmp/x:y} may name a Java class"),
        ("output.options.driver", "com.acme.Evil", "output.options.driver may name a Java class"),
        ("source.options.URL", "jdbc:derby:x;create=true", "source.options.URL may name a Java class"),
        ("source.options.url", "${file:/tmp/x:y}", "source.options.url may name a Java class"),
        ("source.options.sessionInitStatement", "CALL x()", "source.options.sessionInitStatement may name a Java class"),
        ("output.options.compression", "com.acme.Codec", "output.options.compression may name a Java class"),
        ("output.options.fs.file.impl", "com.acme.Evil", "output.options.fs.file.impl may name a Java class"),
        ("output.options.kafka.Interceptor.Classes", "a.B", "output.options.kafka.Interceptor.Classes may name a Java class"),
        ("output.options.kafka.sasl.jaas.config", "a.B required;", "output.options.kafka.sasl.jaas.config may name a Java class"),
        (
            "source.connector", "spark",
            "source.connector=spark may run Java classes that its client's settings name",
        ),
        ("output.options.a\nb", "c", "output.options.a\nb may name a Java class"),
    ],
)  # fmt: skip
def test_code_of_spark_is_told_by_its_setting(key: str, value: str, why: str) -> None:
    assert danger(key, value) == why


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source.format", "csv"),
        ("output.format", "klamm"),
        ("source.connector", "klamm"),
        ("output.options.path", "/data/of.Ours"),
        ("source.options.maxFilesPerTrigger", "1"),
        ("output.options.url", "mysql+pymysql://u:p@h/db"),
        ("output.options.url", "sqlite:///f.db"),
        ("output.options.kafka.bootstrap.servers", "h:9092"),
        ("output.formats", "a.B"),
        ("transforms.t.options.driver", "a.B"),
    ],
)
def test_other_settings_run_no_code(key: str, value: str) -> None:
    assert danger(key, value) is None


def test_options_of_our_formats_are_taken() -> None:
    """Our own formats are Python and look for no Java class. `url` is taken by its value."""
    ours = {*options._READ, *options._WRITE, *elasticsearch_options.OPTIONS, *sql_options.OPTIONS}
    assert {name.lower() for name in ours} - {"url"} <= PLAIN
