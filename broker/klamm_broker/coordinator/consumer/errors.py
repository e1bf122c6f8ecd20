"""The refusal of a request on a consumer group."""

from __future__ import annotations

from klamm_kafka.wire.errors import ErrorCode


class GroupError(Exception):
    """The request is answered with this error; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
