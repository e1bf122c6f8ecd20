"""`kafka-consumer-groups`: list, describe and delete groups, reset and delete their offsets."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm.admin import groups as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.group_report import positions
from klamm.admin.group_reset import carry_out, may_reset, plan_group, state_of
from klamm.admin.model import TopicPartition
from klamm.admin.reset import (
    How,
    ResetError,
    parse_topic,
    write_csv,
)
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.group_offsets import (
    SCENARIOS,
    Plain,
    forget,
    partitions_to_forget,
    print_error,
    wanted_reset,
)
from klamm.kafka_tools.group_tables import (
    listed,
    members_table,
    offsets_table,
    reset_table,
    state_table,
    warn_of_state,
)
from klamm.kafka_tools.options import Option, Options, UsageError, say
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "list, describe and delete consumer groups, reset or delete their offsets."
_DESCRIBE: Final = ("describe",)
OPTIONS = (
    Option("bootstrap-server", "REQUIRED, except for --validate-regex: the broker to connect to.", "HOST:PORT"),
    Option("command-config", "A .properties file with client settings.", "FILE"),
    Option("list", "List all consumer groups."),
    Option("describe", "Describe groups and their lag."),
    Option("delete", "Delete groups without members, with their offsets."),
    Option("reset-offsets", "Set offsets of groups without members; shows what it would do unless --execute."),
    Option("delete-offsets", "Forget the offsets of --topic in --group."),
    Option("validate-regex", "Say whether this is a regular expression.", "REGEX"),
    Option("group", "The group.", "GROUP"),
    Option("all-groups", "All consumer groups."),
    Option("topic", "The topic; --reset-offsets and --delete-offsets: also topic:0,1,2.", "TOPIC"),
    Option("all-topics", "--reset-offsets: all topics that the group has offsets of."),
    Option("timeout", "How long to wait for the cluster, in ms.", "MS", default="30000"),
    Option("dry-run", "--reset-offsets: only show what would be done (the default)."),
    Option("execute", "--reset-offsets: do it."),
    Option("export", "--reset-offsets: print the new offsets as CSV."),
    Option("to-offset", "Reset to this offset.", "OFFSET"),
    Option("from-file", "Reset to the offsets of a CSV file.", "FILE"),
    Option("to-datetime", "Reset to the first record from this time on.", "YYYY-MM-DDThh:mm:ss.sss"),
    Option("by-duration", "Reset to the first record not older than this.", "PnDTnHnMnS"),
    Option("to-earliest", "Reset to the first record."),
    Option("to-latest", "Reset to the end."),
    Option("to-current", "Reset to where the group is."),
    Option("shift-by", "Reset to so many records further, or back if negative.", "N"),
    Option("members", "--describe: the members.", only_with=_DESCRIBE),
    Option("verbose", "--describe: more columns.", only_with=_DESCRIBE),
    Option("offsets", "--describe: offsets and lag (the default).", only_with=_DESCRIBE),
    Option(
        "state", "--describe: the groups' state; --list: with states, or only groups in these.", "STATE,...",
        optional=True, only_with=("describe", "list"),
    ),
    Option("type", "--list: with types, or only groups of these.", "TYPE,...", optional=True, only_with=("list",)),
)  # fmt: skip
_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_NO_ACTION: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require"
    " either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are"
    " scripting this command and want to keep the current default behavior without prompting."
)


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act. Kafka exits with 0 after most failures, so this does."""
    _check(options)
    actions = [a for a in _ACTIONS if options.has(a)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: " + ", ".join(f"--{a}" for a in _ACTIONS))
    if actions[0] == "validate-regex":
        return _validate(options.text("validate-regex"))
    act: dict[str, Callable[[Admin, Options], Awaitable[None]]] = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    timeout_s = (options.number("timeout") or 0) / 1000
    try:
        with_admin(options, lambda admin: act[actions[0]](admin, options), timeout_s=timeout_s)
    except KlammError as e:
        said = with_class(e) if isinstance(e, AdminError) else str(e)
        print_error(f"Executing consumer group command failed due to {said}")
    return 0


def _check(options: Options) -> None:
    if not options.has("validate-regex"):
        options.require("bootstrap-server")
    if options.has("describe"):
        _scope(options, "describe")
        given = [o for o in ("members", "offsets", "state") if options.has(o)]
        if len(given) > 1:
            raise UsageError(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if options.get("state") is not None:
            raise UsageError("Option [describe] does not take a value for [state]")
    if options.has("delete"):
        _scope(options, "delete")
        if options.has("topic"):
            raise UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        if options.has("dry-run") and options.has("execute"):
            raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.has("dry-run") and not options.has("execute"):
            say(_NO_ACTION)
        _scope(options, "reset-offsets")
        for name in SCENARIOS:
            options.exclude(name, [s for s in SCENARIOS if s != name])
    options.exclude("group", ["all-groups", "list"])
    options.exclude("topic", ["list", "describe"])


def _scope(options: Options, action: str) -> None:
    if not options.has("group") and not options.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")


def _validate(regex: str) -> int:
    try:
        re.compile(regex)
    except re.error as e:
        sys.stdout.write(f"The regular expression `{regex}` is invalid: {e}.\n")
    else:
        sys.stdout.write(f"The regular expression `{regex}` is valid.\n")
    return 0


# ---- list


async def _list(admin: Admin, options: Options) -> None:
    with_type, with_state = options.has("type"), options.has("state")
    types = _words("types", options.get("type"), api.TYPES)
    states = _words("state", options.get("state"), api.STATES)
    found = await api.list_groups(admin, types=types, states=states)
    if with_type or with_state:
        sys.stdout.write(listed(found, with_type=with_type, with_state=with_state))
    else:
        sys.stdout.write("".join(f"{g.group}\n" for g in found))


def _words(what: str, text: str | None, valid: Sequence[str]) -> list[str]:
    """Return names of a comma separated list, in any case, with or without underscores."""
    if not text:
        return []
    known = {v.lower(): v for v in valid}
    words = [w.strip().lower().replace("_", "") for w in text.split(",")]
    if any(w not in known for w in words):
        said = ", ".join(valid)
        raise UsageError(f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {said}")
    return [known[w] for w in words]


# ---- describe


async def _groups(admin: Admin, options: Options) -> list[str]:
    if options.has("all-groups"):
        return [g.group for g in await api.list_groups(admin)]
    return options.all("group")


async def _describe(admin: Admin, options: Options) -> None:
    names = sorted(set(await _groups(admin, options)))
    described: list[api.Group] = []
    for found in await admin.each(names, lambda name: api.describe_group(admin, name)):
        if isinstance(found, AdminError):
            raise found
        described.append(found)
    verbose = options.has("verbose")
    if options.has("members"):
        for group in described:
            warn_of_state(group, rows=len(group.members))
            sys.stdout.write(members_table(group, verbose=verbose))
    elif options.has("state"):
        for group in described:
            if warn_of_state(group, rows=1):
                sys.stdout.write(state_table(group, verbose=verbose))
    else:
        for group, rows in zip(described, await positions(admin, described), strict=True):
            if warn_of_state(group, rows=len(rows)):
                sys.stdout.write(offsets_table(rows, verbose=verbose))


# ---- delete


async def _delete(admin: Admin, options: Options) -> None:
    done: list[str] = []
    failed: dict[str, AdminError] = {}
    for group in dict.fromkeys(await _groups(admin, options)):
        try:
            await api.delete_group(admin, group)
            done.append(group)
        except AdminError as e:
            failed[group] = e
    names = ", ".join(f"'{g}'" for g in done)
    if not failed:
        sys.stdout.write(f"Deletion of requested consumer groups ({names}) was successful.\n")
        return
    print_error("Deletion of some consumer groups failed:")
    for group, error in failed.items():
        sys.stdout.write(f"* Group '{group}' could not be deleted due to: {with_class(error)}\n")
    if done:
        sys.stdout.write(f"\nThese consumer groups were deleted successfully: {names}\n")


async def _delete_offsets(admin: Admin, options: Options) -> None:
    results: dict[TopicPartition, AdminError | None] = {}
    wanted = await partitions_to_forget(admin, options.all("topic"), results)
    await forget(admin, options.text("group"), wanted, results)


# ---- reset


async def _reset(admin: Admin, options: Options) -> None:
    groups = list(dict.fromkeys(await _groups(admin, options)))
    plans: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        state = await state_of(admin, group)
        if not may_reset(state):
            print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )
            plans[group] = {}
            continue
        plans[group] = await _reset_one(admin, options, group, groups)
    if options.has("export"):
        sys.stdout.write(write_csv(plans, with_group=len(options.all("group")) != 1) + "\n")
    else:
        sys.stdout.write(reset_table(plans))


async def _reset_one(
    admin: Admin, options: Options, group: str, groups: Sequence[str]
) -> dict[TopicPartition, int]:
    topics = options.all("topic") if options.has("topic") else None
    if topics is None and not options.has("all-topics") and not options.has("from-file"):
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    reset = wanted_reset(options, groups)
    if reset.how is How.FILE and group not in (reset.plan or {}):
        print_error(f"No reset plan for group {group} found")
        return {}
    try:
        for word in topics or ():
            parse_topic(word)
    except ResetError as e:
        raise UsageError(str(e)) from None
    try:
        planned = await plan_group(admin, group, reset, topics, all_topics=options.has("all-topics"))
        for text in planned.clipped:
            say(f"WARN {text}")
        for text in planned.fallbacks:
            sys.stdout.write(f"\nWarn: {text}\n")
        if options.has("execute"):
            await carry_out(admin, group, planned)
    except AdminError as e:
        raise Plain(reason(e)) from None
    except ResetError as e:
        if str(e).startswith("Cannot shift"):
            raise UsageError(str(e)) from None
        raise
    return dict(planned.offsets)
