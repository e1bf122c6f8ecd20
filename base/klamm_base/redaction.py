"""Removal of secrets from texts: names that mark secrets, their values, and a filter for log records.

Values are found as they are and in every form that quoting gives them (`escaped`). A value shorter than four
characters is not hidden: that would make texts unreadable and protect nothing.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from klamm_base.configdef import Password
from klamm_base.errors import ConfigError
from klamm_base.escaped import any_form
from klamm_base.jaas import parse_jaas

HIDDEN: Final = Password.HIDDEN
CHARS_MIN: Final = 4
_PARTS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "jaas",
    "token",
    "credential",
    "apikey",
    "api.key",
    "user.info",
)
_NAMES: Final = ("ssl.keystore.key", "ssl.key.pem", "authorization")
# Names that look like a secret's but hold its place, not the secret itself.
_HARMLESS: Final = (".url", ".uri", ".location", ".path", ".file", ".class", ".ms", ".name", ".seconds")
_SWITCHES: Final = frozenset({"true", "false", "none", "null"})
# scheme://user:password@host, jdbc:…?password=… (SQL Server's: {…} around odd ones), and Oracle's user/password@host; every
# character that may belong to the password counts as part of it.
_LOGINS: Final = (
    re.compile(r"(://[^/?#:@\s,]*:)([^\s,]+)(@)"),
    re.compile(r"((?<=[?&;])(?:password|passwd|pwd)=)(\{(?:[^}]|\}\})*\}|[^&;\s]+)()", re.IGNORECASE),
    re.compile(r"(:(?:thin|oci):[^/@\s]*/)([^\s,]+)(@)", re.IGNORECASE),
)
_SALT: Final = re.compile(r"(\.salt\.).+", re.DOTALL)
_JAAS_SECRETS: Final = ("password", "clientsecret", "client_secret")


def is_secret_name(name: str) -> bool:
    """Returns whether a key's name marks its value as a secret, for keys whose definition is not known."""
    low = name.lower()
    if low.endswith(_NAMES):
        return True
    return any(part in low for part in _PARTS) and not low.endswith(_HARMLESS)


def shown_name(name: str) -> str:
    """Returns a key's name without the salt that Debezium's column.mask.hash keys have in theirs."""
    return _SALT.sub(r"\1***", name)


def secret_values(config: Mapping[str, str], typed: Iterable[str] = ()) -> list[str]:
    """Returns the values to hide: of keys in `typed` (those defined as passwords), and of names that mark secrets.

    For a JAAS line these are the whole line and each password in it; for an address with a login its password,
    whatever the key.
    """
    typed = set(typed)
    found: list[str] = []
    for name, value in config.items():
        found += _address_secrets(value)
        if name in typed or is_secret_name(name):
            found.append(value)
            if "jaas" in name.lower():
                found += _jaas_secrets(value)
    return found


def without_logins(value: str) -> str:
    """Replaces each password that is written into an address (or several) by `[hidden]`."""

    def hidden(match: re.Match[str]) -> str:
        return match[0] if match[2].startswith("${") else f"{match[1]}{HIDDEN}{match[3]}"

    for pattern in _LOGINS:
        value = pattern.sub(hidden, value)
    return value


def has_hidden_login(value: str) -> bool:
    """Returns whether `without_logins` made this text."""
    return any(HIDDEN in match[2] for pattern in _LOGINS for match in pattern.finditer(value))


def _address_secrets(value: str) -> list[str]:
    """Returns the passwords of addresses, as they are written and decoded."""
    found = [m[2] for pattern in _LOGINS for m in pattern.finditer(value) if not m[2].startswith("${")]
    return [form for secret in found for form in {secret, unquote(secret)}]


def _jaas_secrets(value: str) -> list[str]:
    try:
        options = parse_jaas(value).options
    except ConfigError:
        return []
    return [v for k, v in options.items() if k.lower() in _JAAS_SECRETS]


class Redactor:
    """A filter of texts that hides the values added to it. Thread-safe."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Hides these values from now on; a value of several lines is also hidden line by line, as logs show it."""
        parts = (v for value in values for v in (value, *value.splitlines()))
        new = {v for v in parts if _tells(v)}
        with self._lock:
            if new <= self._values:
                return
            self._values |= new
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(any_form, longest_first)))

    def redact(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


def _tells(value: str) -> bool:
    """Returns whether a value is worth hiding: no switch (such as true) and no frame of a certificate."""
    if len(value.strip()) < CHARS_MIN or value.strip().lower() in _SWITCHES:
        return False
    return not value.startswith("-----") or "\n" in value


class RedactingFilter(logging.Filter):
    """A filter for a handler. It removes secrets from the text and the trace of each record."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self.redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        shown = self.redactor.redact(said)
        if shown != said:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self.redactor.redact(record.exc_text)
        return True


def guard_logging(redactor: Redactor) -> None:
    """Makes every handler of the root logger hide the values of `redactor`."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(f, RedactingFilter) and f.redactor is redactor for f in handler.filters):
            handler.addFilter(RedactingFilter(redactor))
