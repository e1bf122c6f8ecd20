"""Checks that a database's driver is installed: SQLAlchemy brings none, and Python only SQLite's."""

from __future__ import annotations

from klamm_base.extras import how_to_install
from klamm_connectors.sql.urls import masked, to_sqlalchemy
from klamm_plugins.errors import ConfigError

KEY = "connection.url"


def check_driver(url: str, dialect: str = "") -> None:
    """Raises ConfigError for a database that SQLAlchemy does not know, or whose driver is not installed."""
    import sqlalchemy as sa  # only where somebody asks: it takes a while

    try:
        sa.make_url(to_sqlalchemy(url, dialect)).get_dialect().import_dbapi()
    except sa.exc.NoSuchModuleError:
        raise unknown_database(url) from None
    except ModuleNotFoundError as e:
        raise missing_driver(url, e.name) from None
    except (sa.exc.ArgumentError, ValueError, TypeError):
        raise ConfigError(f"{KEY}={masked(url)} is no address of a database", key=KEY) from None


def unknown_database(url: str) -> ConfigError:
    return ConfigError(f"{KEY}={masked(url)}: this kind of database is unknown", key=KEY)


def missing_driver(url: str, module: str | None) -> ConfigError:
    """Returns the error for a driver whose `module` cannot be imported."""
    extra = {"pymysql": "mysql", "psycopg": "postgresql"}.get(module or "")
    how = how_to_install(extra) if extra else f"pip install '{module}'"
    return ConfigError(
        f"{KEY}={masked(url)}: its driver, the Python package {module}, is not installed: {how}",
        key=KEY,
    )
