"""The walk over the schemas that a registered schema refers to, theirs included. Pure: who calls it asks the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from klamm_plugins.errors import DataError

REFERRED_MAX: Final = 1000
"""The schemas that one may refer to. More come from a registry that is none."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to by `name`."""

    name: str
    subject: str
    version: int


def references_in(answer: Mapping[str, Any]) -> tuple[Reference, ...]:
    """Returns the references of the schema in an answer of a registry."""
    return tuple(
        Reference(r["name"], r["subject"], int(r["version"])) for r in answer.get("references") or ()
    )


Referred = tuple[str, Sequence[Reference]]
"""A schema's text, and what it refers to itself."""


def referred_texts(
    references: Sequence[Reference], ask: Callable[[Reference], Referred], *, limit: int = REFERRED_MAX
) -> dict[str, str]:
    """Returns the texts of all schemas that are referred to, by the names in use, inner ones first.

    Asks for each version once. Raises DataError for a circle and for more than `limit` schemas, and what `ask` raises.
    """
    known: dict[tuple[str, int], Referred] = {}
    open_: set[tuple[str, int]] = set()  # what is being walked through: a circle comes back to it
    found: dict[str, str] = {}
    stack: list[tuple[Reference | None, Iterator[Reference]]] = [(None, iter(references))]
    while stack:
        owner, left = stack[-1]
        reference = next(left, None)
        if reference is None:
            stack.pop()
            if owner is not None:
                place = (owner.subject, owner.version)
                open_.discard(place)
                found[owner.name] = known[place][0]
            continue
        place = (reference.subject, reference.version)
        where = f"{reference.subject} version {reference.version}"
        if place in open_:
            raise DataError(f"the references of schemas form a circle: {where} refers to itself")
        if place in known:
            found[reference.name] = known[place][0]
            continue
        if len(known) >= limit:
            raise DataError(f"a schema refers to more than {limit} others; {where} is one too many")
        known[place] = ask(reference)
        open_.add(place)
        stack.append((reference, iter(known[place][1])))
    return found
