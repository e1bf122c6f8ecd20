"""Decides whether lists of topic patterns have a name in common: pure.

An expression is read as a glob: characters, `.`, `.*` and `|` exactly; a class as any character, a group as any text.
So a glob matches at least what its expression matches. An exclude counts only where its glob is exact. The answer may
therefore be a name too many, and never one too few.
"""

from __future__ import annotations

import string
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

ANY, STAR = "any", "star"
"""Tokens of a glob: one character; any text. Other tokens are the character itself."""
Token = str
States = frozenset[tuple[int, int]]
"""The places in a list of globs that a name may have reached: number of the glob, token that is next."""

STATES_MAX: Final = 50_000
"""Steps of a search. Lists that need more count as overlapping."""
_NAME_CHARACTERS: Final = string.ascii_lowercase + string.ascii_uppercase + string.digits + "-_."
_QUANTIFIERS: Final = "*+?{"


@dataclass(frozen=True, slots=True)
class Glob:
    """An expression's tokens. `exact`: they match what the expression matches, and nothing else."""

    tokens: tuple[Token, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a list of expressions includes and another does not exclude. `prefix` stands before the name."""

    include: Sequence[Glob]
    exclude: Sequence[Glob]
    prefix: str = ""

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str], prefix: str = "") -> Names:
        return cls(
            [glob for item in include for glob in globs(item)],
            [glob for item in exclude for glob in globs(item) if glob.exact],
            prefix,
        )


def globs(expression: str) -> list[Glob]:
    """Reads an expression: a glob for each alternative."""
    found: list[list[Token]] = [[]]
    exact = [True]
    pos = 0
    while pos < len(expression):
        char, tokens = expression[pos], found[-1]
        pos += 1
        if char == "|":
            found.append([])
            exact.append(True)
        elif char in _QUANTIFIERS:
            exact[-1] &= _repeat(tokens, char)
            pos = _after_quantifier(expression, pos, char)
        elif char in "([":
            pos = _after_group(expression, pos) if char == "(" else _after_class(expression, pos)
            tokens.append(STAR if char == "(" else ANY)
            exact[-1] = False
        elif char == "\\" and pos < len(expression):
            known = not expression[pos].isalnum()
            tokens.append(expression[pos] if known else STAR)
            exact[-1] &= known
            pos += 1
        elif char not in "^$":
            tokens.append(ANY if char == "." else char)
    return [Glob(tuple(tokens), whole) for tokens, whole in zip(found, exact, strict=True)]


def _repeat(tokens: list[Token], quantifier: str) -> bool:
    """Applies a quantifier to the last token. Returns False when the glob matches more from now on."""
    last = tokens.pop() if tokens else STAR
    if quantifier == "+":
        tokens.append(last)
    tokens.append(STAR)
    return last in {ANY, STAR} and quantifier in "*+"


def _after_quantifier(expression: str, pos: int, quantifier: str) -> int:
    if quantifier == "{":
        pos = (expression.find("}", pos) + 1) or len(expression)
    return pos + 1 if expression[pos : pos + 1] in {"?", "+"} else pos


def _after_class(expression: str, pos: int) -> int:
    pos += expression[pos : pos + 1] == "^"
    pos += expression[pos : pos + 1] == "]"
    while pos < len(expression) and expression[pos] != "]":
        pos += 1 + (expression[pos] == "\\")
    return pos + 1


def _after_group(expression: str, pos: int) -> int:
    depth = 1
    while pos < len(expression) and depth:
        char = expression[pos]
        pos += 1
        if char == "\\":
            pos += 1
        elif char == "[":
            pos = _after_class(expression, pos)
        else:
            depth += (char == "(") - (char == ")")
    return pos


def common_name(lists: Sequence[Names]) -> str | None:
    """Returns a shortest name that all lists have, "" for lists that are too long to tell, None when there is none."""
    start = tuple(
        (
            _advance_all(n.include, _begin(n.include), n.prefix),
            _advance_all(n.exclude, _begin(n.exclude), n.prefix),
        )
        for n in lists
    )
    other = next(
        (c for c in _NAME_CHARACTERS if not any(c in g.tokens for n in lists for g in n.include)), "x"
    )
    seen, queue = (
        set[object](),
        deque([("", start)]),
    )  # the start may come again, with a name that is not empty
    while queue:
        name, state = queue.popleft()
        if name and all(_accepts(n, *each) for n, each in zip(lists, state, strict=True)):
            return name
        for char in _next_characters(lists[0].include, state[0][0], other):
            following = tuple(
                (_advance(n.include, include, char), _advance(n.exclude, exclude, char))
                for n, (include, exclude) in zip(lists, state, strict=True)
            )
            if following not in seen and all(include for include, _ in following):
                if len(seen) >= STATES_MAX:
                    return ""
                seen.add(following)
                queue.append((name + char, following))
    return None


def _begin(list_of: Sequence[Glob]) -> States:
    return _settle(list_of, ((number, 0) for number in range(len(list_of))))


def _settle(list_of: Sequence[Glob], places: Iterator[tuple[int, int]]) -> States:
    """Adds the places behind stars, which may stand for no text."""
    found, left = set[tuple[int, int]](), list(places)
    while left:
        number, at = place = left.pop()
        found.add(place)
        if list_of[number].tokens[at : at + 1] == (STAR,):
            left.append((number, at + 1))
    return frozenset(found)


def _advance(list_of: Sequence[Glob], states: States, char: str) -> States:
    def following() -> Iterator[tuple[int, int]]:
        for number, at in states:
            tokens = list_of[number].tokens
            if at < len(tokens):
                if tokens[at] == STAR:
                    yield number, at
                elif tokens[at] in {ANY, char}:
                    yield number, at + 1

    return _settle(list_of, following())


def _advance_all(list_of: Sequence[Glob], states: States, text: str) -> States:
    for char in text:
        states = _advance(list_of, states, char)
    return states


def _accepts(names: Names, include: States, exclude: States) -> bool:
    return _ends(names.include, include) and not _ends(names.exclude, exclude)


def _ends(list_of: Sequence[Glob], states: States) -> bool:
    return any(at == len(list_of[number].tokens) for number, at in states)


def _next_characters(list_of: Sequence[Glob], states: States, other: str) -> list[str]:
    """Returns the characters that lead on. `other` stands for all that no list names, and comes first.

    A dot is usually meant as a dot, although it takes any character.
    """
    tokens = {list_of[n].tokens[at] for n, at in states if at < len(list_of[n].tokens)}
    if tokens & {ANY, STAR}:
        return list(dict.fromkeys([*(["."] if ANY in tokens else []), other, *_NAME_CHARACTERS]))
    return sorted(tokens)
