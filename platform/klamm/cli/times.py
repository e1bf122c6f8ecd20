"""Times as people write them on a command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from klamm_base.errors import ConfigError

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)")
_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Return a time in ms since 1970: ISO 8601, ms, or so long ago, such as 90m. Raises ConfigError.

    Never a negative one, which brokers would take for one of their special times.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    if ago := _AGO.fullmatch(text):
        return max(int(time.time() * 1000) - int(ago[1]) * _MS[ago[2]], 0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no time: write 2026-03-01T12:00:00 (UTC), with Z or +01:00, ms, or 90m for 90 minutes ago (s, m, h, d)"
        ) from None
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return max((moment - _EPOCH) // timedelta(milliseconds=1), 0)
