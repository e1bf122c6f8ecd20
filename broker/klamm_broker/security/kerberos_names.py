"""`sasl.kerberos.principal.to.local.rules`: the user's name from a Kerberos principal. Pure.

A principal is `name@REALM` or `name/host@REALM`. Rules are tried in order, and the first that fits decides: `DEFAULT` takes
the name of a principal of our own realm; `RULE:[n:string](pattern)s/from/to/g/L` takes principals of n parts, makes a text of
`string` (`$0` is the realm, `$1` the name, `$2` the host), which the pattern must match as a whole, and replaces in it.
`L` or `U` at the end puts the result in lower or upper case. After Kafka's KerberosShortNamer and KerberosRule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm_base.configdef import invalid

KEY: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"DEFAULT|RULE:\[(?P<parts>\d*):(?P<form>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"([^$]*)(?:\$(\d*))?")
_GROUP: Final = re.compile(r"\\(.)|\$(\d)|\$", re.DOTALL)
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class NoRule(ValueError):
    """A principal that no rule fits, or whose rule makes no user's name."""


class _Rule(NamedTuple):
    """A rule; without a `form` it is DEFAULT. `new` is in Python's notation."""

    parts: int = 0
    form: str | None = None
    match: re.Pattern[str] | None = None
    old: re.Pattern[str] | None = None
    new: str = ""
    all: bool = False
    case: str = ""

    def apply(self, values: Sequence[str], realm: str) -> str | None:
        """Returns the name that the rule makes of realm and parts; None where it does not fit. Raises NoRule."""
        found = self._made(values, realm)
        if found is not None and _NOT_SIMPLE.search(found):
            raise NoRule(f"the rules make {found!r} of a principal, which has / or @")
        return (
            found.lower()
            if found and self.case == "L"
            else found.upper()
            if found and self.case == "U"
            else found
        )

    def _made(self, values: Sequence[str], realm: str) -> str | None:
        if self.form is None:
            return values[1] if values[0] == realm else None
        if len(values) - 1 != self.parts:
            return None
        base = _filled(self.form, values)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.old is None:
            return base
        return self.old.sub(self.new, base, count=0 if self.all else 1)


class KerberosNames:
    """The rules of one listener, in order, for a server of `realm`."""

    def __init__(self, rules: Sequence[str], realm: str) -> None:
        """Reads rules. Raises ConfigError for the property."""
        self._rules = [_parsed(rule.strip()) for rule in rules] or [_Rule()]
        self._realm = realm

    def short(self, principal: str) -> str:
        """Returns the user's name. Raises NoRule."""
        match = _PRINCIPAL.fullmatch(principal)
        if match is None:
            if "@" in principal or "/" in principal or not principal:
                raise NoRule(f"{principal!r} is no principal of the form name/host@REALM")
            return principal
        name, host, realm = match.groups()
        values = [realm, name] if host is None else [realm, name, host]
        for rule in self._rules:
            found = rule.apply(values, self._realm)
            if found:
                return found
        raise NoRule(f"no rule of {KEY} fits {principal}")


def _parsed(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise invalid(KEY, text, "must be DEFAULT or RULE:[n:string](pattern)s/from/to/g/[LU]")
    if text == "DEFAULT":
        return _Rule()
    old = None if match["old"] is None else _pattern(text, match["old"])
    return _Rule(
        parts=int(match["parts"] or 0),
        form=match["form"],
        match=None if match["match"] is None else _pattern(text, match["match"]),
        old=old,
        new="" if old is None else _replacement(text, match["new"], old),
        all=match["all"] is not None,
        case=match["case"] or "",
    )


def _pattern(text: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as e:
        raise invalid(KEY, text, f"the pattern {pattern} cannot be used: {e}") from None


def _replacement(text: str, given: str, old: re.Pattern[str]) -> str:
    """Returns a replacement of Java's in Python's notation."""

    def part(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1].replace("\\", r"\\")
        if match[2] is None or int(match[2]) > old.groups:
            raise invalid(KEY, text, f"the replacement {given} has a $ without the number of a group")
        return f"\\g<{match[2]}>"

    return _GROUP.sub(part, given)


def _filled(form: str, values: Sequence[str]) -> str:
    """Returns the text with its parameters. Raises NoRule for one that the principal does not have."""
    found = []
    for literal, number in _PARAMETER.findall(form):
        found.append(literal)
        if number:
            if int(number) >= len(values):
                raise NoRule(f"the rule's ${number} is beyond the parts of the principal")
            found.append(values[int(number)])
    return "".join(found)
