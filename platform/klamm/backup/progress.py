"""The seam by which a long operation tells its progress; the command decides how to show it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Takes counts: records as offsets, and bytes of batches."""

    def begin(self, what: str, total: int) -> None:
        """A part of the work begins, of so many offsets."""
        ...

    def advance(self, offsets: int, size: int) -> None: ...

    def say(self, text: str) -> None:
        """Tell what the user should know."""
        ...
