"""The keys of [[inputs]] tables that are no files: syslog, journald, stdin; checked."""

from __future__ import annotations

import datetime as dt
import re
import ssl
import zoneinfo
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm_agent.config.values import Values
from klamm_agent.syslog.addresses import Address
from klamm_agent.syslog.frames import FRAMINGS

_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")
_MATCH: Final = re.compile(r"[A-Z0-9_]{1,64}=.*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogSettings:
    """The settings of `type = "syslog"`; times are in seconds. `name` identifies the input from one start to the next."""

    listen: tuple[Address, ...]
    framing: str = "auto"
    zone: dt.tzinfo | None = None
    max_message_bytes: int = 65_536
    max_connections: int = 1000
    idle_timeout: float | None = None
    receive_buffer_bytes: int = 4 * 1024 * 1024
    queue_bytes: int = 16 * 1024 * 1024
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None

    @property
    def name(self) -> str:
        return " ".join(["syslog", *(f"{a.kind}:{a.port or a.host}" for a in self.listen)])


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaldSettings:
    """The settings of `type = "journald"`. Relative folders start at the folder of agent.toml."""

    directory: Path | None = None
    namespace: str = ""
    units: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()
    start_position: str = "beginning"
    journalctl: str = "journalctl"
    max_message_bytes: int = 1_000_000

    @property
    def name(self) -> str:
        of = (str(self.directory or ""), self.namespace, *self.units, *self.matches)
        return " ".join(["journald", *filter(None, of)])


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinSettings:
    """The settings of `type = "stdin"`."""

    max_message_bytes: int = 500_000

    @property
    def name(self) -> str:
        return "stdin"


Settings = SyslogSettings | JournaldSettings | StdinSettings

KEYS: Final = {
    "syslog": (
        "listen", "framing", "timezone", "max_message_bytes", "max_connections", "idle_timeout", "receive_buffer_bytes",
        "receive_queue_bytes", "tls_certificate", "tls_key", "tls_client_ca",
    ),
    "journald": ("directory", "namespace", "units", "matches", "start_position", "journalctl"),
    "stdin": ("max_message_bytes",),
}  # fmt: skip
"""Keys of an input of this type, besides those that all inputs have."""


def read_settings(v: Values, table: dict[str, Any], at: str, kind: str) -> Settings:
    """Reads the settings of an [[inputs]] table of type `kind`. Raises ConfigError."""
    match kind:
        case "syslog":
            return _syslog(v, table, at)
        case "journald":
            return _journald(v, table, at)
        case _:
            return StdinSettings(
                max_message_bytes=v.number(table, at, "max_message_bytes", 500_000, least=16)
            )


def tls_context(settings: SyslogSettings) -> ssl.SSLContext | None:
    """Returns the server's TLS context; None when no address is tls://. Raises OSError (ssl.SSLError is one) for unusable files."""
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    if settings.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(settings.tls_client_ca)
    return context


def _syslog(v: Values, table: dict[str, Any], at: str) -> SyslogSettings:
    listen = []
    for text in v.texts(table, at, "listen"):
        try:
            listen.append(Address.parse(text))
        except ValueError as e:
            raise v.error(at, "listen", f"= {text!r}: {e}") from None
    settings = SyslogSettings(
        listen=tuple(listen),
        framing=v.choice(table, at, "framing", "auto", FRAMINGS),
        zone=_zone(v, table, at),
        max_message_bytes=v.number(table, at, "max_message_bytes", 65_536, least=480, most=100_000_000),
        max_connections=v.number(table, at, "max_connections", 1000, least=1, most=100_000),
        idle_timeout=v.duration(table, at, "idle_timeout", None),
        receive_buffer_bytes=v.number(
            table, at, "receive_buffer_bytes", 4 * 1024 * 1024, least=0, most=(1 << 31) - 1
        ),
        queue_bytes=v.number(table, at, "receive_queue_bytes", 16 * 1024 * 1024, least=65_536),
        tls_certificate=_file(v, table, at, "tls_certificate"),
        tls_key=_file(v, table, at, "tls_key"),
        tls_client_ca=_file(v, table, at, "tls_client_ca"),
    )
    encrypted = any(address.kind == "tls" for address in listen)
    if encrypted and settings.tls_certificate is None:
        raise v.error(at, "tls_certificate", "is missing: tls:// needs the server's certificate (PEM)")
    for key in ("tls_certificate", "tls_key", "tls_client_ca"):
        if key in table and not encrypted:
            raise v.error(at, key, "has an effect with an address tls://HOST:PORT only")
    if encrypted:
        try:
            tls_context(settings)
        except OSError as e:
            raise v.error(at, "tls_certificate", f"cannot be used with its key: {e.strerror or e}") from e
    return settings


def _journald(v: Values, table: dict[str, Any], at: str) -> JournaldSettings:
    matches = v.texts(table, at, "matches", default=())
    for match in matches:
        if not _MATCH.fullmatch(match):
            raise v.error(at, "matches", f"= {match!r}: FIELD=value is expected, as in _TRANSPORT=kernel")
    directory = table.get("directory")
    return JournaldSettings(
        directory=None if directory is None else v.base / v.text(table, at, "directory"),
        namespace=v.text(table, at, "namespace") if "namespace" in table else "",
        units=v.texts(table, at, "units", default=()),
        matches=matches,
        start_position=v.choice(table, at, "start_position", "beginning", ("beginning", "end")),
        journalctl=v.text(table, at, "journalctl", "journalctl"),
    )


def _file(v: Values, table: dict[str, Any], at: str, key: str) -> Path | None:
    return None if key not in table else v.base / Path(v.text(table, at, key)).expanduser()


def _zone(v: Values, table: dict[str, Any], at: str) -> dt.tzinfo | None:
    """Returns the zone for times without one; None: the machine's zone."""
    name = v.text(table, at, "timezone", "local")
    if name == "local":
        return None
    if (offset := _OFFSET.fullmatch(name)) is not None:
        ahead = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if ahead < dt.timedelta(hours=24):
            return dt.timezone(-ahead if offset[1] == "-" else ahead)
    elif name.upper() in {"UTC", "Z"}:
        return dt.UTC
    else:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass  # the error is raised below
    raise v.error(
        at, "timezone", f'= {name!r}: "local", "UTC", "+01:00" or a name such as "Europe/Vienna" is expected'
    )
