"""`ssl.principal.mapping.rules`: the name of a principal from the distinguished name of its certificate. Pure.

Rules are tried in order, and the first that fits decides: `DEFAULT` takes the name as it is, `RULE:pattern/replacement/`
replaces in a name that the pattern matches as a whole, with `L` or `U` behind it in lower or upper case. Patterns are
Java's where Python's `re` has the same; groups in a replacement are `$1`. After Kafka's SslPrincipalMapper.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from klamm_base.configdef import invalid

KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")
_PART: Final = re.compile(r"\\(.)|\$(\d)|\$", re.DOTALL)
_BAD_GROUP: Final = "its replacement has a $ without the number of a group; write \\$ for the character"


class NoRule(ValueError):
    """A distinguished name that no rule fits."""


class _Rule(NamedTuple):
    """A rule; without a pattern it is DEFAULT. `replacement` is in Python's notation."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self.replacement, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


class PrincipalRules:
    """The rules of one listener, in order."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """Reads rules. Raises ConfigError for the property."""
        self.text = text
        self._rules = tuple(_parsed(text))

    def name_of(self, distinguished_name: str) -> str:
        """Returns the principal's name. Raises NoRule."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoRule(f"no rule of {KEY} fits {distinguished_name}")


def _parsed(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    text, at = text.strip(), 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            why = f"{text[at:]} is neither DEFAULT nor RULE:pattern/replacement/[LU]"
            raise invalid(KEY, text, why)
        at = match.end()
        rules.append(_Rule() if match[1] else _rule(text, match[2], match[3], match[4]))
    return rules or [_Rule()]


def _rule(text: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as e:
        raise invalid(KEY, text, f"the pattern {pattern} cannot be used: {e}") from None

    def part(match: re.Match[str]) -> str:
        literal, group = match[1], match[2]
        if literal is not None:
            return literal.replace("\\", r"\\")
        if group is None:
            raise invalid(KEY, text, _BAD_GROUP)
        return f"\\g<{group}>" if int(group) <= compiled.groups else f"${group}"

    return _Rule(compiled, _PART.sub(part, replacement), case)
