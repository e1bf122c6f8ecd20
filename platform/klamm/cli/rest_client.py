"""Requests to a Connect worker's REST API: addresses, credentials, answers, and errors in the worker's own words.

Credentials come from options or the environment (`--user`, `--token`, `--cacert`); an option notes them here while its
command is parsed, so that every command has the same three.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:  # every command imports this module; few need them
    import ssl
    from http.client import HTTPResponse

TIMEOUT_S: Final = 95.0  # a worker answers within 90 s or says that it cannot
PASSWORD_ENV: Final = "KLAMM_REST_PASSWORD"  # noqa: S105 - the variable's name


@dataclass(slots=True)
class _Given:
    user: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    cacert: Path | None = None


_given: Final = _Given()


def _note_user(value: str | None) -> str | None:
    if value is not None and ":" not in value:
        password = os.environ.get(PASSWORD_ENV)
        value = f"{value}:{typer.prompt('Password', hide_input=True) if password is None else password}"
    _given.user = value
    return value


def _note_token(value: str | None) -> str | None:
    _given.token = value
    return value


def _note_cacert(value: Path | None) -> Path | None:
    _given.cacert = value
    return value


UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        metavar="NAME[:PASSWORD]",
        envvar="KLAMM_REST_USER",
        callback=_note_user,
        help=f"Basic auth; without a password {PASSWORD_ENV}, else it is asked for.",
        show_envvar=True,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="KLAMM_REST_TOKEN", callback=_note_token, help="A bearer token."),
]
CacertOption = Annotated[
    Path | None,
    typer.Option(
        "--cacert",
        envvar="KLAMM_REST_CACERT",
        callback=_note_cacert,
        help="PEM certificates of the authority that signed an https worker's.",
    ),
]


def call(url: str, method: str, path: str, body: Any = None, *, timeout_s: float = TIMEOUT_S) -> Any:
    """One request; the decoded answer. Raises KlammError with the worker's own sentence."""
    data = None if body is None else json.dumps(body).encode()
    with _open(url, method, path, data, timeout_s=timeout_s) as answer:
        text = answer.read()
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise KlammError(f"{method} {url}{path}: the answer is not JSON; is that a Connect worker?") from None


def events(url: str, path: str, last_id: int | None) -> Iterator[dict[str, Any]]:
    """Server-sent events until the worker ends the stream: `id`, `kind` and what each holds."""
    headers = {"Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = str(last_id)
    event: dict[str, Any] = {}
    with _open(url, "GET", path, None, headers) as answer:
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
    url: str,
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

    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: write http://HOST:PORT or https://HOST:PORT")
    sent = {"Content-Type": "application/json", **(headers or {})}
    request = Request(url.rstrip("/") + path, data, sent, method=method)  # noqa: S310
    for name, value in _credentials().items():
        request.add_unredirected_header(name, value)  # for this worker, not for where it may send us
    try:
        context = _context() if url.startswith("https://") else None
        answer: HTTPResponse = urlopen(request, timeout=timeout_s, context=context)  # noqa: S310 - the user's address
    except HTTPError as e:
        with e:
            said = _message(e.read()) or f"{method} {path}: HTTP {e.code} {e.reason}"
        if e.code == 401:
            said += " Give --user or --token."
        raise KlammError(said) from None
    except (URLError, http.client.HTTPException, OSError) as e:
        raise KlammError(f"no answer from a Connect worker at {url}: {getattr(e, 'reason', e)}") from None
    return answer


def _credentials() -> dict[str, str]:
    if _given.user is not None and _given.token is not None:
        raise ConfigError("--user and --token: give one of them")
    if _given.token is not None:
        return {"Authorization": f"Bearer {_given.token}"}
    if _given.user is not None:
        import base64

        return {"Authorization": "Basic " + base64.b64encode(_given.user.encode()).decode()}
    return {}


def _context() -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=str(_given.cacert) if _given.cacert else None)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"--cacert {_given.cacert}: no PEM certificates that can be read ({e})") from None


def _message(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return None
