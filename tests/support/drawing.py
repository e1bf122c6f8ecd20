"""Draws for property tests that take less time than one draw for each choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def choices(draw: Callable[[st.SearchStrategy[Any]], Any], options: Sequence[T], count: int) -> list[T]:
    """Draws so many of some options, by one draw of bytes. A failure is made simpler towards the first option."""
    return [options[byte % len(options)] for byte in draw(st.binary(min_size=count, max_size=count))]
