"""`klamm backup prune`: removes old backups, and chunks that no backup needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm.backup.errors import BackupError
from klamm.backup.folder import BackupFolder
from klamm.backup.manifest import FOLDER, id_ms

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Removed things: backups, and files of chunks."""

    backups: tuple[str, ...]
    files: tuple[str, ...]


def kept(ids: Sequence[str], *, now_ms: int, last: int | None, days: float | None) -> list[str]:
    """Return the backups that stay: the last ones, and those of the last days; always one. `ids` are in order."""
    oldest = now_ms - (days or 0) * DAY_MS
    stay = [
        name
        for i, name in enumerate(ids)
        if (last is not None and i >= len(ids) - last) or (days is not None and id_ms(name) >= oldest)
    ]
    return stay or list(ids[-1:])


def prune(
    folder: BackupFolder, *, now_ms: int, last: int | None, days: float | None, dry_run: bool = False
) -> Pruned:
    """Remove backups, chunks, and files that are half written. Those behind the last manifest stay: a command may be writing them. Blocks.

    Manifests go first, the oldest before the others: a killed run leaves chunks that the next one removes, and a chain that begins later.
    Raises BackupError, DamagedError for a manifest that stays and cannot be read.
    """
    if last is None and days is None:
        raise BackupError("give --keep-last or --keep-days")
    ids = folder.ids()
    stay = kept(ids, now_ms=now_ms, last=last, days=days)
    needed: set[str] = set()
    for name in stay:
        needed |= set(folder.manifest(name).state(folder.key).chunks())
    files = tuple(
        name for name in folder.files() if name not in needed and ids and name.split("/")[1] <= ids[-1]
    )
    gone = tuple(name for name in ids if name not in stay)
    if not dry_run:
        for name in gone:
            folder.store.remove(f"{FOLDER}/{name}")
        for name in files:
            folder.store.remove(name)
    return Pruned(backups=gone, files=files)
