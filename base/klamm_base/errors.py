"""The root of Klamm's errors, and the error for bad configuration."""

from __future__ import annotations


class KlammError(Exception):
    """An error that Klamm reports to its user as a sentence, without a traceback."""


class ConfigError(KlammError):
    """A configuration value that cannot be used.

    The message names the key, the value (never a secret's) and a right value; `source` is the value's origin:
    `server.properties:12`, `environment KLAMM_NUM_PARTITIONS`, `--override`.
    """

    def __init__(self, message: str, *, key: str | None = None, source: str | None = None) -> None:
        super().__init__(f"{source}: {message}" if source else message)
        self.key = key
        self.source = source
