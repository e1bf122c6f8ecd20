"""A client of a schema registry: Confluent's REST API, which others offer as well (Apicurio under /apis/ccompat/v7).

The client blocks, serves one thread, and caches its answers: a schema is registered, looked up or fetched once.
Several addresses are tried in turn. Failures that may pass (no connection, 429, 5xx, a 404 that a proxy says while the
registry starts) are RetriableError; a refusal of the registry is `RegistryError`, with its code.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from klamm_base.configdef import ConfigDef, Importance, Password, Type, between
from klamm_base.errors import ConfigError
from klamm_plugins.converters.references import Reference, Referred, references_in, referred_texts
from klamm_plugins.errors import DataError, RetriableError

if TYPE_CHECKING:
    import http.client
    import ssl

log = logging.getLogger(__name__)

URL: Final = "schema.registry.url"
_MEDIA: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10.0
_ANSWER_MAX: Final = 16 << 20
NO_CONTENT: Final = 204
_TOKEN: Final = re.compile(r"[!-~]+")
_FORM: Final = "it must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, with %2F, %3F and %23 for /, ? and # of a password"


class RegistryError(DataError):
    """A refusal of the registry. `code` is its own (40401: there is no such subject), or the status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry. `kind` is AVRO, JSON or PROTOBUF; `version` is known where the request named a subject."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    version: int | None = None


def client_config(config: ConfigDef) -> ConfigDef:
    """Returns `config` with the keys of the client."""
    return (
        config.define(
            URL,
            Type.LIST,
            importance=Importance.HIGH,
            documentation="Addresses of the schema registry, tried in turn: http://host:8081.",
        )
        .define(
            "basic.auth.credentials.source",
            Type.STRING,
            "URL",
            importance=Importance.MEDIUM,
            documentation="Where user and password come from: URL, or USER_INFO for basic.auth.user.info.",
        )
        .define(
            "basic.auth.user.info",
            Type.PASSWORD,
            None,
            importance=Importance.MEDIUM,
            documentation="user:password for USER_INFO.",
        )
        .define(
            "bearer.auth.token",
            Type.PASSWORD,
            None,
            importance=Importance.MEDIUM,
            documentation="A token that is sent instead of user and password.",
        )
        .define(
            "schema.registry.ssl.truststore.location",
            Type.STRING,
            None,
            importance=Importance.MEDIUM,
            documentation="Certificates (PEM) to believe for https; the system's without it.",
        )
        .define(
            "schema.registry.request.timeout.ms",
            Type.INT,
            int(_TIMEOUT_S * 1000),
            validator=between(1),
            importance=Importance.LOW,
            documentation="How long one request may take.",
        )
    )


