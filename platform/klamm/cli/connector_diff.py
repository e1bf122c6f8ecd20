"""The difference between a connector's configuration and a wanted one, without the secrets of either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klamm.cli.states import painted


class Change(NamedTuple):
    """A key whose value changes; None for a side that lacks the key.

    `hidden`: the worker hides the current value, so that nobody can tell whether it changes.
    """

    key: str
    before: str | None
    after: str | None
    hidden: bool = False


def changes(current: Mapping[str, str], wanted: Mapping[str, str]) -> list[Change]:
    """Return the changes that lead from one configuration to the other, by key."""
    return [
        Change(key, before, after, before is not None and after is not None and _hides(before, after))
        for key in sorted(current.keys() | wanted.keys())
        if (before := current.get(key)) != (after := wanted.get(key))
    ]


def _hides(before: str, after: str) -> bool:
    from klamm_base.redaction import HIDDEN, has_hidden_login, without_logins

    return before == HIDDEN or (has_hidden_login(before) and before == without_logins(after))


def lines(found: list[Change]) -> Iterator[str]:
    """Yield `- key=value` and `+ key=value` lines, `~ key` for a value that the worker hides."""
    for change in found:
        if change.hidden:
            yield painted(
                f"~ {change.key}={_shown(change.key, change.before)} (cannot be compared)", "yellow"
            )
            continue
        if change.before is not None:
            yield painted(f"- {change.key}={_shown(change.key, change.before)}", "red")
        if change.after is not None:
            yield painted(f"+ {change.key}={_shown(change.key, change.after)}", "green")


def _shown(key: str, value: str | None) -> str:
    """Return a value to print; of a secret only a reference to it, such as `${file:…}`."""
    from klamm_base.redaction import HIDDEN, is_secret_name, without_logins

    text = str(value)
    return HIDDEN if is_secret_name(key) and "${" not in text else without_logins(text)
