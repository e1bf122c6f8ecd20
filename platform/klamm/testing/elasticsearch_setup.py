"""The preparation of an `ElasticsearchServer`: writes its configuration and users, and asks whether the node answers."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HASH_ROUNDS: Final = 1000
_LEFT_OUT: Final = ("-Xlog:gc", "-XX:+HeapDump", "-XX:HeapDump", "-XX:ErrorFile", "-XX:+UseG1GC")
"""Options of the JVM that are left out: those that write into the installation, and a collector for large heaps."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The superuser of a node with security."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the node's certificate, which clients trust as it is, and its key."""

    certificate: Path
    key: Path


def write_config(
    home: Path,
    directory: Path,
    settings: Mapping[str, str],
    credentials: Credentials | None,
    tls: Tls | None,
) -> None:
    """Writes `directory/config`: the distribution's own files, our elasticsearch.yml, users and certificates."""
    config = directory / "config"
    for path in (home / "config").iterdir():
        if path.is_file():
            shutil.copyfile(path, config / path.name)
    options = (home / "config/jvm.options").read_text().splitlines()
    kept = [line for line in options if not any(word in line for word in _LEFT_OUT)]
    added = ["-XX:+UseSerialGC", f"-XX:ErrorFile={directory}/logs/hs_err_%p.log"]
    (config / "jvm.options").write_text("\n".join([*kept, *added, ""]))
    lines = {
        "cluster.name": "klamm",
        "node.name": "klamm",
        "path.data": f"{directory}/data",
        "path.logs": f"{directory}/logs",
        "network.host": "127.0.0.1",
        "discovery.type": "single-node",
        "cluster.routing.allocation.disk.threshold_enabled": "false",
        "xpack.security.enabled": "false",
        **(_security(config, credentials, tls) if credentials else {}),
        **settings,
    }
    (config / "elasticsearch.yml").write_text("".join(f"{k}: {v}\n" for k, v in lines.items()))


def _security(config: Path, credentials: Credentials, tls: Tls | None) -> dict[str, str]:
    (config / "users").write_text(f"{credentials.username}:{_password_hash(credentials.password)}\n")
    (config / "users_roles").write_text(f"superuser:{credentials.username}\n")
    lines = {
        "xpack.security.enabled": "true",
        "xpack.security.autoconfiguration.enabled": "false",
        "xpack.security.enrollment.enabled": "false",
    }
    if tls is not None:
        shutil.copyfile(tls.certificate, config / "http.crt")
        shutil.copyfile(tls.key, config / "http.key")
        lines |= {
            "xpack.security.http.ssl.enabled": "true",
            "xpack.security.http.ssl.certificate": "http.crt",
            "xpack.security.http.ssl.key": "http.key",
        }
    return lines


def _password_hash(password: str) -> str:
    """Returns a password in the file realm's form: `{PBKDF2}rounds$salt$hash` with SHA-512, both 32 bytes."""
    salt = os.urandom(32)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _HASH_ROUNDS, 32)
    return (
        "{PBKDF2}" + f"{_HASH_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    )


def answers(url: str, credentials: Credentials | None, tls: Tls | None) -> bool:
    """Returns True when the node answers within about a second and is at least yellow."""
    request = urllib.request.Request(f"{url}/_cluster/health?wait_for_status=yellow&timeout=1s")  # noqa: S310  our own node
    if credentials is not None:
        pair = base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
    trust = ssl.create_default_context(cafile=str(tls.certificate)) if tls else None
    try:
        with urllib.request.urlopen(request, timeout=5, context=trust) as response:  # noqa: S310
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
