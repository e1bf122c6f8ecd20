"""Masks hide what must not leave the host: parts of a text by pattern, before any other stage sees it, or fields after parsing. Pure.

With `hash_key` the same text always becomes the same short digest (HMAC-SHA256 with the key): it can still be counted and searched
for.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

from klamm_agent.stages.filters import anywhere
from klamm_agent.stages.parse.fields import get, pop, put
from klamm_agent.stages.patience import each
from klamm_agent.stages.staged import StagedEvents

PRESETS: Final = {
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.)+[A-Za-z]{2,24}\b",
    "credit_card": r"\b[1-9][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{1,7}\b|\b3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}\b",
    "ipv4": r"\b(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\b",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
    "jwt": r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
    "bearer": r"(?P<before>\b[Bb]earer +)[A-Za-z0-9._~+/=-]{8,}",
    "basic_auth": r"(?P<before>\b[Bb]asic +)[A-Za-z0-9+/]{8,}={0,2}",
    "url_password": r"(?P<before>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@]{1,128}:)[^\s/@]{1,256}(?=@)",
    "secret": r"(?P<before>(?:[Pp](?:assword|asswd|wd)|PASSWORD|[Ss]ecret|SECRET|[Aa]pi[_-]?[Kk]ey|API_KEY|[Tt]oken|TOKEN)[\"']?\s{0,4}[=:]\s{0,4}[\"']?)(?!\*\*)[^\s\"'&,;}]{1,512}",
    "aws_key": r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
}
"""Expressions by preset. The part that the group `before` matches stays."""
_HIDDEN: Final = "***"
_NEEDS: Final = {
    "email": "@",
    "jwt": "eyJ",
    "bearer": "earer ",
    "basic_auth": "asic ",
    "url_password": "://",
    "aws_key": "IA",
}
"""A text that every match of the preset contains: looking for it first costs next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """One [[inputs.mask]]: a pattern in the text, or the fields of a document."""

    pattern: str = ""
    preset: str = ""
    fields: tuple[str, ...] = ()
    replacement: str = "***"
    hash_key: str = ""
    """Not empty: a digest replaces the hidden text."""


class TextMask:
    """The stage `mask`."""

    name = "mask"

    def __init__(self, masks: Sequence[Mask]) -> None:
        self._masks = [_masker(m) for m in masks]

    def run(self, staged: StagedEvents) -> None:
        """Masks all texts. A text that takes too long to search is hidden as a whole."""
        changed = False
        for mask in self._masks:
            masked = each(staged.texts, mask, lambda _text: _HIDDEN)
            if masked is not staged.texts:
                changed, staged.texts = True, masked
        if changed:
            staged.encode()


class FieldMask:
    """The stage `mask fields`: hides the whole value of each of the fields."""

    name = "mask fields"

    def __init__(self, masks: Sequence[Mask]) -> None:
        self._masks = [(m, name) for m in masks for name in m.fields]

    def run(self, staged: StagedEvents) -> None:
        """Masks the fields in all documents."""
        for mask, name in self._masks:
            for doc in staged.docs:
                value = get(doc, name)
                if value is not None:
                    hidden = _digest(mask.hash_key, str(value)) if mask.hash_key else mask.replacement
                    if isinstance(value, dict):
                        pop(doc, name)
                    put(doc, name, hidden)


def _pattern(mask: Mask) -> str:
    return PRESETS[mask.preset] if mask.preset else mask.pattern


def _masker(mask: Mask) -> Callable[[list[str]], list[str]]:
    """Returns a function that masks texts; it returns the same list when there is nothing to hide."""
    find, sub, replace = _finder(mask), re.compile(_pattern(mask)).sub, _replacer(mask)

    def masked(texts: list[str]) -> list[str]:
        hits = find(texts)
        if not any(hits):
            return texts
        return [sub(replace, text) if hit else text for text, hit in zip(texts, hits, strict=True)]

    return masked


def _finder(mask: Mask) -> Callable[[list[str]], list[bool]]:
    """Returns a function that tells for each text whether it has something to hide."""
    found, needed = anywhere([_pattern(mask)]), _NEEDS.get(mask.preset)
    if needed is None:
        return found

    def with_needed(texts: list[str]) -> list[bool]:
        candidates = [needed in text for text in texts]
        if not any(candidates):
            return candidates
        answers = iter(found(list(compress(texts, candidates))))
        return [has and next(answers) for has in candidates]

    return with_needed


def _replacer(mask: Mask) -> Callable[[re.Match[str]], str]:
    """Returns a function that gives the replacement of a match. A card number is hidden only if its check digit is right."""
    card = mask.preset == "credit_card"

    def replace(match: re.Match[str]) -> str:
        found = match[0]
        before = match["before"] if mask.preset and "before" in match.re.groupindex else ""
        if card and not _is_card(found):
            return found
        if mask.hash_key:
            return before + _digest(mask.hash_key, found[len(before) :])
        return before + (mask.replacement if mask.preset else match.expand(mask.replacement))

    return replace


def _digest(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()[:16]


def _is_card(text: str) -> bool:
    """Makes Luhn's check on a card number."""
    digits = [int(c) for c in text if c.isdigit()]
    doubled = (sum(divmod(2 * d, 10)) for d in digits[-2::-2])
    return 13 <= len(digits) <= 19 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
