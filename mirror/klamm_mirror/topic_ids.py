"""Topic ids as text, as Kafka prints them: base64 for URLs, without padding. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final

_BYTES: Final = 16
_TEXT: Final = 22


def to_text(topic_id: bytes) -> str:
    """Returns an id such as `J6Fs8pQkRyKx0nQ0rT1v1A`."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Returns the id of a text. Raises ValueError."""
    try:
        found = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(text) != _TEXT or len(found) != _BYTES:
        raise ValueError(f"{text!r} is no topic id: must have {_TEXT} characters of base64")
    return found
