"""Fixtures of the MySQL source's tests: tasks on a database of the test's own, and a connection to it."""

import pytest
from support.mysql_source import Source


@pytest.fixture
def source(mariadb, mariadb_database):
    started = []

    def start(committed=None, **more):
        found = Source(mariadb, mariadb_database, committed, **more)
        started.append(found)
        return found

    start.sql = lambda statement, *args: mariadb.sql(statement, args or None, database=mariadb_database)
    start.database = mariadb_database
    yield start
    for one in started:
        one.task.stop()


@pytest.fixture
def connect(mariadb, mariadb_database):
    connection = mariadb.connect(mariadb_database, autocommit=False)
    yield connection
    connection.close()
