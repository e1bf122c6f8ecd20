"""TLS and SASL of Java's properties for librdkafka, which knows PEM and has a few names of its own.

Stores that librdkafka cannot read (JKS, and PKCS12, whose chain it drops) become PEM text in its settings; a PEM
file stays a file. Properties of a protocol that is not in use are left alone, as in Java. The modules that read
stores and get tokens are imported when they are needed: most clients do without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm_base.errors import ConfigError
from klamm_base.jaas import KEY as JAAS
from klamm_base.security import sasl_mechanism, sasl_settings, security_protocol

if TYPE_CHECKING:
    from klamm_base.oauth import OAuthSettings

_OPENSSL: Final = "OpenSSL is used"
_LOGIN: Final = "librdkafka renews tokens by its own rules"
_BROKERS: Final = "it is a setting of brokers"
_ASSERTION: Final = "librdkafka's clients get tokens by client credentials here"
NO_EFFECT: Final[dict[str, str]] = {
    "ssl.protocol": "OpenSSL agrees on the highest version of both sides",
    "ssl.enabled.protocols": "OpenSSL agrees on the highest version of both sides",
    "ssl.provider": _OPENSSL,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.engine.factory.class": "Java classes cannot run here",
    "security.providers": _OPENSSL,
    "sasl.client.callback.handler.class": "Java classes cannot run here",
    "sasl.login.class": "Java classes cannot run here",
    "sasl.oauthbearer.jwt.retriever.class": "Java classes cannot run here; sasl.oauthbearer.token.endpoint.url says it",
    "sasl.oauthbearer.jwt.validator.class": "Java classes cannot run here",
    "sasl.kerberos.kinit.cmd": "there is no Kerberos here",
    "sasl.kerberos.min.time.before.relogin": "there is no Kerberos here",
    "sasl.kerberos.service.name": "there is no Kerberos here",
    "sasl.kerberos.ticket.renew.jitter": "there is no Kerberos here",
    "sasl.kerberos.ticket.renew.window.factor": "there is no Kerberos here",
    "sasl.login.connect.timeout.ms": _LOGIN,
    "sasl.login.read.timeout.ms": _LOGIN,
    "sasl.login.refresh.buffer.seconds": _LOGIN,
    "sasl.login.refresh.min.period.seconds": _LOGIN,
    "sasl.login.refresh.window.factor": _LOGIN,
    "sasl.login.refresh.window.jitter": _LOGIN,
    "sasl.login.retry.backoff.max.ms": _LOGIN,
    "sasl.login.retry.backoff.ms": _LOGIN,
    "sasl.oauthbearer.header.urlencode": "client id and secret are sent as they are",
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS,
    "sasl.oauthbearer.expected.audience": _BROKERS,
    "sasl.oauthbearer.expected.issuer": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKERS,
    "sasl.oauthbearer.scope.claim.name": _BROKERS,
    "sasl.oauthbearer.sub.claim.name": _BROKERS,
    **dict.fromkeys(
        (
            f"sasl.oauthbearer.assertion.{part}"
            for part in (
                *("algorithm", "file", "template.file", "private.key.file", "private.key.passphrase"),
                *(
                    "claim.aud",
                    "claim.exp.seconds",
                    "claim.iss",
                    "claim.jti.include",
                    "claim.nbf.seconds",
                    "claim.sub",
                ),
            )
        ),
        _ASSERTION,
    ),
}
TRANSLATED: Final = frozenset(
    [
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    ]
)
"""Names that `rdkafka_security` translates. Other names with ssl. or sasl. are librdkafka's own."""

_OWN_OAUTH: Final = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.config",
    "enable.sasl.oauthbearer.unsecure.jwt",
)
_HANDLER: Final = "OAuthBearerLoginCallbackHandler"


