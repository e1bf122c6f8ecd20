"""The refusal of a configuration that a request asks for, with the code for the answer."""

from __future__ import annotations

from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode


class ConfigRefused(KlammError):
    """The request is wrong (INVALID_REQUEST), a value in it is (INVALID_CONFIG), or it names something that does not exist."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
