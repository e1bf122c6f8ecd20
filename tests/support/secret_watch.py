"""Looks for secrets in what brokers and workers have written: in all logs of the suite, and where a test asks.

`watch` looks, whenever an embedded process ends, for the passwords of its configuration in its log. A test in whose course
one was written fails.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from klamm.testing.process import EmbeddedProcess

_SECRET_KEY: Final = re.compile(r"password|secret|jaas\.config|keystore\.key$")
_QUOTED: Final = re.compile(r'(?<!principal=)(?<!keyTab=)"((?:[^"\\]|\\.)*)"')
"""The texts of a JAAS entry, without the names that errors tell."""
_LEAST: Final = 8
"""Letters of a secret that is looked for: shorter ones, and `password` itself, stand in logs by chance."""
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def forms(secret: bytes) -> Iterator[bytes]:
    """Yields the ways to write a secret: as it is, quoted, in hex, and in base64 wherever it begins in what is encoded."""
    yield from (secret, secret.hex().encode(), secret.hex().upper().encode())
    yield urllib.parse.quote_from_bytes(secret).encode()
    texts = {secret.decode("latin-1"), secret.decode(errors="replace")}
    for text in texts:
        yield from (json.dumps(text)[1:-1].encode(), repr(text)[1:-1].encode())
    yield repr(secret)[2:-1].encode()
    for lead in range(3):
        encoded = base64.b64encode(bytes(lead) + secret)
        own = encoded[-(-lead * 4 // 3) : (lead + len(secret)) * 4 // 3]  # without what its neighbours decide
        yield from (own, own.translate(_URL_SAFE))


def places(secret: bytes, texts: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Returns the texts in which a secret stands, and its form there."""
    wanted = set(forms(secret))
    return [(where, form) for where, text in texts.items() for form in wanted if form in text]


def secrets_of(config: Mapping[str, Any]) -> set[str]:
    """Returns the passwords in a configuration: those of JAAS entries one by one."""
    found: set[str] = set()
    for name, value in config.items():
        if _SECRET_KEY.search(name) and isinstance(value, str):
            quoted = _QUOTED.findall(value) if "jaas" in name else [value]
            found.update(re.sub(r"\\(.)", r"\1", text) for text in quoted)
    return {
        text
        for text in found
        if len(text) >= _LEAST and text != "password" and not text.startswith(("/", "${"))
    }


def watch() -> None:
    """Looks at the log of every embedded process from now on, at its end."""
    forget = EmbeddedProcess._forget

    def look_and_forget(self: EmbeddedProcess) -> None:
        forget(self)
        secrets = secrets_of(getattr(self, "config", {}))
        if secrets:
            log = {str(self._log_path): self.log_text.encode()}
            shown = [place for secret in secrets for place in places(secret.encode(), log)]
            assert not shown, f"secrets in the log of an embedded {self._what}: {shown}"

    EmbeddedProcess._forget = look_and_forget  # type: ignore[method-assign]
