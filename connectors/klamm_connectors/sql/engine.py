"""Connections to the database: an engine with sessions that read moments in `db.timezone` and cut no value off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa

from klamm_connectors.sql.config import Settings
from klamm_connectors.sql.drivers import missing_driver, unknown_database
from klamm_connectors.sql.urls import masked, to_sqlalchemy
from klamm_plugins.errors import ConfigError

log = logging.getLogger(__name__)

_UNKNOWN_ZONE: Final = 1298
_SQLITE_WAIT_S: Final = 5
_MULTI_STATEMENTS: Final = 1 << 16  # PyMySQL's CLIENT.MULTI_STATEMENTS: a text may have many UPDATEs


def make_engine(settings: Settings) -> sa.Engine:
    shown = masked(settings.url)
    try:
        url = sa.make_url(to_sqlalchemy(settings.url, settings.dialect))
        if settings.user:
            url = url.set(username=settings.user)
        if settings.password is not None:
            url = url.set(password=settings.password.value)
        is_sqlite = url.get_backend_name() == "sqlite"
        more: dict[str, Any] = {}
        arguments: dict[str, Any] = {"timeout": _SQLITE_WAIT_S} if is_sqlite else {}
        if url.get_driver_name() == "pymysql":
            arguments = {"connect_timeout": 30, "read_timeout": 300, "write_timeout": 300}
            url = url.update_query_dict({"charset": "utf8mb4"})
            if settings.insert_mode == "update":
                flags = int(str(url.query.get("client_flag", 0))) | _MULTI_STATEMENTS
                url = url.update_query_dict({"client_flag": str(flags)})
            more["paramstyle"] = "format"
        if url.get_driver_name() == "psycopg":
            # A statement that it prepares in a pipeline that fails is not there later, when it takes it for prepared.
            arguments = {"connect_timeout": 30, "prepare_threshold": None}
        given = {name: value for name, value in arguments.items() if name not in url.query}
        engine = sa.create_engine(
            url, connect_args=given, pool_pre_ping=not is_sqlite, hide_parameters=True, **more
        )
    except sa.exc.NoSuchModuleError:
        raise unknown_database(settings.url) from None
    except ModuleNotFoundError as e:
        raise missing_driver(settings.url, e.name) from None
    except (sa.exc.ArgumentError, ValueError, TypeError):
        raise ConfigError(
            f"connection.url={shown} is no address of a database", key="connection.url"
        ) from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _sqlite_connected)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    elif engine.dialect.name in {"mysql", "mariadb"}:
        sa.event.listen(engine, "connect", _mysql_connected(settings.timezone))
    elif engine.dialect.name == "postgresql":
        sa.event.listen(engine, "connect", _postgresql_connected(settings.timezone))
    return engine


def _sqlite_connected(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy begins transactions, and savepoints work
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()


def _mysql_connected(zone: str) -> Callable[[Any, Any], None]:
    def connected(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            # A value that does not fit is an error instead of being cut off. Backslashes and quotes stay as the driver
            # expects.
            cursor.execute(
                "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES')"
            )
            try:  # so that a TIMESTAMP column takes a moment as the moment that it is
                cursor.execute("SET SESSION time_zone = %s", ("+00:00" if zone == "UTC" else zone,))
            except Exception as e:
                if not e.args or e.args[0] != _UNKNOWN_ZONE:
                    raise
                log.warning(
                    "the server does not know db.timezone=%s (mysql_tzinfo_to_sql makes it known): what goes to TIMESTAMP "
                    "columns is read in the session's own zone",
                    zone,
                )

    return connected


def _postgresql_connected(zone: str) -> Callable[[Any, Any], None]:
    def connected(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            # So that a TIMESTAMPTZ column takes a moment as the moment that it is.
            cursor.execute(
                "SELECT set_config('TimeZone', name, false) FROM pg_timezone_names WHERE name = %s", (zone,)
            )
            if cursor.fetchone() is None:
                log.warning(
                    "the server does not know db.timezone=%s: TIMESTAMPTZ columns are read in its own zone",
                    zone,
                )
        connection.commit()  # else the end of the first transaction would take it back

    return connected
