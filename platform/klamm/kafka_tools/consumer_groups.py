"""`kafka-consumer-groups`: list, describe and delete groups, reset and delete their offsets."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
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
from klamm.kafka_tools.group_command import (
    ACTIONS,
    EXECUTE,
    EXPORT,
    TARGETS,
    TIMEOUT,
    Act,
    carry_out_action,
    check_describe,
    check_execution,
    check_scope,
    describe_all,
    describe_options,
    exclude_each_other,
    tell_deletions,
)
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
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say

SUMMARY = "list, describe and delete consumer groups, reset or delete their offsets."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED, except for --validate-regex: the broker to connect to.", "HOST:PORT"),
    COMMAND_CONFIG,
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
    TIMEOUT,
    Option("dry-run", "--reset-offsets: only show what would be done (the default)."),
    EXECUTE,
    EXPORT,
    *TARGETS,
    *describe_options(),
    Option("type", "--list: with types, or only groups of these.", "TYPE,...", optional=True, only_with=("list",)),
)  # fmt: skip
_ACTIONS: Final = (*ACTIONS, "validate-regex")
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
    act: dict[str, Act] = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    return carry_out_action("consumer", options, act[actions[0]])


def _check(options: Options) -> None:
    if not options.has("validate-regex"):
        options.require("bootstrap-server")
    if options.has("describe"):
        check_describe(options)
    if options.has("delete"):
        check_scope(options, "delete")
        if options.has("topic"):
            raise UsageError(
                "The consumer does not support topic-specific offset deletion from a consumer group."
            )
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        if not check_execution(options):
            say(_NO_ACTION)
        check_scope(options, "reset-offsets")
        exclude_each_other(options, SCENARIOS)
    options.exclude("group", ["all-groups", "list"])
    options.exclude("topic", ["list", "describe"])


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
    described = await describe_all(admin, await _groups(admin, options), api.describe_group)
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
    failed: dict[str, str] = {}
    for group in dict.fromkeys(await _groups(admin, options)):
        try:
            await api.delete_group(admin, group)
            done.append(group)
        except AdminError as e:
            failed[group] = with_class(e)
    tell_deletions("consumer", done, failed)


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