def rdkafka_security(props: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Returns settings, and (property, why) for properties without effect. Reads key stores. Raises ConfigError naming
    the property.
    """
    ignored = [(name, NO_EFFECT[name]) for name in props if name in NO_EFFECT]
    handler = props.get("sasl.login.callback.handler.class", "")
    if handler and not handler.endswith(_HANDLER):
        ignored.append(("sasl.login.callback.handler.class", "Java classes cannot run here"))
    protocol = security_protocol(props)
    config: dict[str, Any] = {"security.protocol": protocol} if "security.protocol" in props else {}
    if protocol.endswith("SSL"):
        config |= _tls(props)
    if protocol.startswith("SASL_"):
        config |= _sasl(props)
    return config, ignored


def _tls(props: Mapping[str, str]) -> dict[str, Any]:
    from klamm_base.tls import cipher_names

    config: dict[str, Any] = {}
    algorithm = props.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        config["ssl.endpoint.identification.algorithm"] = algorithm or "none"  # empty switches it off in Java
    ciphers = cipher_names(props.get("ssl.cipher.suites", ""))
    if ciphers:
        config["ssl.cipher.suites"] = ":".join(ciphers)
    return config | _trust(props) | _identity(props)


def _is_pem(props: Mapping[str, str], name: str) -> bool:
    from klamm_base.keystores import Store

    store = Store(name=name, path=props[name])
    return store.format(store.read()) == "PEM"


def _trust(props: Mapping[str, str]) -> dict[str, Any]:
    from klamm_base.tls import trusted_of

    location = "ssl.truststore.location"
    if props.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": trusted_of(props)}
    if not props.get(location):
        return {}
    trusted = trusted_of(props)
    return {"ssl.ca.location": props[location]} if _is_pem(props, location) else {"ssl.ca.pem": trusted}


def _identity(props: Mapping[str, str]) -> dict[str, Any]:
    from klamm_base.tls import identity_of

    location, password = "ssl.keystore.location", props.get("ssl.key.password")
    own = {"ssl.key.password": password} if password else {}
    if props.get("ssl.key.location") or props.get("ssl.key.pem"):
        return own  # librdkafka's own names: they pass
    found = identity_of(props)
    if found is None:
        return {}
    if props.get(location) and not props.get("ssl.keystore.key") and _is_pem(props, location):
        return {"ssl.key.location": props[location], "ssl.certificate.location": props[location], **own}
    opened = {"ssl.key.password": found.password} if found.password else {}
    return {"ssl.key.pem": found.key, "ssl.certificate.pem": found.chain, **opened}


def _sasl(props: Mapping[str, str]) -> dict[str, Any]:
    mechanism = sasl_mechanism(props)
    if mechanism == "OAUTHBEARER" and any(name in props for name in _OWN_OAUTH):
        return {"sasl.mechanism": mechanism}  # librdkafka's own names: they pass
    settings = sasl_settings(props)
    if settings.oauth is not None:
        return {"sasl.mechanism": mechanism, **_oauth(settings.oauth)}
    if settings.token_auth:
        raise ConfigError(f"{JAAS}: librdkafka has no delegation tokens (tokenauth)", key=JAAS)
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": settings.username,
        "sasl.password": settings.password,
    }


def _oauth(oauth: OAuthSettings) -> dict[str, Any]:
    if oauth.endpoint.startswith("http"):
        config: dict[str, Any] = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": oauth.endpoint,
            "sasl.oauthbearer.client.id": oauth.client_id,
            "sasl.oauthbearer.client.secret": oauth.client_secret,
        }
        if oauth.scope:
            config["sasl.oauthbearer.scope"] = oauth.scope
        if oauth.extensions:
            config["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in oauth.extensions.items())
        if oauth.trusted:
            config["https.ca.pem"] = oauth.trusted
        return config
    return {"oauth_cb": _callback(oauth)}


def _callback(oauth: OAuthSettings) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """Returns a callback for tokens that librdkafka cannot get by itself: from a file, or unsecured ones."""
    from klamm_base.oauth import ENDPOINT, TokenRefused, TokenSource

    source = TokenSource(oauth)
    try:
        source.token()
    except TokenRefused as e:  # librdkafka would wait for ten seconds, and say only that no token is set
        raise ConfigError(str(e), key=ENDPOINT) from None

    def refresh(_config: str) -> tuple[str, float, str, dict[str, str]]:
        token = source.token()
        return token, source.expires_at or time.time() + 60, oauth.subject, dict(oauth.extensions)

    return refresh
