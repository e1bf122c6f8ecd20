"""Database addresses: SQLAlchemy's URLs, the `jdbc:` forms of the JDBC sink, and their display. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from klamm_connectors.sql.jdbc_parameters import Pair, of_mysql, of_postgresql
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
_ORACLE: Final = re.compile(r"((?:thin|oci):[^/@]*/).*@", re.DOTALL | re.IGNORECASE)  # user/password@...
_PARAMETER: Final = re.compile(r"((?:password|passwd|pwd)=)(?:\{(?:[^}]|\}\})*\}|[^&;]*)", re.IGNORECASE)
_READ: Final = frozenset({
    "user", "password", "usessl", "sslmode", "requiressl", "trustservercertificate", "verifyservercertificate",
})  # fmt: skip
"""Parameters of MySQL's and MariaDB's drivers that are read here: login and encryption."""
_TRUTHS: Final = {"yes": "true", "1": "true", "no": "false", "0": "false"}
_SQL_SERVER_PAIR: Final = re.compile(r"([^;=]+)(?:=(\{(?:[^}]|\}\})*\}|[^;]*))?")
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
    for login in (_PASSWORD, _ORACLE):
        url = login.sub(r"\1[hidden]@", url)
    return _PARAMETER.sub(r"\1[hidden]", url)


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
    if scheme.startswith("postgres"):
        words: Callable[[Sequence[Pair]], Iterator[Pair]] = _of_postgresql
    elif scheme in {"mysql", "mariadb"}:
        words = partial(_of_mysql, mariadb=match[1].lower() == "mariadb")
    else:
        words = _of_others
    return f"{_DRIVERS.get(scheme, scheme)}:{_in_words(rest, words)}"


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
    base, _, given = rest.partition(";")
    found = {name.strip().lower(): value for name, value in _SQL_SERVER_PAIR.findall(given)}
    if unknown := sorted(found.keys() - _SQL_SERVER_READ - _SQL_SERVER_HARMLESS):
        raise ConfigError(
            f"connection.url: {', '.join(unknown)} cannot be used, because pymssql has nothing like it: leave it out, or "
            "write a SQLAlchemy URL of another driver (mssql+pyodbc://...)",
            key="connection.url",
        )
    database = found.get("databasename") or found.get("database") or ""
    user = found.get("user") or found.get("username")
    secret = found.get("password")
    if secret is not None and secret.startswith("{"):
        secret = secret[1:-1].replace("}}", "}")
    query = {"user": user, "password": secret, "encryption": _encryption(found)}
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


def _in_words(rest: str, words: Callable[[Sequence[Pair]], Iterator[Pair]]) -> str:
    """Returns the address with its login before the host, and its parameters in the words of Python's driver."""
    base, _, query = rest.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    login = {name: value for name, value in given if name in {"user", "password"}}
    if login and "@" not in base.split("/")[2]:
        who = quote(login.get("user", ""), safe="")
        secret = f":{quote(login['password'], safe='')}" if "password" in login else ""
        base = f"//{who}{secret}@{base[2:]}"
    kept = urlencode(list(words(given)), quote_via=quote)
    return f"{base}?{kept}" if kept else base


def _of_others(given: Sequence[Pair]) -> Iterator[Pair]:
    """Yields the parameters but the login, as they are."""
    yield from ((name, value) for name, value in given if name not in {"user", "password"})


def _of_mysql(given: Sequence[Pair], *, mariadb: bool) -> Iterator[Pair]:
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
    yield from of_mysql((name, value) for name, value in given if name.lower() not in _READ)


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


def _of_postgresql(given: Sequence[Pair]) -> Iterator[Pair]:
    """Yields the parameters in the words of PostgreSQL's own library, which also knows `sslmode`."""
    names = {name.lower() for name, _ in given}
    if "ssl" in names and "sslmode" not in names:  # sslmode goes before it
        value = next(value for name, value in given if name.lower() == "ssl")
        yield "sslmode", "verify-full" if value.lower() in {"", "true"} else "prefer"
    yield from of_postgresql((n, v) for n, v in given if n.lower() not in {"user", "password", "ssl"})
