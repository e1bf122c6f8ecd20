"""The properties that all HTTP servers have: listeners, TLS, browsers, logins. Names and defaults are Kafka Connect's. No I/O,
except that `Web.of` reads the users file and the key stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm.web.answer_headers import HEADERS_CONFIG, Cors, HeaderRule, parse_rules
from klamm.web.listeners import HTTPS_PREFIX, Listener, parse_listeners, tls_properties
from klamm.web.roles import Realm
from klamm_base.configdef import ConfigDef, Importance, Type, invalid

AUTH_FILE: Final = "rest.auth.file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The settings of one HTTP server. `tls` are ssl.* properties, `auth` is the users file, if there is one."""

    realm: Realm
    listeners: Sequence[Listener]
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    cors: Cors | None = None
    rules: Sequence[HeaderRule] = ()
    auth: Path | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any], raw: Mapping[str, str], realm: Realm) -> Web:
        """Takes the settings from typed values, and from the properties that they were read from."""
        origins = values["access.control.allow.origin"]
        return cls(
            realm=realm,
            listeners=parse_listeners("listeners", values["listeners"]),
            tls=tls_properties(raw, HTTPS_PREFIX),
            cors=Cors(origins, values["access.control.allow.methods"] or "") if origins else None,
            rules=parse_rules(values[HEADERS_CONFIG] or ""),
            auth=Path(values[AUTH_FILE]) if values[AUTH_FILE] else None,
        )


def web_config(port: int) -> ConfigDef:
    """Returns the definitions of an HTTP server whose default is this port on loopback."""
    d = ConfigDef()
    d.define(
        "listeners",
        Type.LIST,
        [f"http://127.0.0.1:{port}"],
        validator=_listeners,
        importance=Importance.HIGH,
        documentation="The addresses of the server: http://HOST:PORT or https://HOST:PORT, separated by commas. The default is "
        f"loopback, because without {AUTH_FILE} nobody is asked for credentials. Port 0 picks a free port. HTTPS needs the ssl.* "
        "properties, or all of them as listeners.https.ssl.*; changed files are taken over while the server runs.",
    )
    define_browsers(d)
    d.define(
        AUTH_FILE,
        Type.STRING,
        None,
        importance=Importance.MEDIUM,
        documentation="A TOML file of users, tokens and their roles. With it, every request but /health needs "
        "credentials. The server reads the file again when it changes.",
    )
    return d


def _listeners(name: str, value: Any) -> None:
    if not parse_listeners(name, value):
        raise invalid(name, value, "at least one listener is needed, such as http://127.0.0.1:8081")


def _headers(name: str, value: Any) -> None:
    try:
        parse_rules(value or "")
    except ValueError as e:
        raise invalid(name, value, str(e)) from None


def _origins(name: str, value: Any) -> None:
    try:
        Cors(value or "", "")
    except ValueError as e:
        raise invalid(name, value, str(e)) from None


def define_browsers(d: ConfigDef) -> None:
    """Defines what pages in browsers may do, and the headers of all answers."""
    d.define(
        "access.control.allow.origin",
        Type.STRING,
        "",
        importance=Importance.LOW,
        validator=_origins,
        documentation="The origins whose pages may use the API (CORS): origins or regular expressions, separated "
        "by commas; * for all. Empty: only the API's own.",
    )
    d.define(
        "access.control.allow.methods",
        Type.STRING,
        "",
        importance=Importance.LOW,
        documentation="The methods that such pages may use. Empty: GET, POST and HEAD.",
    )
    d.define(
        HEADERS_CONFIG,
        Type.STRING,
        "",
        validator=_headers,
        importance=Importance.LOW,
        documentation="Headers of every answer: rules `ACTION NAME: VALUE` separated by commas, in double quotes where "
        "the value holds a comma. ACTION is set, add, setDate or addDate (VALUE: ms from now).",
    )
