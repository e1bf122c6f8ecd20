"""Makes the topics that the broker itself writes to, when the first client needs them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm_broker.log.errors import LogError

if TYPE_CHECKING:
    from klamm_broker.server.broker import Broker

log = logging.getLogger(__name__)

_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")


def ensure(broker: Broker, name: str, *, partitions: int, overrides: Mapping[str, str]) -> bool:
    """Create the topic when it is not there; whether it is there then. The client that needs it asks again."""
    if name in broker.topics.by_name:
        return True
    try:
        broker.create_topic(name, partitions=partitions, overrides=overrides)
    except (LogError, OSError) as e:
        log.error("%s could not be created, it is tried again when a client needs it: %s", name, _said(e))  # noqa: TRY400
        return False
    return True


def _said(error: Exception) -> str:
    """The sentence of an error without the system's number, which says nothing more."""
    return _NUMBER.sub("", str(error))
