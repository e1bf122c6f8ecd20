"""Ids by part, in memory up to a bound and in temporary files beyond it."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from klamm.reconcile.compare import (
    PARTS,
    Comparison,
    Document,
    SourceLine,
    compare,
    no_excuse,
    part_of,
)

IN_MEMORY: Final = 200_000
"""The number of entries of each side that stay in memory: some 40 MB."""


class Spill:
    """Tuples whose first field is an id, by part, to be used in a `with`, which removes the files."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._limit = in_memory
        self._held = 0
        self._parts: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTS)]
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fill(self, entries: Iterable[tuple[Any, ...]]) -> None:
        """Add entries."""
        parts = self._parts
        for entry in entries:
            parts[part_of(entry[0])].append(tuple(entry))
            self._held += 1
            if self._held >= self._limit:
                self._write_out()

    def part(self, number: int) -> Iterator[tuple[Any, ...]]:
        """Yield the entries of one part; may be called again.

        Entries that are added meanwhile may or may not be among them.
        """
        if self._files:
            file = self._files[number]
            file.seek(0)
            while file.peek(1):  # type: ignore[attr-defined]
                yield from marshal.load(file)  # noqa: S302 - our own temporary file
        yield from self._parts[number]

    def _write_out(self) -> None:
        if not self._files:
            self._files = [
                self._stack.enter_context(tempfile.TemporaryFile(prefix="klamm-reconcile-"))  # noqa: SIM115 - the stack closes it
                for _ in range(PARTS)
            ]
        for part, file in zip(self._parts, self._files, strict=True):
            file.seek(0, os.SEEK_END)
            marshal.dump(part, file)
            part.clear()
        self._held = 0


def reconcile(
    source: Iterable[SourceLine], target: Iterable[Document], *, in_memory: int = IN_MEMORY
) -> Comparison:
    """Compare any number of lines and documents by id, in bounded memory."""
    with Spill(in_memory) as lines, Spill(in_memory) as documents:
        lines.fill(source)
        documents.fill(target)
        return compared(lines, documents)


def compared(
    lines: Spill,
    documents: Spill,
    later: Spill | None = None,
    excuse: Callable[[SourceLine], str] = no_excuse,
) -> Comparison:
    """Compare part by part with `compare.compare`, and return the whole result."""
    result = Comparison()
    for number in range(PARTS):
        compare(
            cast(Iterator[SourceLine], lines.part(number)),
            cast(Iterator[Document], documents.part(number)),
            result,
            later=() if later is None else cast(Iterator[SourceLine], later.part(number)),
            excuse=excuse,
        )
    return result
