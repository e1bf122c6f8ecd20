"""References to values that are kept elsewhere: `${provider:path:key}` and `${provider:key}`, as in Kafka's
configurations.

Pure: finds references and replaces them by values. A value that was put in is not searched again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

# Kafka's ConfigTransformer has the same pattern.
_PATTERN: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class Reference(NamedTuple):
    """One reference. `path` is empty in `${env:HOME}`."""

    provider: str
    path: str
    key: str

    def __str__(self) -> str:
        path = f"{self.path}:" if self.path else ""
        return f"${{{self.provider}:{path}{self.key}}}"


def references_in(text: str) -> list[Reference]:
    """Returns the references of a text in their order."""
    return [_reference(match) for match in _PATTERN.finditer(text)]


def replaced(text: str, lookup: Callable[[Reference], str | None]) -> str:
    """Replaces each reference of a text by its value; a reference whose value is None stays."""

    def value(match: re.Match[str]) -> str:
        found = lookup(_reference(match))
        return match[0] if found is None else found

    return _PATTERN.sub(value, text)


def with_references(
    configs: Iterable[Mapping[str, str]], raw: Mapping[str, str], values: Mapping[Reference, str]
) -> list[dict[str, str]]:
    """Puts the references back into configs that were made from resolved values.

    A key of `raw` that has a reference gets the text of `raw` (as Kafka does it). In other keys a value that came
    from a reference becomes that reference, if it is long enough not to be a coincidence.
    """
    known = {key: text for key, text in raw.items() if references_in(text)}
    found = sorted(
        ((value, str(reference)) for reference, value in values.items() if len(value) >= _TELLING),
        key=lambda pair: len(pair[0]),
        reverse=True,
    )

    def back(key: str, text: str) -> str:
        if key in known:
            return known[key]
        for value, reference in found:
            text = text.replace(value, reference)
        return text

    return [{key: back(key, text) for key, text in config.items()} for config in configs]


_TELLING: Final = 6  # characters: "true" or "8083" in another key is hardly the secret


def _reference(match: re.Match[str]) -> Reference:
    return Reference(match[1], match[3] or "", match[4])
