"""Requests to a Connect worker's REST API: addresses, credentials, answers, and errors in the worker's own words.

Address and credentials come from options or the environment (`--url`, `--user`, `--token`, `--cacert`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from klamm.cli.rest_words import shortened
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:  # every command imports this module; few need them
    import ssl
    from http.client import HTTPResponse

DEFAULT_REST: Final = "http://127.0.0.1:8083"
TIMEOUT_S: Final = 95.0  # a worker answers within 90 s or says that it cannot
PASSWORD_ENV: Final = "KLAMM_REST_PASSWORD"  # noqa: S105 - the variable's name


class RestError(KlammError):
    """A worker's refusal of a request: its sentence, the HTTP `status`, and what it warns of besides."""

    def __init__(self, said: str, status: int, warnings: Sequence[str] = ()) -> None:
        super().__init__(said)
        self.status = status
        self.warnings = warnings


@cache
def _password(user: str) -> str:
    """Return the password of a user who gave none: the environment's, else the one that is typed, once a command."""
    given = os.environ.get(PASSWORD_ENV)
    return str(typer.prompt("Password", hide_input=True)) if given is None else given


UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        metavar="NAME[:PASSWORD]",
        envvar="KLAMM_REST_USER",
        help=f"Basic auth; without a password {PASSWORD_ENV}, else it is asked for.",
        show_envvar=True,
    ),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", envvar="KLAMM_REST_TOKEN", help="A bearer token.")
]
CacertOption = Annotated[
    Path | None,
    typer.Option(
        "--cacert",
        envvar="KLAMM_REST_CACERT",
        help="PEM certificates of the authority that signed an https worker's.",
    ),
]
RestOption = Annotated[
    str, typer.Option("--url", envvar="KLAMM_REST_URL", help="Address of a Connect worker's REST.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials for a Connect worker, and the authority that signed the worker's certificate."""

    user: UserOption = field(default=None, repr=False)
    token: TokenOption = field(default=None, repr=False)
    cacert: CacertOption = None

    def at(self, url: str) -> Worker:
        """Return the worker at this address."""
        return Worker(url=url, user=self.user, token=self.token, cacert=self.cacert)

    def headers(self) -> dict[str, str]:
        """Return the header that carries the credentials. Raises ConfigError where both kinds were given."""
        if self.user is not None and self.token is not None:
            raise ConfigError("--user and --token: give one of them")
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            import base64

            login = self.user if ":" in self.user else f"{self.user}:{_password(self.user)}"
            return {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
        return {}

    def require_password(self) -> None:
        """Raise ConfigError where a password would have to be asked for."""
        if self.user is not None and ":" not in self.user and PASSWORD_ENV not in os.environ:
            raise ConfigError(f"--user {self.user}: the password is not given")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS settings for an https worker. Raises ConfigError for a file without certificates."""
        import ssl

        try:
            return ssl.create_default_context(cafile=str(self.cacert) if self.cacert else None)
        except (OSError, ssl.SSLError) as e:
            raise ConfigError(f"--cacert {self.cacert}: no PEM certificates that can be read ({e})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Login):
    """A Connect worker's REST API (ours or Kafka's)."""

    WHAT: ClassVar[str] = "Connect worker"
    """The server in words, for errors."""
    url: RestOption = DEFAULT_REST

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Send one request and return the decoded answer. Raises KlammError with the worker's own sentence."""
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, path, data, timeout_s=timeout_s) as answer:
            text = answer.read()
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise KlammError(
                f"{method} {self.url}{path}: the answer is not JSON; is that a {self.WHAT}?"
            ) from None

    def events(self, path: str, last_id: int | None) -> Iterator[dict[str, Any]]:
        """Yield server-sent events until the worker ends the stream: `id`, `kind` and the fields of each."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = str(last_id)
        event: dict[str, Any] = {}
        with self._open("GET", path, None, headers) as answer:
            for raw in answer:
                name, _, text = raw.decode().rstrip("\n").partition(": ")
                match name:
                    case "id":
                        event["id"] = int(text)
                    case "event":
                        event["kind"] = text
                    case "data":
                        event |= json.loads(text)
                    case "" if event:
                        yield event
                        event = {}

    def _open(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> HTTPResponse:
        import http.client
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {self.url}: write http://HOST:PORT or https://HOST:PORT")
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = Request(self.url.rstrip("/") + path, data, sent, method=method)  # noqa: S310
        for name, value in self.headers().items():
            request.add_unredirected_header(name, value)  # for this worker, not for where it may send us
        try:
            context = self.tls() if self.url.startswith("https://") else None
            answer: HTTPResponse = urlopen(request, timeout=timeout_s, context=context)  # noqa: S310 - the user's address
        except HTTPError as e:
            with e:
                answered, warnings = _error(e.read())
                said = shortened(answered) or f"{method} {path}: HTTP {e.code} {e.reason}"
            if e.code == 401:
                said += " Give --user or --token."
            raise RestError(said, e.code, warnings) from None
        except (URLError, http.client.HTTPException, OSError) as e:
            why = getattr(e, "reason", e)
            raise KlammError(
                f"no answer from a {self.WHAT} at {self.url}: {why}{_hint(self.url, why)}"
            ) from None
        return answer


def _hint(url: str, why: object) -> str:
    """Return what may be wrong about an address where no answer came; nothing where it does not look like TLS."""
    import ssl

    if isinstance(why, ssl.SSLCertVerificationError):
        return "; --cacert names the authority that signed its certificate"
    if isinstance(why, ssl.SSLError) and why.reason == "WRONG_VERSION_NUMBER":
        return "; does it want http://?"
    if isinstance(why, ConnectionResetError) and url.startswith(
        "http://"
    ):  # http.client's RemoteDisconnected is one
        return "; does it want https://?"
    return ""


def _error(body: bytes) -> tuple[str, list[str]]:
    """Return the sentence and the warnings of an answer; neither where it is no worker's."""
    try:
        answer = json.loads(body)
        return str(answer["message"]), list(map(str, answer.get("warnings", [])))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", []
