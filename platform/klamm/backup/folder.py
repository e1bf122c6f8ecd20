"""A backup folder: its marker with the key, its manifests, and chunks by their descriptions. Blocks; threads may call it."""

from __future__ import annotations

import json
from typing import Final

from klamm.backup.chunks import unpack
from klamm.backup.errors import BackupError, DamagedError
from klamm.backup.keys import PASSPHRASE_ENV, FolderKey, Secret
from klamm.backup.manifest import DATA, FOLDER, FORMAT, Manifest, decode, is_id
from klamm.backup.model import Chunk
from klamm.backup.store import TEMPORARY, Store
from klamm_kafka.wire.varint import Buffer

MARKER: Final = "klamm-backup.json"


class BackupFolder:
    """A folder that is open. `key` is None where it is not encrypted."""

    def __init__(self, store: Store, key: FolderKey | None) -> None:
        self.store = store
        self.key = key

    @classmethod
    def open(cls, store: Store, secret: Secret | None) -> BackupFolder:
        """Open a folder that exists. Raises BackupError for one that is no backup, or for a secret that does not fit."""
        return cls(store, _key_of(_marker(store), store, secret))

    @classmethod
    def without_key(cls, store: Store) -> BackupFolder:
        """Open a folder for a look at the first lines of its manifests, which are never encrypted. Raises BackupError."""
        _marker(store)
        return cls(store, None)

    @classmethod
    def make(cls, store: Store, secret: Secret | None) -> BackupFolder:
        """Open a folder, or make it of an empty one; with a secret, it is encrypted. Raises BackupError."""
        raw = store.read(MARKER)
        if raw is not None:
            return cls(store, _key_of(raw, store, secret))
        if any(name not in ("lock", MARKER + TEMPORARY) for name in store.names("")):
            raise BackupError(f"{store} is neither empty nor a folder of backups")
        key = FolderKey.new() if secret is not None else None
        told = {"format": FORMAT, "encryption": key.locked(secret) if key and secret else None}
        store.write(MARKER, [json.dumps(told, indent=2).encode()])
        return cls(store, key)

    def ids(self) -> list[str]:
        """Return the ids of the backups, the oldest first. Other files beside the manifests, and copies below them, do not count."""
        names = (name.removeprefix(f"{FOLDER}/") for name in self.store.names(FOLDER))
        return [name for name in names if is_id(name)]

    def files(self) -> list[str]:
        """Return the files of chunks, and the manifests that are half written."""
        half = [name for name in self.store.names(FOLDER) if name.endswith(TEMPORARY)]
        return [*self.store.names(DATA), *half]

    def manifest(self, name: str) -> Manifest:
        """Return a backup's manifest. Raises BackupError, DamagedError."""
        raw = self.store.read(f"{FOLDER}/{name}")
        if raw is None:
            raise BackupError(f"{self.store} holds no backup {name}; `klamm backup list` shows all")
        return decode(raw, name)

    def last_good(self) -> tuple[Manifest | None, list[str]]:
        """Return the last manifest that can be read, None where there is none, and sentences on those behind it. Raises BackupError."""
        damage: list[str] = []
        for name in reversed(self.ids()):
            try:
                found = self.manifest(name)
                found.state(self.key)
                return found, damage
            except DamagedError as e:
                damage.append(str(e))
        return None, damage

    def chosen(self, name: str | None) -> Manifest:
        """Return the manifest of this backup; None: the last one."""
        ids = self.ids()
        if not ids:
            raise BackupError(f"{self.store} holds no complete backup")
        return self.manifest(name or ids[-1])

    def load(self, topic: str, partition: int, chunk: Chunk) -> Buffer:
        """Return the batches of a chunk, checked by its checksum. Raises DamagedError naming file, topic and partition."""
        try:
            raw = self.store.read(chunk.file)
            if raw is None:
                raise DamagedError("it is not there")
            return unpack(chunk, raw, self.key)
        except DamagedError as e:
            raise damaged(topic, partition, chunk, e) from None


def damaged(topic: str, partition: int, chunk: Chunk, error: Exception) -> DamagedError:
    """Return the error of a chunk, with its place."""
    return DamagedError(
        f"{chunk.file} ({topic} partition {partition}, offsets {chunk.first} to {chunk.end - 1}): {error}"
    )


def _marker(store: Store) -> bytes:
    raw = store.read(MARKER)
    if raw is None:
        raise BackupError(f"{store} holds no backups ({MARKER} is not there)")
    return raw


def _key_of(raw: bytes, store: Store, secret: Secret | None) -> FolderKey | None:
    try:
        told = json.loads(raw)
        encryption, version = told["encryption"], told["format"]
    except (ValueError, KeyError, TypeError):
        raise DamagedError(f"{store}/{MARKER} cannot be read") from None
    if version != FORMAT:
        raise BackupError(f"{store} has format {version}, which this release does not know")
    if encryption is None and secret is not None:
        raise BackupError(
            f"{store} is not encrypted, so anybody may have written what it holds: give no key (and no {PASSPHRASE_ENV}),"
            " or take another folder"
        )
    if encryption is None:
        return None
    if secret is None:
        wanted = "--passphrase-file" if encryption["kdf"] == "scrypt" else "--key-file"
        raise BackupError(f"{store} is encrypted (key id {encryption['key_id']}): give {wanted}")
    return FolderKey.unlock(encryption, secret)
