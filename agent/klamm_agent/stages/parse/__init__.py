"""Parsers: texts of a block to fields, each format a module. Pure.

A parser gives a nested dict, fresh for each event, or a sentence that says why there is none.
"""

from __future__ import annotations

from typing import Any, Protocol

Parsed = dict[str, Any] | str


class Parser(Protocol):
    """One format."""

    def parse(self, texts: list[str]) -> list[Parsed]:
        """What each text holds; a str is the reason why it could not be parsed."""
