"""A Kerberos KDC of MIT's for tests: realm, principals and key tables below one folder, on a port of loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

import pytest
from support.broker import wait_until
from support.kafka_broker import free_port

REALM = "KLAMM.TEST"
BROKER = f"kafka/localhost@{REALM}"
PACKAGE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm-gssapi"
_SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin"


def require() -> None:
    """Skips where there is no KDC or no package gssapi."""
    if shutil.which("krb5kdc", path=_SBIN) is None or shutil.which("kadmin.local", path=_SBIN) is None:
        pytest.skip("krb5kdc is not installed (Debian: apt-get install krb5-kdc krb5-admin-server)")
    if not (PACKAGE / "gssapi").is_dir():
        pytest.skip(f"gssapi is not in {PACKAGE}; tests/peers/fetch_gssapi.sh fetches it")


class Kdc:
    """`environment` makes Kerberos' library, in any process, use this realm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{folder}",
            "PYTHONPATH": str(PACKAGE),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm={REALM}\ndns_lookup_kdc=false\ndns_lookup_realm=false\nrdns=false\n"
            f"dns_canonicalize_hostname=false\nudp_preference_limit=1\n"
            f"[realms]\n{REALM} = {{\nkdc=127.0.0.1:{self.port}\n}}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[realms]\n{REALM} = {{\ndatabase_name={self.folder}/principal\nkey_stash_file={self.folder}/stash\n"
            f"kdc_listen=127.0.0.1:{self.port}\nkdc_tcp_listen=127.0.0.1:{self.port}\n}}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        program = shutil.which("krb5kdc", path=_SBIN)
        assert program is not None
        self._process = subprocess.Popen([program, "-n"], env=self._environment(), stderr=subprocess.DEVNULL)
        wait_until(self._answers, "the KDC")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def key_table(self, principal: str) -> Path:
        """Makes a principal with random keys; returns the file that has them."""
        path = self.folder / f"{principal.replace('/', '_')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def _run(self, *words: str) -> None:
        program = shutil.which(words[0], path=_SBIN)
        assert program is not None, words[0]
        done = subprocess.run(
            [program, *words[1:]], env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _environment(self) -> dict[str, str]:
        return os.environ | self.environment

    def _answers(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0
