"""The logins of a listener, made of the broker's properties. A fault raises ConfigError that names key and value, never a secret."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from klamm_base.configdef import invalid
from klamm_base.errors import ConfigError
from klamm_base.extras import how_to_install
from klamm_base.jaas import JaasEntry, parse_jaas
from klamm_base.properties import parse
from klamm_broker.security.kerberos_names import KEY as RULES
from klamm_broker.security.kerberos_names import KerberosNames
from klamm_broker.security.sasl.credentials import Mechanism
from klamm_broker.security.sasl.exchange import Offer
from klamm_broker.security.sasl.gssapi import GssapiServer
from klamm_broker.security.sasl.jwt import JwtValidator
from klamm_broker.security.sasl.mechanism import MakeMechanism
from klamm_broker.security.sasl.oauthbearer import ClaimRules, OAuthServer, UnsecuredValidator, Validator
from klamm_broker.security.sasl.plain import PlainServer, PlainUsers
from klamm_broker.security.sasl.scram import ScramServer
from klamm_broker.server.config_keys import BROKER_CONFIG
from klamm_broker.server.jwks import KeyFile
from klamm_broker.server.sasl_keys import HANDLER, KEYS, MECHANISMS, UNSECURED, VALIDATOR

if TYPE_CHECKING:
    from klamm_base.configdef import Password
    from klamm_broker.server.config import BrokerConfig
    from klamm_broker.server.gssapi_context import Acceptor
    from klamm_broker.server.state import BrokerState

SKEW: Final = "unsecuredValidatorAllowableClockSkewMs"
SKEW_DIGITS: Final = 9
"""Eleven days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """A listener's mechanisms, the bytes of a request before the login, and times in seconds."""

    offers: Mapping[str, Offer]
    max_frame: int
    failure_delay_s: float
    timeout_s: float
    config: BrokerConfig
    """The configuration that they were made of."""
    texts: Mapping[str, str] = field(repr=False)
    closing: tuple[Callable[[], None], ...]

    def close(self) -> None:
        """Read no key sets any more."""
        for close in self.closing:
            close()


def check(name: str, texts: Mapping[str, str]) -> None:
    """Raises ConfigError unless a listener with these properties can log clients in: finds all that `make` would. Opens nothing."""
    values = parse(BROKER_CONFIG, texts)
    for mechanism in _enabled(name, values):
        if mechanism == "PLAIN":
            _plain_module(name, values)
        elif mechanism == "OAUTHBEARER":
            _claim_rules(name, values)
        elif mechanism == "GSSAPI":
            _acceptor(name, values)


def make(broker: BrokerState, listener: str, before: LoginSettings | None = None) -> LoginSettings:
    """Returns the logins of one of the broker's listeners, in place of those `before`. Raises ConfigError where `check` does, and OSError."""
    texts = {name: text for name, text in broker.config.of_listener(listener).items() if name in KEYS}
    if before is not None and before.texts == texts:
        return replace(before, config=broker.config)
    broker.scram_users.keep_secret()
    values = parse(BROKER_CONFIG, texts)
    offers: dict[str, Offer] = {}
    closing: list[Callable[[], None]] = []
    for mechanism in _enabled(listener, values):
        own = values[f"{mechanism.lower()}.connections.max.reauth.ms"]
        offers[mechanism] = Offer(
            make=_maker(broker, listener, mechanism, values, closing),
            session_ms=values["connections.max.reauth.ms"] if own is None else own,
        )
    if before is not None:
        before.close()
    return LoginSettings(
        offers=offers,
        max_frame=values["sasl.server.max.receive.size"],
        failure_delay_s=values["connection.failed.authentication.delay.ms"] / 1000,
        timeout_s=values["klamm.login.timeout.ms"] / 1000,
        config=broker.config,
        texts=texts,
        closing=tuple(closing),
    )


def _enabled(listener: str, values: Mapping[str, Any]) -> list[str]:
    names: list[str] = values["sasl.enabled.mechanisms"]
    key = "sasl.enabled.mechanisms"
    if not names:
        raise invalid(key, "", f"listener {listener} needs at least one of {', '.join(MECHANISMS)}")
    for name in names:
        if name not in MECHANISMS:
            raise invalid(key, name, f"listener {listener} can have {', '.join(MECHANISMS)}")
    for name in names:
        handler = values[f"{name.lower()}.{HANDLER}"] or values[HANDLER]
        if handler is not None and (name != "OAUTHBEARER" or handler not in {UNSECURED, VALIDATOR}):
            why = f"classes of Java cannot be loaded; OAUTHBEARER knows {UNSECURED} and {VALIDATOR}"
            raise invalid(f"{name.lower()}.{HANDLER}", handler, why)
    return list(dict.fromkeys(names))


def _maker(
    broker: BrokerState, listener: str, mechanism: str, values: Mapping[str, Any],
    closing: list[Callable[[], None]],
) -> MakeMechanism:  # fmt: skip
    if mechanism == "PLAIN":
        users = PlainUsers.of_options(_plain_module(listener, values).options, broker.scram_users.secret)
        return lambda: PlainServer(users)
    if mechanism == "OAUTHBEARER":
        validator = _validator(broker, listener, values, closing)
        return lambda: OAuthServer(validator)
    if mechanism == "GSSAPI":
        acceptor, names = _acceptor(listener, values)
        return lambda: GssapiServer(acceptor.context, names)
    kind = next(m for m in Mechanism if m.sasl_name == mechanism)
    return lambda: ScramServer(kind, lambda name, tokens: broker.account(kind, name, tokens))


