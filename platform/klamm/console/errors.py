"""Errors that a page shows as a sentence."""

from __future__ import annotations

from typing import ClassVar

from klamm_base.errors import KlammError


class ConsoleError(KlammError):
    """A request that cannot be answered as it was asked."""

    status: ClassVar[int] = 400


class NotThere(ConsoleError):
    """The thing of the address does not exist."""

    status = 404


class Refused(ConsoleError):
    """The user may not do this, or nobody may."""

    status = 403


class Busy(ConsoleError):
    """Too much of the same is under way."""

    status = 429


class Upstream(ConsoleError):
    """A service of the cluster did not answer, or refused. `code` is its HTTP status, if it gave one."""

    status = 502

    def __init__(self, said: str, code: int | None = None) -> None:
        super().__init__(said)
        self.code = code
