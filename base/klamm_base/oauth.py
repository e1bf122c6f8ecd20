"""Tokens for SASL/OAUTHBEARER: from a token endpoint (client credentials), from a file, or unsecured for
development.

Getting a token blocks: an event loop calls `TokenSource.token` in a thread. A token is kept until four fifths of
its life are over, which is when Kafka's clients refresh it.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klamm_base.errors import ConfigError, KlammError
from klamm_base.tls import trusted_of

REFRESH_AT: Final = 0.8
REQUEST_S: Final = 30.0
LOOK_AGAIN_S: Final = 60.0
"""A token in a file that does not say when it ends is good for this time; then the file is read again."""
ANSWER_BYTES_MAX: Final = (
    1 << 20
)  # a token is a few kilobytes; the server of a wrong address may send anything
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"


class TokenRefused(KlammError):
    """An error for a token that was not given: the endpoint refused, cannot be reached or answered something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """The source of tokens. An empty `endpoint` means unsecured tokens for `subject`."""

    endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    subject: str = ""
    lifetime_s: int = 3600
    extensions: Mapping[str, str] = field(default_factory=dict)
    trusted: str | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return hash((self.endpoint, self.client_id, self.subject))


def oauth_settings(options: Mapping[str, str], props: Mapping[str, str]) -> OAuthSettings:
    """Reads the options of OAuthBearerLoginModule and `sasl.oauthbearer.*`. Raises ConfigError."""
    prefix = "unsecuredLoginStringClaim_"
    extensions = {
        name.split("_", 1)[1]: value
        for name, value in options.items()
        if name.startswith(("extension_", "unsecuredLoginExtension_"))
    }
    subject = options.get(prefix + "sub", "")
    endpoint = props.get(ENDPOINT, "").strip()
    if not endpoint and not subject:
        raise ConfigError(
            f"{ENDPOINT} is missing (or unsecuredLoginStringClaim_sub in sasl.jaas.config, for development)",
            key=ENDPOINT,
        )
    if not endpoint:
        seconds = options.get("unsecuredLoginLifetimeSeconds", "3600")
        if not seconds.isdigit() or not int(seconds):
            raise ConfigError(
                f"unsecuredLoginLifetimeSeconds={seconds}: not a number of seconds", key="sasl.jaas.config"
            )
        return OAuthSettings(subject=subject, lifetime_s=int(seconds), extensions=extensions)
    scheme = urllib.parse.urlsplit(endpoint).scheme
    if scheme not in {"http", "https", "file"}:
        raise ConfigError(f"{ENDPOINT}={endpoint}: use https://, http:// or file://", key=ENDPOINT)
    credentials = "sasl.oauthbearer.client.credentials.client."
    client_id = (
        props.get(credentials + "id") or options.get("clientId") or props.get("sasl.oauthbearer.client.id")
    )
    secret = (
        props.get(credentials + "secret")
        or options.get("clientSecret")
        or props.get("sasl.oauthbearer.client.secret")
    )
    if scheme != "file" and not (client_id and secret):
        raise ConfigError(
            f"{credentials}id and {credentials}secret are needed (or clientId and clientSecret in sasl.jaas.config)",
            key=credentials + "id",
        )
    scope = props.get("sasl.oauthbearer.scope") or options.get("scope") or ""
    return OAuthSettings(
        endpoint=endpoint,
        client_id=client_id or "",
        client_secret=secret or "",
        scope=scope,
        extensions=extensions,
        trusted=trusted_of(options),  # the endpoint's, as in Java: among the module's options
    )


class TokenSource:
    """A source of tokens that are valid now. Thread-safe."""

    def __init__(self, settings: OAuthSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = 0.0
        self.expires_at = 0.0

    def token(self) -> str:
        """Returns a valid token. Raises TokenRefused."""
        with self._lock:
            now = time.time()
            if not self._token or now >= self._refresh_at:
                self._token, life_s = self._fetch(now)
                self._refresh_at, self.expires_at = now + life_s * REFRESH_AT, now + life_s
            return self._token

    def _fetch(self, now: float) -> tuple[str, float]:
        settings = self._settings
        if not settings.endpoint:
            return unsecured_token(settings.subject, now, settings.lifetime_s), settings.lifetime_s
        if settings.endpoint.startswith("file:"):
            from urllib.request import url2pathname

            path = url2pathname(urllib.parse.urlsplit(settings.endpoint).path)
            try:
                token = Path(path).read_text("utf-8").strip()
            except OSError as e:
                from klamm_base.unreadable import why_unreadable

                raise TokenRefused(f"{ENDPOINT}: {path} {why_unreadable(Path(path), e)}") from None
            return token, _life_in_file(token, path, now)
        return self._ask(now)

    def _ask(self, now: float) -> tuple[str, float]:
        import urllib.error  # takes its time, and few need it
        import urllib.request

        settings = self._settings
        form = {"grant_type": "client_credentials", **({"scope": settings.scope} if settings.scope else {})}
        pair = f"{settings.client_id}:{settings.client_secret}".encode()
        request = urllib.request.Request(  # noqa: S310 - http, https or file: checked above
            settings.endpoint,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(pair).decode(),
                "Accept": "application/json",
            },
        )
        context = ssl.create_default_context(cadata=settings.trusted) if settings.trusted else None
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S, context=context) as answer:  # noqa: S310
                said = json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as e:
            e.close()
            raise TokenRefused(f"{settings.endpoint} gives no token: HTTP {e.code} {e.reason}") from None
        except (OSError, ValueError) as e:
            raise TokenRefused(f"{settings.endpoint} gives no token: {e}") from None
        token = said.get("access_token") if isinstance(said, dict) else None
        if not isinstance(token, str) or not token:
            raise TokenRefused(f"{settings.endpoint} gives no token: its answer has no access_token")
        expiry = _expiry(token)
        life = said.get("expires_in")
        if isinstance(life, int | float):
            return token, float(life)
        return token, max(0.0, expiry - now) if expiry else 0.0


def _life_in_file(token: str, path: str, now: float) -> float:
    """Returns how long a token from a file is good, in seconds. Raises TokenRefused for one that is none any more."""
    if not token:
        raise TokenRefused(f"{ENDPOINT}: {path} is empty; put a token into it")
    expiry = _expiry(token)
    if expiry is not None and expiry <= now:
        when = datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise TokenRefused(f"{ENDPOINT}: the token in {path} has expired at {when}; put a new one into it")
    return LOOK_AGAIN_S if expiry is None else expiry - now


def unsecured_token(subject: str, now: float, lifetime_s: int) -> str:
    """Makes a JSON web token without signature. Brokers take it only when they are configured to."""
    claims = {"sub": subject, "iat": now, "exp": now + lifetime_s}
    return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


def initial_response(token: str, extensions: Mapping[str, str]) -> bytes:
    """Returns the first message of an OAUTHBEARER client (RFC 7628; KIP-342 for the extensions)."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()


def _base64url(value: Any) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _expiry(token: str) -> float | None:
    """Returns the time at which a token says it ends (seconds since 1970), or None."""
    parts = token.split(".")
    if len(parts) < 2:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, int | float) else None
