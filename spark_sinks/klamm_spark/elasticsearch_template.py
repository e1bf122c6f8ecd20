"""The index template of a data stream: created when it is missing, left alone when it exists.

Options: `template` (its name), `template.patterns` (index patterns by commas; default: the data stream or
index itself), `template.body` (a JSON file with the whole body in place of ours). Without `template` no
template is looked at.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from klamm_base.errors import ConfigError, KlammError
from klamm_spark.elasticsearch_http import Connection, Endpoint, short

log = logging.getLogger(__name__)

WARN_EVERY_S: Final = 30.0
PRIORITY: Final = 250
"""Above the templates that Elasticsearch brings for logs-*-* (100) and that its integrations install (200)."""
RETRY_PAUSE_S: Final = 1.0
_PASSING: Final = frozenset({429, 502, 503, 504})


class TemplateError(KlammError):
    """Elasticsearch refuses the template, or cannot be reached. The job may try again."""


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    body: bytes


def template(given: Mapping[str, str], index: str | None) -> Template | None:
    """Reads the template from a writer's options. Raises ConfigError."""
    name = given.get("template") or None
    if name is None:
        if other := [k for k in ("template.patterns", "template.body") if given.get(k)]:
            raise ConfigError(f"{other[0]} needs the option template, the template's name", key=other[0])
        return None
    patterns = [p.strip() for p in given.get("template.patterns", index or "").split(",") if p.strip()]
    if path := given.get("template.body"):
        return Template(name, _read(path))
    if not patterns:
        raise ConfigError(
            "template needs template.patterns, such as logs-*-shop, when rows say by _index where they go",
            key="template.patterns",
        )
    return Template(name, orjson.dumps(log_template(patterns, data_stream=given.get("op") != "index")))


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
        found = orjson.loads(data)
    except OSError as e:
        raise ConfigError(f"template.body={path} cannot be read: {e.strerror}", key="template.body") from None
    except ValueError as e:
        raise ConfigError(f"template.body={path} is no JSON: {e}", key="template.body") from None
    if not isinstance(found, dict) or "index_patterns" not in found:
        raise ConfigError(f"template.body={path}: there is no index_patterns in it", key="template.body")
    return data


def log_template(patterns: list[str], *, data_stream: bool) -> dict[str, Any]:
    """Returns a template for logs: texts are keywords, except the message.

    A field that does not fit its type is left out of the index, and the document is kept (`ignore_malformed`).
    """
    body: dict[str, Any] = {
        "index_patterns": patterns,
        "priority": PRIORITY,
        "template": {
            "settings": {"index.mapping.ignore_malformed": True, "index.mapping.total_fields.ignore_dynamic_beyond_limit": True},
            "mappings": {
                "date_detection": False,
                "dynamic_templates": [
                    {"texts": {"match_mapping_type": "string", "mapping": {"type": "keyword", "ignore_above": 1024}}}
                ],
                "properties": {
                    "@timestamp": {"type": "date"},
                    "message": {"type": "text", "norms": False},
                },
            },
        },
    }  # fmt: skip
    return body | ({"data_stream": {}} if data_stream else {})


def install(what: Template, where: Endpoint, on_wait: Callable[[str | None], None] = lambda _: None) -> None:
    """Creates the template unless one of its name exists. Raises TemplateError.

    `on_wait` gets the reason for a delay, and None when Elasticsearch answers again.
    """
    path = f"/_index_template/{quote(what.name, safe='')}"
    connection = Connection(where)
    deadline = time.monotonic() + where.retry_s
    with contextlib.closing(connection):
        status, answer = _asked(connection, "GET", path, None, deadline=deadline, on_wait=on_wait)
        if status == 200:
            return
        if status == 404:
            status, answer = _asked(connection, "PUT", path, what.body, deadline=deadline, on_wait=on_wait)
        if status != 200:
            raise TemplateError(
                f"{connection.name} refuses the template {what.name} with {status}: {short(answer)}"
            )


def _asked(
    connection: Connection,
    method: str,
    path: str,
    data: bytes | None,
    *,
    deadline: float,
    on_wait: Callable[[str | None], None],
) -> tuple[int, bytes]:
    began = warned_at = time.monotonic()
    waits = False
    while True:
        try:
            status, answer = connection.request(method, path, data)
            why = f"it answers {status}"
        except (OSError, http.client.HTTPException) as e:
            connection.next_host()
            status, answer, why = 503, b"", str(e) or type(e).__name__
        if status not in _PASSING:
            if waits:
                on_wait(None)
            return status, answer
        now = time.monotonic()
        if now > deadline:
            raise TemplateError(f"{connection.name}: {why}; its index templates cannot be checked")
        if now - warned_at >= WARN_EVERY_S:
            warned_at = now
            log.warning("%s: %s for %.0f s; trying again", connection.name, why, now - began)
        waits = True
        on_wait(f"{connection.name}: {why}")
        time.sleep(RETRY_PAUSE_S)
