"""Names of subjects and contexts. `:.staging:orders` is the subject orders of the context .staging; a name without a context is
in the default one, `.`. Pure.
"""

from __future__ import annotations

from typing import Final

from klamm.registry.errors import invalid_subject

DEFAULT: Final = "."
GLOBAL: Final = ":.__GLOBAL:"
"""Stands for all contexts, where levels and modes are set."""
_NO_SUBJECTS: Final = frozenset({"__GLOBAL", "__EMPTY"})
ANY: Final = ":*:"
"""The prefix that stands for all contexts in listings."""


def checked(name: str) -> str:
    """Returns a subject in its one spelling: `:.:orders` is orders. Raises RegistryError."""
    context, plain = split(name)
    nowhere = plain in _NO_SUBJECTS or f":{context}:" == GLOBAL
    if nowhere or (not plain and context == DEFAULT) or any(ord(c) < 32 for c in name):
        raise invalid_subject(name)
    return plain if context == DEFAULT else f":{context}:{plain}"


def split(name: str) -> tuple[str, str]:
    """Returns context and plain name of a subject. Raises RegistryError for a context without an end."""
    if not name.startswith(":."):
        return DEFAULT, name
    end = name.find(":", 2)
    if end < 0:
        raise invalid_subject(name)
    return name[1:end], name[end + 1 :]


def context_of(name: str | None) -> str:
    """Returns the context of a subject; the default one for None."""
    return DEFAULT if name is None else split(name)[0]


def is_context(name: str) -> bool:
    """Returns whether a name stands for a whole context: `:.staging:`."""
    return name.startswith(":.") and not split(name)[1]


def qualified(name: str, parent: str) -> str:
    """Returns a subject that a schema of another subject names: in that one's context, unless it has one of its own."""
    context = context_of(parent)
    return name if name.startswith(":.") or context == DEFAULT else f":{context}:{name}"
