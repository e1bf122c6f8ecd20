"""The sentences about classes that nobody has."""

import pytest

from klamm_plugins.discovery import unknown_class, unknown_connector

ALIASES = ["MySqlSource", "MySqlConnector", "SqlSink", "JdbcSinkConnector"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("io.debezium.connector.mysql.MySQLConnector", "did you mean MySqlConnector?"),
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "there is none here: use MySqlSource"),
        ("io.debezium.connector.postgresql.PostgresConnector", "let Debezium write the topics"),
        ("MySqlSorce", "did you mean MySqlSource?"),
    ],
)
def test_an_unknown_connector_is_told_what_to_use(name, said):
    assert said in unknown_connector(name, ALIASES)


def test_a_transform_of_debezium_that_is_not_here_is_told_what_to_use():
    said = unknown_class("io.debezium.transforms.TimezoneConverter", ["TimestampConverter$Value"])
    assert "there is no such transform here: write one in Python (docs/migrating.md)" in said