def _acceptor(listener: str, values: Mapping[str, Any]) -> tuple[Acceptor, KerberosNames]:
    from klamm_broker.server.gssapi_context import Acceptor, KeyTable

    example = 'Krb5LoginModule required useKeyTab=true keyTab="…" principal="kafka/host@REALM";'
    entry, full = _module(listener, values, "GSSAPI", example)
    table = KeyTable.of_module(entry, full)
    return Acceptor(table, full), KerberosNames(values[RULES] or (), table.realm)


def _module(listener: str, values: Mapping[str, Any], mechanism: str, example: str) -> tuple[JaasEntry, str]:
    """Returns a mechanism's login module, and the property that has it. Raises ConfigError."""
    key = f"{mechanism.lower()}.sasl.jaas.config"
    full = f"listener.name.{listener.lower()}.{key}"
    if values[key] is None:
        why = f"{full} is missing: {mechanism} needs a login module, as {example}"
        if mechanism == "GSSAPI":
            others = ", ".join(name for name in MECHANISMS if name != mechanism)
            why += f" GSSAPI is the default of sasl.enabled.mechanisms, which can also be one or more of {others}"
        raise ConfigError(why, key=full)
    return parse_jaas(values[key].value, full), full


def _plain_module(listener: str, values: Mapping[str, Any]) -> JaasEntry:
    entry, full = _module(listener, values, "PLAIN", 'PlainLoginModule required user_ann="…";')
    if entry.name != "PlainLoginModule":
        raise invalid(full, entry.module, "the login module of PLAIN is PlainLoginModule")
    return entry


def _is_unsecured(listener: str, values: Mapping[str, Any]) -> bool:
    """Returns whether tokens need no signature. Raises ConfigError when nothing says how they are checked."""
    url = values["sasl.oauthbearer.jwks.endpoint.url"]
    handler = values[f"oauthbearer.{HANDLER}"] or values[HANDLER]
    if handler == UNSECURED:
        return True
    if url is None:
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url is missing: listener {listener} cannot check tokens without a key "
            f"set. To take unsigned tokens from anybody, set oauthbearer.{HANDLER}={UNSECURED}",
            key="sasl.oauthbearer.jwks.endpoint.url",
        )
    if not url.startswith(("https://", "http://127.0.0.1", "http://localhost", "file:")):
        why = "must begin with https: or file: (http: for this machine only)"
        raise invalid("sasl.oauthbearer.jwks.endpoint.url", url, why)
    return False


def _validator(
    broker: BrokerState, listener: str, values: Mapping[str, Any], closing: list[Callable[[], None]]
) -> Validator:
    rules = _claim_rules(listener, values)
    if _is_unsecured(listener, values):
        return UnsecuredValidator(rules)
    prefix = "sasl.oauthbearer.jwks.endpoint."
    keys = KeyFile(
        values[f"{prefix}url"],
        broker.loop,
        refresh_s=values[f"{prefix}refresh.ms"] / 1000,
        backoff_s=values[f"{prefix}retry.backoff.ms"] / 1000,
        backoff_max_s=values[f"{prefix}retry.backoff.max.ms"] / 1000,
    )
    closing.append(keys.close)
    return JwtValidator(rules, lambda: keys.keys, keys.expedite)


def _claim_rules(listener: str, values: Mapping[str, Any]) -> ClaimRules:
    """Returns how the claims of tokens are checked. Raises ConfigError, also when what checks signatures is not installed."""
    if _is_unsecured(listener, values):
        return _unsecured_rules(listener, values["oauthbearer.sasl.jaas.config"])
    prefix = "sasl.oauthbearer."
    if importlib.util.find_spec("joserfc") is None:
        key = f"{prefix}jwks.endpoint.url"
        why = f"{key}={values[key]}, but joserfc is not installed: {how_to_install('oauth')}"
        raise ConfigError(why, key=key)
    return ClaimRules(
        sub=values[f"{prefix}sub.claim.name"],
        scope=values[f"{prefix}scope.claim.name"],
        issuer=values[f"{prefix}expected.issuer"],
        audience=tuple(values[f"{prefix}expected.audience"] or ()),
        skew_s=values[f"{prefix}clock.skew.seconds"],
        issued_at_needed=True,
    )


def _unsecured_rules(listener: str, module: Password | None) -> ClaimRules:
    key = f"listener.name.{listener.lower()}.oauthbearer.sasl.jaas.config"
    options = parse_jaas(module.value, key).options if module else {}
    skew = options.get(SKEW, "0")
    if not (skew.isascii() and skew.isdigit() and len(skew) <= SKEW_DIGITS):
        raise invalid(
            key, f"{SKEW}={skew!r}", f"must be a number of milliseconds of at most {SKEW_DIGITS} digits"
        )
    return ClaimRules(
        sub=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        scope=options.get("unsecuredValidatorScopeClaimName", "scope"),
        required_scopes=tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        skew_s=int(skew) / 1000,
    )