@dataclass(slots=True)
class RegistryClient:
    """A client of a schema registry (see the module). Make it with `of`."""

    urls: list[str]
    headers: dict[str, str]
    context: ssl.SSLContext | None = None
    timeout_s: float = _TIMEOUT_S
    _by_id: dict[int, RegisteredSchema] = field(default_factory=dict)
    _ids: dict[tuple[str, str, str, bool], int] = field(default_factory=dict)
    _latest: dict[str, RegisteredSchema] = field(default_factory=dict)
    _versions: dict[tuple[str, int], RegisteredSchema] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> RegistryClient:
        """Makes a client from values of `client_config`. Raises ConfigError."""
        urls = [url.rstrip("/") for url in settings[URL]]
        for url in urls:
            if mistake := _mistake(url):
                secret = any("@" in text for text in urls)  # a comma in a password makes two addresses
                raise ConfigError(
                    f"Invalid value {Password.HIDDEN if secret else url} for configuration {URL}: {mistake}",
                    key=URL,
                )
        if not urls:
            raise ConfigError(f"Invalid value [] for configuration {URL}: Empty list", key=URL)
        return cls(
            urls,
            {"Accept": f"{_MEDIA}, application/json", **_authorization(settings, urls[0])},
            _context(settings, urls),
            settings["schema.registry.request.timeout.ms"] / 1000,
        )

    @property
    def shown_url(self) -> str:
        """The address that is asked next, without a user."""
        return _without_user(self.urls[0])

    def register(self, subject: str, kind: str, text: str, *, normalize: bool = False) -> int:
        """Returns the id of a schema. Makes the schema a version of the subject if it is none."""
        return self._id(subject, kind, text, normalize=normalize, new=True)

    def lookup(self, subject: str, kind: str, text: str, *, normalize: bool = False) -> int:
        """Returns the id of a schema that is a version of the subject. Raises RegistryError (40403) when it is none."""
        return self._id(subject, kind, text, normalize=normalize, new=False)

    def _id(self, subject: str, kind: str, text: str, *, normalize: bool, new: bool) -> int:
        key = (subject, kind, text, new)
        known = self._ids.get(key)
        if known is None:
            path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if new else "")
            # Avro is the default, and old registries know no other kind.
            body = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
            answer = self.ask("POST", path + ("?normalize=true" if normalize else ""), body)
            known = self._ids[key] = int(answer["id"])
        return known

    def version_of(self, subject: str, schema: RegisteredSchema) -> int | None:
        """Returns the version of a subject that a schema is; None when it is none (it was written under another name)."""
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != "AVRO":
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [
                {"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references
            ]
        try:
            return int(self.ask("POST", f"/subjects/{quote(subject, safe='')}", body)["version"])
        except RegistryError:
            return None

    def latest(self, subject: str) -> RegisteredSchema:
        """Returns the newest version of a subject, as it was at the first request."""
        if subject not in self._latest:
            self._latest[subject] = self._version(subject, "latest")
        return self._latest[subject]

    def by_id(self, id: int) -> RegisteredSchema:
        found = self._by_id.get(id)
        if found is None:
            found = self._by_id[id] = schema_of(id, self.ask("GET", f"/schemas/ids/{id}"))
        return found

    def text_of(self, id: int, form: str) -> str:
        """Returns a schema's text in another form (`serialized` for protobuf)."""
        answer = self.ask("GET", f"/schemas/ids/{id}?format={form}")
        return str(answer["schema"])

    def resolved(self, schema: RegisteredSchema) -> dict[str, str]:
        """Returns the texts of all schemas that this one refers to, by the names it uses, inner ones first."""
        return referred_texts(schema.references, self._referred)

    def _referred(self, reference: Reference) -> Referred:
        place = (reference.subject, reference.version)
        if place not in self._versions:
            self._versions[place] = self._version(reference.subject, str(reference.version))
        inner = self._versions[place]
        return inner.text, inner.references

    def _version(self, subject: str, version: str) -> RegisteredSchema:
        answer = self.ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return schema_of(int(answer["id"]), answer)

    def ask(self, method: str, path: str, body: Any = None, *, optional: bool = False) -> Any:
        """Returns the registry's answer to a request, as JSON. Raises RegistryError, RetriableError.

        `optional`: registries may lack this kind of request. Their 404 and 405 then need no code of a registry.
        """
        import http.client  # 30 ms that only those need who have a registry

        failure = ""
        for _ in range(len(self.urls)):
            url = self.urls[0]
            try:
                status, answer = self._request(url, method, path, body)
            except (OSError, http.client.HTTPException) as e:
                failure = f"{_without_user(url)}: {e or type(e).__name__}"
            except ValueError as e:  # its text may show a header
                failure = f"{_without_user(url)}: the request cannot be sent ({type(e).__name__})"
            else:
                if status < 300:
                    return None if status == NO_CONTENT else _parsed(answer, url)
                error = _refused(status, answer, f"{method} {path}")
                if status < 500 and status != 429 and (optional or not _is_proxys(status, answer)):
                    raise error
                failure = f"{_without_user(url)}: {error}"
            self.urls.append(self.urls.pop(0))  # the next one, also for the requests to come
        raise RetriableError(f"The schema registry is not available: {failure}")

    def _request(self, url: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
        import http.client

        parts = urlsplit(url)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=self.timeout_s, context=self.context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = self.headers | ({} if data is None else {"Content-Type": _MEDIA})
            connection.request(method, parts.path.rstrip("/") + path, data, headers)
            response = connection.getresponse()
            return response.status, response.read(_ANSWER_MAX)
        finally:
            connection.close()


def schema_of(id: int, answer: Mapping[str, Any]) -> RegisteredSchema:
    """Returns the schema in an answer of the registry."""
    return RegisteredSchema(
        id, answer.get("schemaType") or "AVRO", answer["schema"], references_in(answer), answer.get("version")
    )


def _parsed(answer: bytes, url: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise RetriableError(f"{_without_user(url)} did not answer as a schema registry does") from None


def _refused(status: int, answer: bytes, what: str) -> RegistryError:
    try:
        said = json.loads(answer)
        code, message = int(said.get("error_code", status)), str(said.get("message", ""))
    except (ValueError, AttributeError, TypeError):
        code, message = status, answer[:200].decode("utf-8", "replace")
    return RegistryError(f"The schema registry refused {what}: {message} ({code})", code)


def _is_proxys(status: int, answer: bytes) -> bool:
    """Returns True for a 404 or 405 without a code: what asked for is not missing, but the registry."""
    if status not in {404, 405}:
        return False
    try:
        said = json.loads(answer)
    except ValueError:
        return True
    return not isinstance(said, dict) or "error_code" not in said


def _authorization(settings: Mapping[str, Any], url: str) -> dict[str, str]:
    token = settings["bearer.auth.token"]
    if token is not None:
        if not _TOKEN.fullmatch(token.value):
            raise ConfigError(
                f"Invalid value {token} for configuration bearer.auth.token: it must be printable ASCII characters, without "
                "spaces and line breaks",
                key="bearer.auth.token",
            )
        return {"Authorization": f"Bearer {token.value}"}
    source = settings["basic.auth.credentials.source"].upper()
    if source == "USER_INFO":
        if settings["basic.auth.user.info"] is None:
            raise ConfigError(
                'Missing required configuration "basic.auth.user.info" for basic.auth.credentials.source=USER_INFO',
                key="basic.auth.user.info",
            )
        user = settings["basic.auth.user.info"].value
    elif source == "URL":
        parts = urlsplit(url)
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    else:
        raise ConfigError(
            f"Invalid value {source} for configuration basic.auth.credentials.source: String must be one of: URL, USER_INFO",
            key="basic.auth.credentials.source",
        )
    return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()} if user else {}


def _context(settings: Mapping[str, Any], urls: list[str]) -> ssl.SSLContext | None:
    if not any(url.startswith("https:") for url in urls):
        return None
    import ssl

    location = settings["schema.registry.ssl.truststore.location"]
    try:
        return ssl.create_default_context(cafile=location)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(
            f"Invalid value {location} for configuration schema.registry.ssl.truststore.location: {e}",
            key="schema.registry.ssl.truststore.location",
        ) from e


def _mistake(url: str) -> str | None:
    """Returns what is wrong with an address, without its text."""
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0
    except ValueError:  # its text may show a password
        return _FORM
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "it must begin with http:// or https://"
    return None if has_port and "@" not in parts.path + parts.query + parts.fragment else _FORM


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return url if parts.username is None else url.replace(parts.netloc, parts.netloc.rpartition("@")[2])
