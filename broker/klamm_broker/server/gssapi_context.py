"""Kerberos for the broker: security contexts of the package `gssapi` (the extra `kerberos`), with a key table.

The package blocks for the time that it takes to decrypt a ticket and to note it against replays, some hundred microseconds. It never
asks a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_base.extras import how_to_install
from klamm_broker.security.sasl.gssapi import ContextRefused

if TYPE_CHECKING:
    from klamm_base.jaas import JaasEntry

MODULE = "Krb5LoginModule"


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The broker's principal, `kafka/host@REALM`, and the file with its keys."""

    principal: str
    path: Path

    @property
    def realm(self) -> str:
        return self.principal.rpartition("@")[2]

    @classmethod
    def of_module(cls, entry: JaasEntry, key: str) -> KeyTable:
        """Reads the options of a Krb5LoginModule. Raises ConfigError naming `key`."""
        if entry.name != MODULE:
            raise invalid(key, entry.module, f"the login module of GSSAPI is {MODULE}")
        principal, path = entry.options.get("principal", ""), entry.options.get("keyTab", "")
        if "@" not in principal:
            raise ConfigError(f'{key} needs principal="kafka/host@REALM", with the realm', key=key)
        if not path:
            raise ConfigError(f'{key} needs keyTab="…", the file with the keys of {principal}', key=key)
        return cls(principal, Path(path.removeprefix("FILE:").removeprefix("file:")))


class Acceptor:
    """Makes a context for each login."""

    def __init__(self, table: KeyTable, key: str) -> None:
        """Opens the key table. Raises ConfigError naming `key` when it has no keys of the principal."""
        try:
            import gssapi
        except ImportError as e:  # the package is not there, or Kerberos' library is not
            raise ConfigError(
                f"{key}: GSSAPI needs the package gssapi and Kerberos' library ({e}): {how_to_install('kerberos')} "
                "(Debian: libkrb5-dev and gcc first)",
                key=key,
            ) from None
        self._gssapi = gssapi
        if not table.path.is_file():
            raise invalid(key, str(table.path), "there is no such key table")
        try:
            name = gssapi.Name(table.principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                name=name, usage="accept", store={"keytab": f"FILE:{table.path.absolute()}"}
            )
        except gssapi.exceptions.GSSError as e:
            raise ConfigError(f"{key}: {table.path} cannot be used: {_reason(e)}", key=key) from None

    def context(self) -> GssContext:
        """Returns the context of one login."""
        return GssContext(self._gssapi, self._credentials)


class GssContext:
    """See `security.sasl.gssapi.Context`."""

    def __init__(self, gssapi: Any, credentials: Any) -> None:
        self._error = gssapi.exceptions.GSSError
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token) or b""
        except self._error as e:
            raise ContextRefused(_reason(e)) from None

    def client(self) -> str:
        return str(self._context.initiator_name)

    def wrap(self, data: bytes) -> bytes:
        try:
            message: bytes = self._context.wrap(data, False).message
        except self._error as e:
            raise ContextRefused(_reason(e)) from None
        return message

    def unwrap(self, data: bytes) -> bytes:
        try:
            message: bytes = self._context.unwrap(data).message
        except self._error as e:
            raise ContextRefused(_reason(e)) from None
        return message


def _reason(error: Exception) -> str:
    """Returns the library's words in one line."""
    return " ".join(str(error).split())
