"""Passwords stay out of plans, logs and lists of processes."""

from __future__ import annotations

import pytest

from klamm_spark.secrets import bare, is_secret, without_user


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://u:hush@a:9200,http://u:hush@b:9200", "http://a:9200,http://b:9200"),
        ("http://u:hu;sh@a:9200/x?api_key=hush,1", "http://a:9200/x"),
        ("jdbc:sqlserver://h:1433;user=x;password=hush", "jdbc:sqlserver://h:1433"),
        ("jdbc:oracle:thin:scott/hush@//h:1521/svc", "jdbc:oracle:thin://h:1521/svc"),
        ("jdbc:postgresql://db/shop?user=x&password=hush", "jdbc:postgresql://db/shop"),
        ("jdbc:mysql://u:hush@db:3306/shop", "jdbc:mysql://db:3306/shop"),
        ("jdbc:mysql://address=(host=h)(user=u)(password=hush)/shop", "jdbc:mysql://address=(host=h)/shop"),
        ("jdbc:derby:x;user=a;password=hush", "jdbc:derby:x"),
        ("mysql+pymysql://u:hush@h/db", "mysql+pymysql://h/db"),
    ],
)
def test_addresses_without_their_passwords(address: str, shown: str) -> None:
    assert bare(address) == shown


def test_paths_may_have_what_addresses_end_with() -> None:
    assert without_user("s3a://key:hush@bucket/2026-0?/x") == "s3a://bucket/2026-0?/x"
    assert without_user("/data//me@home/2026-0?") == "/data//me@home/2026-0?"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x", True),
        ("spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net", "x", True),
        ("spark.hadoop.fs.azure.sas.container.account", "x", True),
        ("spark.kafka.clusters.a.sasl.jaas.config", "x", True),
        ("spark.hadoop.google.cloud.auth.service.account.private.key", "x", True),
        ("spark.sql.catalog.shop.uri", "jdbc:postgresql://u:hush@db/x", True),
        ("spark.sql.catalog.shop.uri", "jdbc:postgresql://db/x?user=a&password=hush", True),
        ("spark.sql.catalog.shop.uri", "http://db:8181/x", False),
        ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x", False),
        ("spark.driver.memory", "2g", False),
        ("spark.sql.shuffle.partitions", "4", False),
    ],
)
def test_settings_that_are_secrets(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret
