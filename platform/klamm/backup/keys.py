"""Encryption of backups: AES-256-GCM with a random key for each folder, which a key file or a passphrase unlocks.

The folder's `klamm-backup.json` holds that key, encrypted. So a passphrase costs scrypt once a command, and no secret of the
user is in the folder. Each piece is bound to its place: a chunk cannot stand for another one.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.backup.errors import BackupError
from klamm_base.errors import ConfigError

if TYPE_CHECKING:
    from klamm_kafka.wire.varint import Buffer

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
SCRYPT_N: Final = 1 << 15
"""32 MiB and some 0.1 s: what scrypt's author names for interactive use, once a command."""
PASSPHRASE_ENV: Final = "KLAMM_BACKUP_PASSPHRASE"  # noqa: S105 - the variable's name
_BOUND: Final = b"klamm backup key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The secret that unlocks a folder: the content of a key file, or a passphrase."""

    key: bytes | None = None
    passphrase: bytes | None = None

    def __repr__(self) -> str:
        return "Secret(…)"

    @property
    def kind(self) -> str:
        return "scrypt" if self.key is None else "file"

    def unlocking(self, salt: bytes) -> bytes:
        """Return the key that encrypts the folder's key."""
        if self.key is not None:
            return self.key
        return hashlib.scrypt(
            self.passphrase or b"", salt=salt, n=SCRYPT_N, r=8, p=1, dklen=KEY_BYTES, maxmem=64 << 20
        )


def read_secret(key_file: Path | None, passphrase_file: Path | None) -> Secret | None:
    """Return the secret of a command line or of the environment; None without one. Raises ConfigError."""
    if key_file is not None and passphrase_file is not None:
        raise ConfigError("--key-file and --passphrase-file: give one of them")
    if key_file is not None:
        return Secret(key=_key(key_file))
    if passphrase_file is not None:
        text = _read("--passphrase-file", passphrase_file).rstrip(b"\r\n")
    else:
        text = os.environ.get(PASSPHRASE_ENV, "").encode()
    if not text:
        if passphrase_file is not None:
            raise ConfigError(f"--passphrase-file {passphrase_file}: the passphrase is empty")
        return None
    return Secret(passphrase=text)


def _key(path: Path) -> bytes:
    raw = _read("--key-file", path)
    if len(raw) == KEY_BYTES:
        return raw
    text = raw.strip()
    for decode in (bytes.fromhex, lambda t: base64.b64decode(t, validate=True)):
        try:
            found: bytes = decode(text.decode())
        except ValueError:
            continue
        if len(found) == KEY_BYTES:
            return found
    raise ConfigError(
        f"--key-file {path}: a key has 32 bytes, as they are, in hex or in base64 (openssl rand -hex 32 makes one)"
    )


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise ConfigError(f"{option} {path}: {e.strerror}") from None


class FolderKey:
    """The key of a folder. `id` names it in manifests and messages, and tells nothing of it."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._key = key
        self._cipher = AESGCM(key)
        self.id = hashlib.sha256(b"klamm backup key id" + key).hexdigest()[:16]

    @classmethod
    def new(cls) -> FolderKey:
        return cls(os.urandom(KEY_BYTES))

    def encrypt(self, data: Buffer, place: bytes) -> bytes:
        """Return the data encrypted and bound to its place."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, place)

    def decrypt(self, data: Buffer, place: bytes) -> bytes:
        """Return what was encrypted for this place. Raises ValueError for anything else."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        try:
            return self._cipher.decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], place)
        except InvalidTag:
            raise ValueError("it does not decrypt with the folder's key") from None

    def locked(self, secret: Secret) -> dict[str, Any]:
        """Return the key for `klamm-backup.json`, as only the secret unlocks it."""
        salt = os.urandom(16)
        locked = FolderKey(secret.unlocking(salt)).encrypt(self._key, _BOUND)
        return {"key_id": self.id, "kdf": secret.kind, "salt": salt.hex(), "key": locked.hex()}

    @classmethod
    def unlock(cls, told: dict[str, Any], secret: Secret) -> FolderKey:
        """Return the folder's key. Raises BackupError for a wrong secret."""
        wanted = "a passphrase" if told["kdf"] == "scrypt" else "a key file"
        if secret.kind != told["kdf"]:
            raise BackupError(
                f"the backup is encrypted by {wanted} (key id {told['key_id']}), which was not given"
            )
        try:
            return cls(
                FolderKey(secret.unlocking(bytes.fromhex(told["salt"]))).decrypt(
                    bytes.fromhex(told["key"]), _BOUND
                )
            )
        except ValueError:
            raise BackupError(
                f"this is not the {wanted[2:]} of the backup (key id {told['key_id']})"
            ) from None
