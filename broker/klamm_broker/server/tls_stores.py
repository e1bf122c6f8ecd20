"""Reads the stores of a listener in a process of its own, for a broker that runs: `python -m klamm_broker.server.tls_stores`.

A PKCS12 store says itself how many rounds its keys take, also within what is encrypted, and Python's lock is held
meanwhile: no thread helps. A store may be a pipe, too. The process has a time limit; properties and settings go through
its pipes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from klamm_base.errors import ConfigError
from klamm_base.keystores import Identity
from klamm_base.tls import TlsSettings

LIMIT_S: Final = 30.0
"""The time for all stores of one listener. Five million rounds, Java's limit for one key, take a second or two."""
_COMMAND: Final = (sys.executable, "-m", "klamm_broker.server.tls_stores")


def read_apart(props: Mapping[str, str]) -> TlsSettings:
    """Returns the settings of these properties. It waits for the process: call it in a thread. Raises ConfigError."""
    asked = json.dumps(dict(props)).encode()
    try:
        done = subprocess.run(_COMMAND, input=asked, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise _not_read(f"not within {LIMIT_S:g} s") from None
    except OSError as e:
        raise _not_read(f"no process can be started: {e.strerror}") from None
    if done.returncode:
        raise _not_read(f"the process that reads them ended with exit code {done.returncode}")
    told: dict[str, Any] = json.loads(done.stdout)
    if "error" in told:
        raise ConfigError(told["error"], key=told["key"])
    identity = told.pop("identity")
    return TlsSettings(
        identity=None if identity is None else Identity(**identity),
        versions=tuple(told.pop("versions")),
        ciphers=tuple(told.pop("ciphers")),
        **told,
    )


def _not_read(why: str) -> ConfigError:
    return ConfigError(f"its stores cannot be read: {why}", key="ssl.keystore.location")


def _answer(props: Mapping[str, str]) -> dict[str, Any]:
    try:
        return asdict(TlsSettings.from_properties(props))
    except ConfigError as e:
        return {"error": str(e), "key": e.key}


if __name__ == "__main__":
    json.dump(_answer(json.load(sys.stdin)), sys.stdout)
