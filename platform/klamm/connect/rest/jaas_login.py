"""The users file of Kafka's BasicAuthSecurityRestExtension, found where Java's login module finds it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klamm.web.authentication import PasswordProperties
from klamm_base.errors import ConfigError
from klamm_base.jaas import parse_jaas
from klamm_base.properties import load_properties

KEY: Final = "rest.auth.jaas.file"
CONTEXT: Final = "KafkaConnect"
MODULE: Final = "PropertyFileLoginModule"
_CONTEXT: Final = re.compile(rf"(?:^|[\s;}}]){CONTEXT}\s*\{{(.*?)\}}\s*;", re.DOTALL)
_OPTION: Final = re.compile(r"""-Djava\.security\.auth\.login\.config=("[^"]*"|'[^']*'|\S+)""")


def jaas_file(configured: str | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the JAAS file: as configured, else as KAFKA_OPTS tells Java. Raises ConfigError when neither
    names it.
    """
    if configured:
        return Path(configured)
    found = _OPTION.search(environ.get("KAFKA_OPTS", ""))
    if found is None:
        raise ConfigError(
            f"the REST extension for basic auth needs a JAAS file: set {KEY}, or "
            "-Djava.security.auth.login.config=FILE in KAFKA_OPTS",
            key=KEY,
        )
    return Path(found[1].strip("\"'").removeprefix("="))


def login_of(path: Path) -> PasswordProperties:
    """Returns the users of the login module `KafkaConnect` in a JAAS file. Raises ConfigError with place and
    cause.
    """
    text = _read(path)
    context = _CONTEXT.search(text)
    if context is None:
        raise ConfigError(f"{KEY}={path}: it has no login context {CONTEXT} {{ … }};", key=KEY)
    entry = parse_jaas(context[1], KEY)
    if entry.name != MODULE:
        raise ConfigError(
            f"{KEY}={path}: {CONTEXT} uses {entry.module}; only Kafka's {MODULE} can be used", key=KEY
        )
    if not entry.options.get("file"):
        raise ConfigError(f'{KEY}={path}: {MODULE} needs file="…", a file of name=password lines', key=KEY)
    users = dict(load_properties(Path(entry.options["file"])))
    if not users:
        raise ConfigError(
            f"{entry.options['file']} has no users; Kafka would let everybody in, here that is an error",
            key=KEY,
        )
    return PasswordProperties(users)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"{KEY}={path}: cannot be read: {e}", key=KEY) from None
