"""What a plugin raises, and what the runtime does about it.

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
    """The root of what plugins raise (Kafka: ConnectException). Its message is shown to the user."""


class RetriableError(ConnectError):
    """It may work a moment later: the target is busy, a connection broke (Kafka: RetriableException)."""


class DataError(ConnectError):
    """The record cannot be used, now or later (Kafka: DataException). The message names the field."""


class PluginNotFoundError(ConnectError):
    """No plugin, or more than one, answers to the name that was asked for."""
