"""Secrets out of texts: which names have them, which values they are, and a filter for what is logged.

Values are found as they are and in every form that quoting gives them (`escaped`). A value shorter than four characters is not hidden: texts would become unreadable, and nothing be protected.
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
)
_NAMES: Final = ("ssl.keystore.key", "ssl.key.pem")
# Names that only sound like a secret's: where one is, not what it is.
_HARMLESS: Final = (".url", ".uri", ".location", ".path", ".file", ".class", ".ms", ".name", ".seconds")
_SWITCHES: Final = frozenset({"true", "false", "none", "null"})
# scheme://user:password@host, and jdbc:…?password=…; what may be a part of the password is taken for it.
_LOGINS: Final = (
    re.compile(r"(://[^/?#:@\s,]*:)([^\s,]+)(@)"),
    re.compile(r"((?<=[?&;])(?:password|passwd|pwd)=)([^&;\s]+)()", re.IGNORECASE),
)
_JAAS_SECRETS: Final = ("password", "clientsecret", "client_secret")


def is_secret_name(name: str) -> bool:
    """Whether a key's name says that its value is a secret, for keys whose definition is not known."""
    low = name.lower()
    if low.endswith(_NAMES):
        return True
    return any(part in low for part in _PARTS) and not low.endswith(_HARMLESS)


def secret_values(config: Mapping[str, str], typed: Iterable[str] = ()) -> list[str]:
    """The values to hide: of keys in `typed` (those defined as passwords), and of names that say so.

    Of a JAAS line it is the whole and each password in it; of an address with a login its password, whatever the key.
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
    """An address (or several) with `[hidden]` in place of each password that is written into it."""

    def hidden(match: re.Match[str]) -> str:
        return match[0] if match[2].startswith("${") else f"{match[1]}{HIDDEN}{match[3]}"

    for pattern in _LOGINS:
        value = pattern.sub(hidden, value)
    return value


def has_hidden_login(value: str) -> bool:
    """Whether `without_logins` has made this."""
    return any(HIDDEN in match[2] for pattern in _LOGINS for match in pattern.finditer(value))


def _address_secrets(value: str) -> list[str]:
    """As they are written, and decoded."""
    found = [m[2] for pattern in _LOGINS for m in pattern.finditer(value) if not m[2].startswith("${")]
    return [form for secret in found for form in {secret, unquote(secret)}]


def _jaas_secrets(value: str) -> list[str]:
    try:
        options = parse_jaas(value).options
    except ConfigError:
        return []
    return [v for k, v in options.items() if k.lower() in _JAAS_SECRETS]


class Redactor:
    """Hides the values that it was told of. Thread-safe."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """From now on these are hidden, too; each line of one that has several, as logs show them line by line."""
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
    """Whether a value says anything that others do not say as well: no switch, no frame of a certificate."""
    if len(value.strip()) < CHARS_MIN or value.strip().lower() in _SWITCHES:
        return False
    return not value.startswith("-----") or "\n" in value


class RedactingFilter(logging.Filter):
    """For a handler: no record leaves it with a secret in its text or its trace."""

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
    """Every handler of the root logger hides what `redactor` knows."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(f, RedactingFilter) and f.redactor is redactor for f in handler.filters):
            handler.addFilter(RedactingFilter(redactor))
