"""A difference between two schemas that breaks compatibility, in words, and as the list of an answer shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm.registry.errors import invalid_schema

STEPS_MAX: Final = 500_000
"""The pairs of types that a comparison may look at: about a second, in which the registry answers nothing else."""


class Steps:
    """Counts what a comparison looks at, so that no schema holds up the registry."""

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def take(self, count: int = 1) -> None:
        """Counts steps. Raises RegistryError 42201 after too many."""
        self._left -= count
        if self._left < 0:
            raise invalid_schema(
                f"Invalid schema: it cannot be compared with an earlier one in {STEPS_MAX} steps"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference: Confluent's name of its kind, where it is, and what is wrong. `info` is a detail for programs."""

    kind: str
    path: str
    words: str
    info: str = ""

    def __str__(self) -> str:
        info = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.kind}', description:'{self.words}'{info}}}"
