"""The errors of backups."""

from __future__ import annotations

from klamm_base.errors import KlammError


class BackupError(KlammError):
    """A backup cannot be made, read or restored; the sentence says what is wrong and where."""


class DamagedError(BackupError):
    """A file of the backup is not what was written."""
