"""The broker's properties of SASL: `sasl.…`, and those of one mechanism, `<mechanism>.sasl.jaas.config` and its kin."""

from __future__ import annotations

from typing import Any, Final

from klamm_base.configdef import Type, between

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""The mechanisms that listeners can have."""
HANDLER: Final = "sasl.server.callback.handler.class"
UNSECURED: Final = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_DEFAULT_RULES: Final = ["DEFAULT"]
VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def _not_negative(name: str, value: Any) -> None:
    if value is not None:
        between(0)(name, value)


def _rules(name: str, value: Any) -> None:
    if value != _DEFAULT_RULES:
        from klamm_broker.security.kerberos_names import KerberosNames

        KerberosNames(value or (), "")


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    _general(key)
    _oauth(key)
    _tokens(key)
    for mechanism in MECHANISMS:
        name = mechanism.lower()
        key(f"{name}.sasl.jaas.config", Type.PASSWORD, None, None, f"The login module of {mechanism}, for a listener (`listener.name.<name>.` before it).")  # fmt: skip
        key(f"{name}.{HANDLER}", Type.CLASS, None, None, f"The class that checks logins with {mechanism}: Kafka's own for tokens, and no other.")  # fmt: skip
        key(f"{name}.connections.max.reauth.ms", Type.LONG, None, _not_negative, f"`connections.max.reauth.ms` for {mechanism}.")  # fmt: skip


def _general(key: Any) -> None:
    key(
        "sasl.enabled.mechanisms",
        Type.LIST,
        ["GSSAPI"],
        None,
        f"The mechanisms that clients may log in with, of {', '.join(MECHANISMS)}.",
    )
    key(
        "sasl.kerberos.principal.to.local.rules",
        Type.LIST,
        _DEFAULT_RULES,
        _rules,
        "Rules that make a user's name of a Kerberos principal, the first that fits: DEFAULT, or RULE:[n:string](pattern)s/from/to/g/[LU].",
    )
    key("sasl.kerberos.service.name", Type.STRING, None, None, "Accepted; the service is in the principal of `gssapi.sasl.jaas.config`.")  # fmt: skip
    key(HANDLER, Type.CLASS, None, None, "As with a mechanism's name before it.")
    key(
        "connections.max.reauth.ms",
        Type.LONG,
        0,
        between(0),
        "The time after which a login must be renewed (KIP-368), in milliseconds; 0: none.",
    )
    key(
        "sasl.server.max.receive.size",
        Type.INT,
        524288,
        between(1),
        "The largest request before a login, in bytes.",
    )
    key(
        "connection.failed.authentication.delay.ms",
        Type.INT,
        100,
        between(0),
        "The time after which a failed login is answered and its connection closed, in milliseconds.",
    )
    key(
        "klamm.login.timeout.ms",
        Type.LONG,
        30_000,
        between(1),
        "The time that a client has for its login, in milliseconds; its connection is closed then.",
    )


def _oauth(key: Any) -> None:
    prefix = "sasl.oauthbearer."
    key(
        f"{prefix}jwks.endpoint.url",
        Type.STRING,
        None,
        None,
        "The key set that signed tokens are checked with: `https:` or `file:`.",
    )
    key(
        f"{prefix}jwks.endpoint.refresh.ms",
        Type.LONG,
        3_600_000,
        between(1),
        "The interval at which the key set is read again.",
    )
    key(f"{prefix}jwks.endpoint.retry.backoff.ms", Type.LONG, 100, between(1), "The first pause after the key set could not be read.")  # fmt: skip
    key(f"{prefix}jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000, between(1), "The longest such pause.")  # fmt: skip
    key(f"{prefix}expected.issuer", Type.STRING, None, None, "The claim `iss` that tokens must have.")
    key(f"{prefix}expected.audience", Type.LIST, None, None, "One of these must be in the claim `aud`.")
    key(f"{prefix}scope.claim.name", Type.STRING, "scope", None, "The claim that holds scopes.")
    key(f"{prefix}sub.claim.name", Type.STRING, "sub", None, "The claim that holds the user's name.")
    key(f"{prefix}clock.skew.seconds", Type.INT, 30, between(0), "The difference of clocks that is allowed.")


def _tokens(key: Any) -> None:
    prefix = "delegation.token."
    key(f"{prefix}secret.key", Type.PASSWORD, None, None, "The key that passwords of delegation tokens are made with; without it there are none.")  # fmt: skip
    key(f"{prefix}max.lifetime.ms", Type.LONG, 604_800_000, between(1), "The longest life of a delegation token, renewals included.")  # fmt: skip
    key(f"{prefix}expiry.time.ms", Type.LONG, 86_400_000, between(1), "The time for which a delegation token is made or renewed.")  # fmt: skip
    key(f"{prefix}expiry.check.interval.ms", Type.LONG, 3_600_000, between(1), "The interval at which ended tokens are removed.")  # fmt: skip


def _names() -> frozenset[str]:
    names: list[str] = []
    define(lambda name, *_: names.append(name))
    return frozenset(names)


KEYS: Final = _names()
"""All of them."""
