"""Alternatives in path patterns. Pure."""

from __future__ import annotations

from itertools import pairwise


def braces(pattern: str) -> list[str]:
    """Expands `a.{log,txt}` to `a.log` and `a.txt`, nested braces too. A brace without a comma or an end is a character."""
    depth, start = 0, -1
    commas: list[int] = []
    for i, character in enumerate(pattern):
        if character == "{":
            if not depth:
                start, commas = i, []
            depth += 1
        elif character == "," and depth == 1:
            commas.append(i)
        elif character == "}" and depth:
            depth -= 1
            if not depth and commas:
                cuts = [start, *commas, i]
                heads = [pattern[:start] + pattern[a + 1 : b] for a, b in pairwise(cuts)]
                return [head + tail for head in dict.fromkeys(h for x in heads for h in braces(x))
                        for tail in braces(pattern[i + 1 :])]  # fmt: skip
    return [pattern]
