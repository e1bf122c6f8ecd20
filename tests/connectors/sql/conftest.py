"""The SQL sink on MariaDB, PostgreSQL and SQLite: one fixture for each, and `database` for all of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.sql_sink import Sinks


@pytest.fixture
def on_maria(mariadb, mariadb_database) -> Iterator[Sinks]:
    url = f"jdbc:mariadb://127.0.0.1:{mariadb.port}/{mariadb_database}?useSSL=false"
    props = {"connection.url": url, "connection.user": "root"}
    sinks = Sinks(props, lambda statement: mariadb.sql(statement, database=mariadb_database))
    yield sinks
    sinks.stop()


@pytest.fixture
def on_postgres(postgresql, postgresql_database) -> Iterator[Sinks]:
    props = {"connection.url": postgresql.url(postgresql_database), "connection.user": "klamm"}
    sinks = Sinks(props, lambda statement: postgresql.sql(statement, postgresql_database))
    yield sinks
    sinks.stop()


@pytest.fixture
def on_sqlite(tmp_path) -> Iterator[Sinks]:
    def sql(statement):
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
            return connection.execute(statement).fetchall()

    sinks = Sinks({"connection.url": f"sqlite:///{tmp_path}/x.db"}, sql)
    yield sinks
    sinks.stop()


@pytest.fixture(
    params=[
        "on_sqlite",
        pytest.param("on_maria", marks=pytest.mark.needs("mariadb")),
        pytest.param("on_postgres", marks=pytest.mark.needs("postgresql")),
    ]
)
def database(request) -> Sinks:
    return request.getfixturevalue(request.param)
