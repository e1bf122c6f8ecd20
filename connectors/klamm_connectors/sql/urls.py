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
    "sslmode", "requiressl", "user", "password", "usecursorfetch", "zerodatetimebehavior", "trustservercertificate",
})  # fmt: skip
"""Parameters of Java's MySQL drivers that PyMySQL does not know. User and password are taken from them first, and encryption."""
_TRUTHS: Final = {"yes": "true", "1": "true", "no": "false", "0": "false"}
_SQL_SERVER_READ: Final = frozenset({
    "", "database", "databasename", "user", "username", "password", "encrypt", "trustservercertificate",
})  # fmt: skip
_SQL_SERVER_HARMLESS: Final = frozenset({
    "applicationname", "cancelquerytimeout", "connectretrycount", "connectretryinterval", "disablestatementpooling",
    "locktimeout", "logintimeout", "multisubnetfailover", "packetsize", "querytimeout",
    "responsebuffering", "selectmethod", "sendstringparametersasunicode", "sendtimeasdatetime", "sockettimeout",
    "statementpoolingcachesize", "usebulkcopyforbatchinsert", "workstationid",
})  # fmt: skip
"""Parameters of SQL Server's Java driver that change neither the rows nor where they go."""


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

    >>> to_sqlalchemy("jdbc:mysql://db:3306/shop?useUnicode=true"), to_sqlalchemy("jdbc:sqlite:/var/lib/x.db")
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
    rest = _without_jdbc_parameters(
        rest, postgresql=scheme.startswith("postgres"), mariadb=match[1].lower() == "mariadb"
    )
    return f"{_DRIVERS.get(scheme, scheme)}:{rest}"


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
    """Converts `//host:1433;databaseName=shop;user=u`. Raises ConfigError for what pymssql cannot do."""
    base, *given = rest.split(";")
    found = {name.strip().lower(): value for name, _, value in (part.partition("=") for part in given)}
    if unknown := sorted(found.keys() - _SQL_SERVER_READ - _SQL_SERVER_HARMLESS):
        raise ConfigError(
            f"connection.url: {', '.join(unknown)} cannot be used, because pymssql has nothing like it: leave it out, or "
            "write a SQLAlchemy URL of another driver (mssql+pyodbc://...)",
            key="connection.url",
        )
    database = found.get("databasename") or found.get("database") or ""
    user = found.get("user") or found.get("username")
    query = {"user": user, "password": found.get("password"), "encryption": _encryption(found)}
    given_ones = {name: value for name, value in query.items() if value is not None}
    return f"{base}/{database}" + (f"?{urlencode(given_ones)}" if given_ones else "")


def _encryption(found: dict[str, str]) -> str | None:
    """Returns pymssql's word for `encrypt`. Raises ConfigError for a check of the server's certificate."""
    wanted = found.get("encrypt", "").lower()
    if wanted in {"", "false", "no", "optional"}:
        return None
    if wanted in {"true", "yes", "mandatory"} and found.get("trustservercertificate", "").lower() == "true":
        return "require"
    raise ConfigError(
        f"connection.url: encrypt={found['encrypt']} cannot be used, because pymssql does not check the server's "
        "certificate: write encrypt=true;trustServerCertificate=true to encrypt without a check, or a SQLAlchemy URL of "
        "another driver (mssql+pyodbc://...)",
        key="connection.url",
    )


def _without_jdbc_parameters(rest: str, *, postgresql: bool, mariadb: bool) -> str:
    base, _, query = rest.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    login = {name: value for name, value in given if name in {"user", "password"}}
    if login and "@" not in base.split("/")[2]:
        who = quote(login.get("user", ""), safe="")
        secret = f":{quote(login['password'], safe='')}" if "password" in login else ""
        base = f"//{who}{secret}@{base[2:]}"
    kept = urlencode(
        list(_of_postgresql(given) if postgresql else _of_others(given, mariadb=mariadb)), quote_via=quote
    )
    return f"{base}?{kept}" if kept else base


def _of_others(given: list[tuple[str, str]], *, mariadb: bool) -> Iterator[tuple[str, str]]:
    """Yields the parameters that PyMySQL knows."""
    words = {name.lower(): value.lower().replace("-", "_") for name, value in given}
    found = {name: _TRUTHS.get(word, word) for name, word in words.items()}
    if (checks := _checking(found, mariadb=mariadb)) is not None:
        name, value = next((name, value) for name, value in given if name.lower() == checks)
        raise ConfigError(
            f"connection.url: {name}={value} cannot be used, because Java's stores of certificates are not read here: write "
            "mysql+pymysql://host/database?ssl_ca=FILE, or sslMode=REQUIRED (MariaDB's word: trust) to encrypt without a check",
            key="connection.url",
        )
    mode = found.get("sslmode") or _older_mode(found, mariadb=mariadb)
    if mode in {"disabled", "disable", "false"}:
        yield "ssl_disabled", "true"
    elif mode in {"required", "trust"}:
        yield "ssl_check_hostname", "false"  # encrypted or not at all, without a check
    yield from ((name, value) for name, value in given if name.lower() not in _JDBC_ONLY)


def _older_mode(found: dict[str, str], *, mariadb: bool) -> str:
    """Returns the `sslMode` that the parameters before it mean. `useSSL=false` goes before the others."""
    if found.get("usessl") == "false":
        return "disabled"
    trusts = mariadb and found.get("usessl") == "true"
    return "required" if trusts or found.get("requiressl") == "true" else "preferred"


def _checking(found: dict[str, str], *, mariadb: bool) -> str | None:
    """Returns the parameter that has the server's certificate checked.

    `sslMode` goes before the older ones, of which MySQL's driver checks with `verifyServerCertificate`, and MariaDB's
    with `useSSL` unless it is told to trust.
    """
    if "sslmode" in found:
        return (
            "sslmode" if found["sslmode"] in {"verify_ca", "verify_identity", "verify_full", "true"} else None
        )
    if mariadb:
        trusts = found.get("trustservercertificate") == "true"
        return "usessl" if found.get("usessl") == "true" and not trusts else None
    checks = found.get("verifyservercertificate") == "true" and found.get("usessl") != "false"
    return "verifyservercertificate" if checks else None


def _of_postgresql(given: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the parameters in the words of PostgreSQL's own library, which also knows `sslmode`."""
    for name, value in given:
        match name.lower():
            case "currentschema":
                yield "options", f"-csearch_path={value}"
            case "ssl":  # sslmode goes before it
                if "sslmode" not in {n.lower() for n, _ in given}:
                    yield "sslmode", "verify-full" if value.lower() in {"", "true"} else "prefer"
            case "sslmode":
                yield "sslmode", value
            case lower if lower not in _JDBC_ONLY:
                yield name, value
