"""The levels of this process's loggers, under Kafka's names for levels: the BROKER_LOGGER resource.

The loggers are Python's; each exists once a module has asked for it, and `root` is above all. Levels last until the
process ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
_TRACE: Final = 5
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": _TRACE,
    "WARN": logging.WARNING,
}
"""Kafka's levels in the order of their names, with Python's numbers."""


def names() -> list[str]:
    """Returns every logger that exists, sorted."""
    known = logging.Logger.manager.loggerDict
    return sorted([ROOT, *(name for name, found in known.items() if isinstance(found, logging.Logger))])


def exists(name: str) -> bool:
    return name == ROOT or isinstance(logging.Logger.manager.loggerDict.get(name), logging.Logger)


def level(name: str) -> str:
    """Returns a logger's level: its own, or that of the nearest logger above that has one."""
    number = _logger(name).getEffectiveLevel()
    at_most = [(value, text) for text, value in LEVELS.items() if value <= max(number, _TRACE)]
    return max(at_most)[1]


def set_level(name: str, text: str | None) -> None:
    """Give a logger a level; None removes its own level."""
    _logger(name).setLevel(logging.NOTSET if text is None else LEVELS[text])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
