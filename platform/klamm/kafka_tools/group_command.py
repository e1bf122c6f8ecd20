"""The common part of Kafka's commands for groups: options, their checks, how an action runs, what is said of deletions."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.groups import Group, GroupListing
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.group_offsets import print_error
from klamm.kafka_tools.group_tables import aligned
from klamm.kafka_tools.options import Option, Options, UsageError
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
BOOTSTRAP: Final = Option("bootstrap-server", "REQUIRED: the broker to connect to.", "HOST:PORT")
TIMEOUT: Final = Option("timeout", "How long to wait for the cluster, in ms.", "MS", default="30000")
EXECUTE: Final = Option("execute", "--reset-offsets: do it.")
EXPORT: Final = Option("export", "--reset-offsets: print the new offsets as CSV.")
TARGETS: Final = (
    Option("to-offset", "Reset to this offset.", "OFFSET"),
    Option("from-file", "Reset to the offsets of a CSV file.", "FILE"),
    Option("to-datetime", "Reset to the first record from this time on.", "YYYY-MM-DDThh:mm:ss.sss"),
    Option("by-duration", "Reset to the first record not older than this.", "PnDTnHnMnS"),
    Option("to-earliest", "Reset to the first record."),
    Option("to-latest", "Reset to the end."),
    Option("to-current", "Reset to where the group is."),
    Option("shift-by", "Reset to so many records further, or back if negative.", "N"),
)

Act = Callable[[Admin, Options], Awaitable[int | None]]


def describe_options(*, members: str = "the members", offsets: str = "offsets and lag") -> tuple[Option, ...]:
    """Return the options that say what `--describe` shows; `--list` takes the last of them, too."""
    only_with = ("describe",)
    return (
        Option("members", f"--describe: {members}.", only_with=only_with),
        Option("verbose", "--describe: more columns.", only_with=only_with),
        Option("offsets", f"--describe: {offsets} (the default).", only_with=only_with),
        Option(
            "state", "--describe: the groups' state; --list: with states, or only groups in these.", "STATE,...",
            optional=True, only_with=("describe", "list"),
        ),
    )  # fmt: skip


def check_scope(options: Options, action: str) -> None:
    """Raise UsageError when no group is named and not all are meant."""
    if not options.has("group") and not options.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")


def check_describe(options: Options) -> None:
    """Raise UsageError for a `--describe` that does not say what to show of which groups."""
    check_scope(options, "describe")
    if sum(options.has(o) for o in ("members", "offsets", "state")) > 1:
        raise UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options.get("state") is not None:
        raise UsageError("Option [describe] does not take a value for [state]")


def check_execution(options: Options) -> bool:
    """Return whether `--dry-run` or `--execute` was given. Raises UsageError for both."""
    if options.has("dry-run") and options.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    return options.has("dry-run") or options.has("execute")


def require_execution(options: Options) -> None:
    """Raise UsageError unless either `--dry-run` or `--execute` was given."""
    if not check_execution(options):
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")


def exclude_each_other(options: Options, names: Sequence[str]) -> None:
    """Raise UsageError when more than one of these was given."""
    for name in names:
        options.exclude(name, [other for other in names if other != name])


def carry_out_action(kind: str, options: Options, act: Act, *, failed: int = 0) -> int:
    """Run an action against the cluster and return the exit code: `failed` where the command fails as a whole."""
    timeout_s = (options.number("timeout") or 0) / 1000
    try:
        return with_admin(options, lambda admin: act(admin, options), timeout_s=timeout_s) or 0
    except KlammError as e:
        said = with_class(e) if isinstance(e, AdminError) else str(e)
        print_error(f"Executing {kind} group command failed due to {said}")
        return failed


def chosen_states(text: str | None, known: Sequence[str]) -> list[str]:
    """Return the states of a comma separated list, in any case. Raises UsageError."""
    by_word = {s.lower(): s for s in known}
    words = [w.strip().lower() for w in text.split(",")] if text else []
    if any(w not in by_word for w in words):
        raise UsageError(f"Invalid state list '{text}'. Valid states are: {', '.join(known)}")
    return [by_word[w] for w in words]


def tell_groups(found: Sequence[GroupListing], *, with_state: bool) -> None:
    """Print the names of groups, with their states if asked to."""
    if with_state:
        sys.stdout.write(aligned([["GROUP", "STATE"], *([g.group, g.state] for g in found)], [15]))
    else:
        sys.stdout.write("".join(f"{g.group}\n" for g in found))


async def describe_all(
    admin: Admin, names: Iterable[str], describe: Callable[[Admin, str], Awaitable[Group]]
) -> list[Group]:
    """Return the descriptions of groups, by name. Raises the AdminError of the first that has none."""
    described: list[Group] = []
    for found in await admin.each(sorted(set(names)), lambda name: describe(admin, name)):
        if isinstance(found, AdminError):
            raise found
        described.append(found)
    return described


def tell_deletions(
    kind: str, done: Sequence[str], failed: Mapping[str, str], *, nothing: str = "", end: str = ""
) -> None:
    """Print which groups were deleted and which were not; `nothing` stands for the names where there were none."""
    names = ", ".join(f"'{g}'" for g in done) or nothing
    if not failed:
        sys.stdout.write(f"Deletion of requested {kind} groups ({names}) was successful.\n")
        return
    print_error(f"Deletion of some {kind} groups failed:")
    for group, why in failed.items():
        sys.stdout.write(f"* Group '{group}' could not be deleted due to: {why}\n")
    if done:
        sys.stdout.write(f"\nThese {kind} groups were deleted successfully: {names}{end}\n")
