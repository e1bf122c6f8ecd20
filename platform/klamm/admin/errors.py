"""A cluster's refusal, as a sentence and with its code."""

from __future__ import annotations

from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode


class AdminError(KlammError):
    """A request was refused. `code` is the protocol's error code, `text` the reason without the request's subject."""

    def __init__(self, code: int, what: str, text: str | None = None) -> None:
        self.code = code
        self.what = what
        self.text = text or message_of(code)
        self.given = text is not None and text != ""
        super().__init__(f"{what}: {self.text}")


def message_of(code: int) -> str:
    """Return the meaning of an error code in words."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error code {code}, which is unknown here"
    return f"{known.message} ({known.name})"
