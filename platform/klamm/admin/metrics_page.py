"""The text that a server shows at /metrics."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Final

from klamm_base.errors import KlammError

_ANSWER_S: Final = 5.0
_BYTES_MAX: Final = 16 << 20


def fetch(url: str) -> str:
    """Returns the text at an address, read by a blocking request. Raises KlammError that says the address."""
    if not url.startswith(("http://", "https://")):
        raise KlammError(f"{url}: write http://HOST:PORT/metrics")
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - checked
            return str(answer.read(_BYTES_MAX).decode(errors="replace"))
    except (OSError, ValueError, urllib.error.URLError) as e:
        raise KlammError(f"no metrics from {url}: {getattr(e, 'reason', e)}") from None
