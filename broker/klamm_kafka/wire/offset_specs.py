"""The special times of ListOffsets (API key 2), as Kafka's OffsetSpec has them; any number from 0 on is a time in ms."""

from __future__ import annotations

from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version of the request that knows a special time, of those that came later than version 1."""
