"""Configuration files: can they be used, what do they warn of, and which of their settings fight each other?"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from klamm.doctor.finding import Finding, failed, ok, warning
from klamm_base.errors import KlammError
from klamm_base.redaction import Redactor, is_secret_name, secret_values

Rule = tuple[str, Callable[[Mapping[str, Any]], str | None]]
"""A name, and a function that says how settings fight each other (None: they do not)."""


_OF_NOTIFIER: Final = re.compile(r"notifier\.[^.]+\.((url|command)-(open|close)|extras\..+)")
_KEY_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration file of a server. `kind` is one of `klamm.service.kinds`."""

    kind: str
    path: Path


def look(configured: Configured) -> Iterator[Finding]:
    """Yields what is to be said of a file. Secrets are hidden."""
    check = f"settings {configured.path}"
    hide = Redactor(secrets_of(configured)).redact
    try:
        with _warnings() as said:
            load = _LOADERS.get(configured.kind) or partial(_other, configured.kind)
            loaded = load(configured.path)
    except (KlammError, OSError) as e:
        yield failed(check, hide(str(e)), "mend the file: the server would not start")
        return
    found = [warning(check, hide(text)) for text in said]
    found += [warning(check, text) for text in fights(configured.kind, loaded)]
    found += _open_secrets(check, configured)
    yield from found or [ok(check, "it can be used, and nothing in it fights")]


def _broker(path: Path) -> Mapping[str, Any]:
    from klamm_base.properties import layered
    from klamm_broker.server.config import BrokerConfig

    return _Values(BrokerConfig.load(layered(path)))


def _worker(path: Path) -> Mapping[str, Any]:
    from klamm.connect.config import WorkerConfig
    from klamm_base.properties import layered

    props = layered(path)
    return _Values(WorkerConfig.from_properties(props, props.source))


def _other(kind: str, path: Path) -> Mapping[str, Any]:
    """Reads a file as its server does, for kinds of which no rule is known."""
    from klamm.service.kinds import kind_of
    from klamm.service.needs import written_by

    written_by(kind_of(kind), path.absolute(), path.absolute().parent)
    return {}


_LOADERS: Final = {"broker": _broker, "connect": _worker}


class _Values(dict[str, Any]):
    """Typed settings by name."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config

    def __missing__(self, name: str) -> Any:
        return self._config[name]


def fights(kind: str, values: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each pair of settings that a server takes and that do not go together."""
    return [said for rule in RULES.get(kind, ()) if (said := rule(values)) is not None]


def _larger_messages(v: Mapping[str, Any]) -> str | None:
    most, request = v["message.max.bytes"], v["socket.request.max.bytes"]
    if most <= request:
        return None
    return f"message.max.bytes={most} is more than socket.request.max.bytes={request}: such a batch never arrives"


def _fetch_of_messages(v: Mapping[str, Any]) -> str | None:
    most, fetch = v["message.max.bytes"], v["fetch.max.bytes"]
    return (
        None
        if most <= fetch
        else f"message.max.bytes={most} is more than fetch.max.bytes={fetch}: each fetch brings one batch only"
    )


def _segments_outlive(v: Mapping[str, Any]) -> str | None:
    retention, size = v["log.retention.bytes"], v["log.segment.bytes"]
    if retention < 0 or retention >= size:
        return None
    return f"log.retention.bytes={retention} is less than log.segment.bytes={size}: a partition keeps a whole segment"


def _offsets_expire(v: Mapping[str, Any]) -> str | None:
    offsets, hours = v["offsets.retention.minutes"], v["log.retention.hours"]
    if hours < 0 or offsets >= hours * 60:
        return None
    return f"offsets.retention.minutes={offsets} is less than log.retention.hours={hours}: a group that pauses loses its place before its records go"


def _sessions(v: Mapping[str, Any]) -> str | None:
    session, heartbeat = v["session.timeout.ms"], v["heartbeat.interval.ms"]
    if heartbeat * 3 <= session:
        return None
    return f"heartbeat.interval.ms={heartbeat} is more than a third of session.timeout.ms={session}: two lost heartbeats end the worker's membership"


def _one_topic_thrice(v: Mapping[str, Any]) -> str | None:
    names = [v[f"{kind}.storage.topic"] for kind in ("config", "offset", "status")]
    return (
        None
        if len(set(names)) == 3
        else f"config, offset and status topic must differ, and they are {', '.join(names)}"
    )


RULES: Final = {
    "broker": (_larger_messages, _fetch_of_messages, _segments_outlive, _offsets_expire),
    "connect": (_sessions, _one_topic_thrice),
}


def raw_settings(configured: Configured) -> dict[str, str]:
    """Returns the settings of a file as text, by names with dots; nothing where it cannot be read."""
    try:
        if configured.kind == "agent":
            import tomllib

            return dict(_flat(tomllib.loads(configured.path.read_text(encoding="utf-8"))))
        from klamm_base.properties import load_properties

        return dict(load_properties(configured.path))
    except (OSError, ValueError, KlammError):
        return {}


def is_secret(configured: Configured, name: str) -> bool:
    """Returns whether nobody else may see a setting's value. Whoever has the address of a webhook may write there, and commands and
    extras of a notifier often hold keys.
    """
    return is_secret_name(name) or (configured.kind == "lag" and _OF_NOTIFIER.fullmatch(name) is not None)


def secrets_of(configured: Configured) -> list[str]:
    """Returns the values of a file that are to be hidden in all texts. Short extras are words such as `error`, and stay."""
    raw = raw_settings(configured)
    told = [
        n
        for n, v in raw.items()
        if is_secret(configured, n) and (".extras." not in n or len(v) >= _KEY_CHARS)
    ]
    return secret_values(raw, told)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}.{number}")
    else:
        yield name, str(value)


def _open_secrets(check: str, configured: Configured) -> list[Finding]:
    secrets = [
        name
        for name, value in raw_settings(configured).items()
        if is_secret_name(name) and not value.startswith("${")
    ]
    mode = stat.S_IMODE(configured.path.stat().st_mode)
    if not secrets or not mode & 0o004:
        return []
    said = f"it holds secrets ({', '.join(sorted(secrets)[:3])}), and everybody on this machine may read it"
    return [failed(check, said, f"chmod 640 {configured.path}")]


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Gathers what a loader logs as a warning."""
    found: list[str] = []

    class Gather(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    root, gather = logging.getLogger(), Gather(logging.WARNING)
    before, root.handlers = root.handlers, [gather]
    try:
        yield found
    finally:
        root.handlers = before
