"""A part that is made at its first use, so that whoever never uses it pays neither for its modules nor for its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FirstUse(Generic[T]):
    """Call it to get the part. `made` is the part, or None before its first use: for what concerns only a part in use.

    `make` imports what it needs. One thread only.
    """

    __slots__ = ("_make", "made")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
