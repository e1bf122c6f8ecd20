"""The MariaDB of the tests keeps what it has committed when it is killed, and goes on."""

import pytest
from support.mariadb import MariaDB, require

pytestmark = pytest.mark.usefixtures("mariadb_server")


def test_killed_and_started_again_it_has_its_rows_and_its_position():
    require()
    with MariaDB() as server:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE TABLE d.t (id INT PRIMARY KEY)")
        server.sql("INSERT INTO d.t VALUES (1)")
        position = server.sql("SELECT @@gtid_binlog_pos")
        server.kill()
        server.start()
        assert server.sql("SELECT id FROM d.t") == [(1,)]
        assert server.sql("SELECT @@gtid_binlog_pos") == position
        assert server.sql("SELECT @@binlog_row_metadata, @@binlog_format") == [("FULL", "ROW")]
