"""Reads files again on SIGHUP, and says what was taken of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from klamm_base.errors import ConfigError
from klamm_base.service_manager import ServiceManager

log = logging.getLogger(__name__)


class Reloadable(Protocol):
    """Files that a running server can read again."""

    def reload(self) -> None:
        """Reads the files. Raises ConfigError, and goes on with what it has, for those that cannot be used."""


def reload(reloadable: Mapping[str, Reloadable], manager: ServiceManager) -> None:
    """Reads everything again, and says in one line what was taken, and what was refused and why; each is taken by itself."""
    manager.reloading()
    taken, refused = [], []
    for name, each in reloadable.items():
        try:
            each.reload()
        except ConfigError as e:
            refused.append(f"{name} stay as they were: {e}")
        else:
            taken.append(name)
    words = ", ".join([*taken[:-2], " and ".join(taken[-2:])])
    said = f"reloaded {words or 'nothing'}"
    if refused:
        log.error("%s", "; ".join([said, *refused]))
    elif taken:
        log.info("%s; other settings are read at the start only", said)
    else:
        log.info(
            "nothing to reload: there are no certificates or users, and other settings are read at the start only"
        )
    manager.reloaded("; ".join(refused))
