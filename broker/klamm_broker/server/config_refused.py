"""Why a configuration cannot be what a request wants it to be, with the code for the answer."""

from __future__ import annotations

from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode


class ConfigRefused(KlammError):
    """The request is wrong (INVALID_REQUEST), or a value in it (INVALID_CONFIG), or what it names is not there."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
