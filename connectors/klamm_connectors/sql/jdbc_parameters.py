"""Parameters of Java's drivers of MySQL, MariaDB and PostgreSQL, in the words of Python's drivers. Pure: no I/O.

A parameter is translated, left out because it changes neither the rows nor who may read them on their way, or refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn

from klamm_plugins.errors import ConfigError

Pair = tuple[str, str]
_PYMYSQL: Final = frozenset({
    "bind_address", "charset", "collation", "connect_timeout", "init_command", "program_name", "read_timeout",
    "ssl_ca", "ssl_cert", "ssl_disabled", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "unix_socket", "write_timeout",
})  # fmt: skip
_MYSQL_HARMLESS: Final = frozenset({
    "allowmultiqueries", "allowpublickeyretrieval", "alwayssendsetisolation", "autoreconnect", "autoreconnectforpools",
    "cachecallablestmts", "cachecallablestatements", "cacheprepstmts", "cacheresultsetmetadata", "cacheserverconfiguration",
    "characterencoding", "characterencodingsize", "connectionattributes", "connectiontimezone", "defaultfetchsize",
    "elidesetautocommits", "failoverreadonly", "forceconnectiontimezonetosession", "initialtimeout", "logger", "maintaintimestats",
    "maxreconnects", "metadatacachesize", "noaccesstoprocedurebodies", "nullcatalogmeanscurrent", "nulldatabasemeanscurrent",
    "paranoid", "passwordcharacterencoding", "prepstmtcachesize", "prepstmtcachesqllimit", "profilesql", "retriesalldown",
    "rewritebatchedstatements", "servertimezone", "tcpkeepalive", "tcpnodelay", "tcprcvbuf", "tcpsndbuf", "tinyint1isbit",
    "transformedbitisboolean", "useaffectedrows", "usebulkstmts", "usecompression", "usecursorfetch", "usejdbccomplianttimezoneshift",
    "uselegacydatetimecode", "uselocalsessionstate", "uselocaltransactionstate", "usemysqlmetadata", "useserverprepstmts",
    "usetimezone", "useunbufferedinput", "useunicode", "yearisdatetype", "zerodatetimebehavior",
})  # fmt: skip
_LIBPQ: Final = frozenset({
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "gssencmode", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "krbsrvname", "options", "passfile", "requirepeer", "service", "sslcert", "sslcertmode",
    "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs",
    "tcp_user_timeout",
})  # fmt: skip
_POSTGRESQL_HARMLESS: Final = frozenset({
    "adaptivefetch", "adaptivefetchmaximum", "adaptivefetchminimum", "allowencodingchanges", "assumeminserverversion", "autosave",
    "binarytransfer", "binarytransferdisable", "binarytransferenable", "canceltimeout", "cleanupsavepoints",
    "databasemetadatacachefields", "databasemetadatacachefieldsmib", "defaultrowfetchsize", "disablecolumnsanitiser",
    "escapesyntaxcallmode", "hostrecheckseconds", "logservererrordetail", "loggerfile", "loggerlevel", "logunclosedconnections",
    "maxresultbuffer", "preferquerymode", "preparedstatementcachequeries", "preparedstatementcachesizemib", "preparethreshold",
    "quotereturningidentifiers", "readonlymode", "receivebuffersize", "rewritebatchedinserts", "sendbuffersize",
    "socketfactory", "sslresponsetimeout", "stringtype", "tcpnodelay", "unknownlength", "usespnego",
})  # fmt: skip
"""`stringtype` is here, too: the database reads each text as its column's type, as with `unspecified`."""
_TARGETS: Final = {
    "any": "any", "primary": "primary", "master": "primary", "secondary": "standby", "slave": "standby",
    "preferprimary": "any", "prefersecondary": "prefer-standby", "preferslave": "prefer-standby",
}  # fmt: skip


def of_mysql(given: Iterable[Pair]) -> Iterator[Pair]:
    """Yields PyMySQL's parameters. Raises ConfigError for one that cannot be obeyed."""
    for name, value in given:
        lower = name.lower()
        if lower in _MYSQL:
            yield from _MYSQL[lower](value)
        elif name in _PYMYSQL:
            yield name, value
        elif lower not in _MYSQL_HARMLESS and _default_of(lower) != value.lower():
            _refuse(name, value, "PyMySQL")


def of_postgresql(given: Iterable[Pair]) -> Iterator[Pair]:
    """Yields libpq's parameters. Raises ConfigError for one that cannot be obeyed."""
    for name, value in given:
        lower = name.lower()
        if lower in _POSTGRESQL:
            yield from _POSTGRESQL[lower](value)
        elif name in _LIBPQ:
            yield name, value
        elif lower not in _POSTGRESQL_HARMLESS:
            _refuse(name, value, "psycopg")


def _refuse(name: str, value: str, driver: str) -> NoReturn:
    raise ConfigError(
        f"connection.url: the parameter {name} cannot be used, because {driver} has nothing like it: leave it out, or write "
        "a SQLAlchemy URL with the driver's own parameters",
        key="connection.url",
    )


def _default_of(name: str) -> str | None:
    """Returns the default of a parameter that cannot be obeyed otherwise."""
    return {"createdatabaseifnotexist": "false", "jdbccomplianttruncation": "true"}.get(name)


def _whole_seconds(value: str, unit: int) -> int:
    """Returns seconds, of which a driver takes none for "at once". Raises ConfigError for what is no number."""
    try:
        return -(-int(value) // unit)
    except ValueError as e:
        raise ConfigError(
            f"connection.url: {value!r} is no number of {'seconds' if unit == 1 else 'ms'}",
            key="connection.url",
        ) from e


def _seconds(*names: str, unit: int = 1) -> Callable[[str], list[Pair]]:
    """Returns the translation of a time limit, of which 0 means none."""

    def translated(value: str) -> list[Pair]:
        found = _whole_seconds(value, unit)
        return [(name, str(found)) for name in names if found > 0]

    return translated


def _renamed(name: str, words: dict[str, str] | None = None) -> Callable[[str], list[Pair]]:
    def translated(value: str) -> list[Pair]:
        return [(name, value if words is None else words.get(value.lower(), value))]

    return translated


def _session_variables(value: str) -> list[Pair]:
    return [("init_command", f"SET {value.replace(';', ',')}")] if value else []


_MYSQL: Final[dict[str, Callable[[str], list[Pair]]]] = {
    "connecttimeout": _seconds("connect_timeout", unit=1000),
    "sockettimeout": _seconds("read_timeout", "write_timeout", unit=1000),
    "sessionvariables": _session_variables,
    "connectioncollation": _renamed("collation"),
}
_POSTGRESQL: Final[dict[str, Callable[[str], list[Pair]]]] = {
    "channelbinding": _renamed("channel_binding"),
    "applicationname": _renamed("application_name"),
    "connecttimeout": _seconds("connect_timeout"),
    "currentschema": lambda value: [("options", f"-csearch_path={value}")],
    "gssencmode": _renamed("gssencmode"),
    "sslmode": _renamed("sslmode"),
    "kerberosservername": _renamed("krbsrvname"),
    "logintimeout": _seconds("connect_timeout"),
    "sockettimeout": lambda value: (
        [("tcp_user_timeout", str(1000 * n))] if (n := _whole_seconds(value, 1)) else []
    ),
    "targetservertype": _renamed("target_session_attrs", _TARGETS),
    "tcpkeepalive": _renamed("keepalives", {"true": "1", "false": "0"}),
}
