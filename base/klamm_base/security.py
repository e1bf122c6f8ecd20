"""The way of our clients to a broker: `security.protocol`, TLS and SASL from Java's properties.

    security = ClientSecurity.from_properties(props)   # reads key stores
    Cluster(bootstrap, security=security)

`PLAINTEXT` (the default) is `ClientSecurity()`. librdkafka's clients get the same from `clientconfig.translate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm_base.errors import ConfigError
from klamm_base.jaas import KEY as JAAS
from klamm_base.jaas import parse_jaas

if TYPE_CHECKING:
    from klamm_base.oauth import OAuthSettings
    from klamm_base.tls import TlsSettings

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": SCRAM,
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """A client's login: `oauth` with OAUTHBEARER, name and password with the other mechanisms."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_auth: bool = False
    oauth: OAuthSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """The security of a connection: TLS if `tls` is set, SASL if `sasl` is set."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol, such as SASL_SSL."""
        return ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT")

    @classmethod
    def from_properties(cls, props: Mapping[str, str]) -> ClientSecurity:
        """Reads Java's (or librdkafka's) properties, and key stores. Raises ConfigError naming the property."""
        protocol = security_protocol(props)
        tls: TlsSettings | None = None
        if protocol.endswith("SSL"):
            from klamm_base.tls import TlsSettings  # takes its time, and most clients do without

            tls = TlsSettings.from_properties(props)
        return cls(
            tls=tls,
            sasl=sasl_settings(props) if protocol.startswith("SASL_") else None,
        )


def security_protocol(props: Mapping[str, str]) -> str:
    """Returns the checked protocol in capitals; PLAINTEXT when none is given."""
    given = props.get("security.protocol", "").strip()
    protocol = given.upper() or "PLAINTEXT"
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"security.protocol={given}: use one of {', '.join(PROTOCOLS)}", key="security.protocol"
        )
    return protocol


def sasl_mechanism(props: Mapping[str, str]) -> str:
    """Returns the checked mechanism. Java's default is GSSAPI, which cannot be used."""
    given = (props.get("sasl.mechanism") or props.get("sasl.mechanisms") or "GSSAPI").strip()
    if given.upper() not in MECHANISMS:
        default = "" if "sasl.mechanism" in props else " (the default)"
        raise ConfigError(
            f"sasl.mechanism={given}{default} cannot be used; use one of {', '.join(MECHANISMS)}",
            key="sasl.mechanism",
        )
    return given.upper()


def sasl_settings(props: Mapping[str, str]) -> SaslSettings:
    """Reads `sasl.mechanism` and `sasl.jaas.config` (or librdkafka's `sasl.username` and `sasl.password`)."""
    mechanism = sasl_mechanism(props)
    options: Mapping[str, str] = {}
    if props.get(JAAS):
        entry = parse_jaas(props[JAAS])
        if mechanism not in _MODULES.get(entry.name, ()):
            right = next(name for name, has in _MODULES.items() if mechanism in has)
            raise ConfigError(
                f"{JAAS} names the login module {entry.module}; sasl.mechanism={mechanism} needs {right}",
                key=JAAS,
            )
        options = entry.options
    if mechanism == "OAUTHBEARER":
        from klamm_base.oauth import oauth_settings

        return SaslSettings(mechanism=mechanism, oauth=oauth_settings(options, props))
    username = options.get("username", props.get("sasl.username", ""))
    password = options.get("password", props.get("sasl.password", ""))
    absent = [n for n, v in (("username", username), ("password", password)) if not v]
    if absent:
        raise ConfigError(f"{JAAS} has no {' and no '.join(absent)}", key=JAAS)
    token = options.get("tokenauth", "false").lower() == "true"
    return SaslSettings(
        mechanism=mechanism, username=username, password=password, token_auth=token and mechanism in SCRAM
    )
