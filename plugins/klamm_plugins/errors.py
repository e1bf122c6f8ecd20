"""The errors that a plugin raises, and the runtime's reaction.

| raised | the runtime |
|---|---|
| `RetriableError` | hands the same batch in again after a back-off |
| `DataError` | treats the record as bad: with `errors.tolerance=none` the task fails at once, no restart |
| `ConfigError` | refuses the configuration (400), or fails the task, no restart |
| anything else | fails the task, which the restart policy may start again |
"""

from __future__ import annotations

from klamm_base.errors import ConfigError, KlammError

__all__ = ["ConfigError", "ConnectError", "DataError", "PluginNotFoundError", "RetriableError"]


class ConnectError(KlammError):
    """The root of the errors that plugins raise (Kafka: ConnectException). The user sees its message."""


class RetriableError(ConnectError):
    """An error that may pass in a moment: the target is busy, a connection broke (Kafka: RetriableException)."""


class DataError(ConnectError):
    """An error for a record that cannot be used, now or later (Kafka: DataException). The message names the field."""


class PluginNotFoundError(ConnectError):
    """An error for a name that no plugin, or more than one, has."""


class PluginBrokenError(ConnectError):
    """An error for a name whose plugin package cannot be imported. Its cause is the package's own error, which may be mended."""
