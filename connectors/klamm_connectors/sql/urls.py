"""Database addresses: SQLAlchemy's URLs, the `jdbc:` forms of the JDBC sink, and their display. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from klamm_plugins.errors import ConfigError

_SCHEME: Final = re.compile(r"([a-zA-Z0-9_+]+):(.*)", re.DOTALL)
_DRIVERS: Final = {
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "sqlserver": "mssql+pymssql",
    "mssql": "mssql+pymssql",
    "oracle": "oracle+oracledb",
}
"""SQLAlchemy's name of a database with the driver that needs nothing but its Python package."""
DIALECTS: Final = {
    "MySqlDatabaseDialect": "mysql",
    "MariaDbDatabaseDialect": "mariadb",
    "PostgreSqlDatabaseDialect": "postgresql",
    "SqliteDatabaseDialect": "sqlite",
    "SqlServerDatabaseDialect": "sqlserver",
    "OracleDatabaseDialect": "oracle",
    "Db2DatabaseDialect": "db2",
    "SapHanaDatabaseDialect": "hana",
    "VerticaDatabaseDialect": "vertica",
    "GenericDatabaseDialect": "",
}
"""The original's names of dialects, with SQLAlchemy's; the generic one is the URL's."""
_PASSWORD: Final = re.compile(r"(//[^:/]*:).*@", re.DOTALL)  # to the last @: rather too much than too little
_PARAMETER: Final = re.compile(r"((?:password|passwd|pwd)=)[^&;]*", re.IGNORECASE)
_JDBC_ONLY: Final = frozenset({
    "usessl", "usetimezone", "servertimezone", "autoreconnect", "rewritebatchedstatements", "useunicode",
    "characterencoding", "allowpublickeyretrieval", "connecttimeout", "sockettimeout", "verifyservercertificate",
    "sslmode", "requiressl", "user", "password", "usecursorfetch", "zerodatetimebehavior",
})  # fmt: skip
"""Parameters of Java's MySQL drivers that PyMySQL does not know. User and password are taken from them first."""


def masked(url: str) -> str:
    """Returns the URL without its password."""
    return _PARAMETER.sub(r"\1[hidden]", _PASSWORD.sub(r"\1[hidden]@", url))


def backend(url: str) -> str:
    """Returns SQLAlchemy's name of the database of one of its URLs.

    >>> backend("mysql+pymysql://db/shop")
    'mysql'
    """
    return url.partition(":")[0].partition("+")[0]


def to_sqlalchemy(url: str, dialect: str = "") -> str:
    """Converts an address to SQLAlchemy's form; `dialect` is the original's name of another than the URL's. Raises
    ConfigError for anything else.

    >>> to_sqlalchemy("jdbc:mysql://db:3306/shop?useSSL=false"), to_sqlalchemy("jdbc:sqlite:/var/lib/x.db")
    ('mysql+pymysql://db:3306/shop', 'sqlite:////var/lib/x.db')
    """
    text = url.strip()
    is_jdbc = text.lower().startswith("jdbc:")
    match = _SCHEME.fullmatch(text[5:] if is_jdbc else text)
    if match is None:
        raise ConfigError(
            f"Invalid value {masked(url)!r} for configuration connection.url: a SQLAlchemy URL "
            "(mysql://host:3306/database, sqlite:///file.db) or a jdbc: URL is needed",
            key="connection.url",
        )
    scheme, rest = match[1].lower(), match[2]
    wanted = {name.lower(): backend for name, backend in DIALECTS.items()}.get(dialect.lower(), "")
    if is_jdbc and scheme == "oracle":
        rest = _oracle(rest, url)
    if is_jdbc and scheme == "sqlserver":
        rest = _sql_server(rest)
    if wanted and wanted != scheme.partition("+")[0]:
        scheme = wanted
    if is_jdbc and scheme == "sqlite":
        path = rest.removeprefix("//")
        return "sqlite://" if path in {"", ":memory:"} else f"sqlite:///{path}"
    if not rest.startswith("//"):
        raise ConfigError(
            f"Invalid value {masked(url)!r} for configuration connection.url: '//' is missing after {scheme}:",
            key="connection.url",
        )
    if not is_jdbc:
        return f"{_DRIVERS.get(scheme, scheme)}:{rest}"
    return f"{_DRIVERS.get(scheme, scheme)}:{_without_jdbc_parameters(rest, postgresql=scheme.startswith('postgres'))}"


def _oracle(rest: str, url: str) -> str:
    """Converts `thin:@//host:1521/service` and `thin:@host:1521:sid`, with `user/password` before the @ or without."""
    match = re.fullmatch(r"(?:thin|oci):(?:([^/@]*)/([^@]*))?@(?://)?([^:/]+)(?::(\d+))?([:/])([^?]+)", rest)
    if match is None:
        raise ConfigError(
            f"connection.url={masked(url)}: jdbc:oracle:thin:@//host:1521/service or jdbc:oracle:thin:@host:1521:sid is needed",
            key="connection.url",
        )
    user, password, host, port, sign, name = match.groups()
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    return f"//{login}{host}:{port or 1521}/" + (
        name if sign == ":" else f"?{urlencode({'service_name': name})}"
    )


def _sql_server(rest: str) -> str:
    """Converts `//host:1433;databaseName=shop;user=u`: what its driver does not know in Java's spelling is left out."""
    base, *given = rest.split(";")
    found = {name.lower(): value for name, _, value in (part.partition("=") for part in given)}
    database = found.get("databasename") or found.get("database") or ""
    login: dict[str, str] = {name: found[name] for name in ("user", "password") if name in found}
    return f"{base}/{database}" + (f"?{urlencode(login)}" if login else "")


def _without_jdbc_parameters(rest: str, *, postgresql: bool) -> str:
    base, _, query = rest.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    login = {name: value for name, value in given if name in {"user", "password"}}
    if login and "@" not in base.split("/")[2]:
        who = quote(login.get("user", ""), safe="")
        secret = f":{quote(login['password'], safe='')}" if "password" in login else ""
        base = f"//{who}{secret}@{base[2:]}"
    kept = urlencode(list(_of_postgresql(given) if postgresql else _of_others(given)), quote_via=quote)
    return f"{base}?{kept}" if kept else base


def _of_others(given: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the parameters that PyMySQL knows. Raises ConfigError for a check of certificates, which needs a file."""
    for name, value in given:
        lower, wanted = name.lower(), value.lower().replace("-", "_")
        if lower == "sslmode" and wanted in {"verify_ca", "verify_identity", "verify_full"}:
            raise ConfigError(
                f"connection.url: {name}={value} cannot be used, because Java's stores of certificates are not read here: write "
                "mysql+pymysql://host/database?ssl_ca=FILE",
                key="connection.url",
            )
        if (lower, wanted) in {("sslmode", "required"), ("sslmode", "trust"), ("requiressl", "true")}:
            yield "ssl_check_hostname", "false"  # encrypted or not at all, without a check
        elif lower not in _JDBC_ONLY:
            yield name, value


def _of_postgresql(given: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the parameters in the words of PostgreSQL's own library, which also knows `sslmode`."""
    for name, value in given:
        match name.lower():
            case "currentschema":
                yield "options", f"-csearch_path={value}"
            case "ssl" if value.lower() in {"", "true"}:
                yield "sslmode", "verify-full"
            case "sslmode":
                yield "sslmode", value
            case lower if lower not in _JDBC_ONLY:
                yield name, value
