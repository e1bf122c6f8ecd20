"""`kafka-share-groups`: list, describe and delete share groups, reset and delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from klamm.admin import share_groups as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.group_reset import chosen_partitions, plan_partitions, state_of
from klamm.admin.groups import EMPTY, Group, assignment_text, delete_group, list_groups
from klamm.admin.reset import How, Reset, ResetError, parse_datetime, parse_topic
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.group_command import (
    ACTIONS,
    BOOTSTRAP,
    EXECUTE,
    TARGETS,
    TIMEOUT,
    Act,
    carry_out_action,
    check_describe,
    check_scope,
    chosen_states,
    describe_all,
    describe_options,
    exclude_each_other,
    require_execution,
    tell_deletions,
    tell_groups,
)
from klamm.kafka_tools.group_offsets import print_error
from klamm.kafka_tools.group_tables import aligned, missing, reset_table
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say

SUMMARY = "list, describe, reset and delete share groups."
_SCENARIOS: Final = ("to-datetime", "to-earliest", "to-latest")
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("list", "List all share groups."),
    Option("describe", "Describe share groups, their members or their offsets."),
    Option("delete", "Delete share groups without members."),
    Option("reset-offsets", "Set start offsets of a group without members; with --dry-run or --execute."),
    Option("delete-offsets", "Forget the offsets of --topic in --group."),
    Option("group", "The share group.", "GROUP"),
    Option("all-groups", "All share groups."),
    Option("topic", "The topic; --reset-offsets: also topic:0,1,2.", "TOPIC"),
    Option("all-topics", "--reset-offsets: all topics that the group has offsets of."),
    TIMEOUT,
    Option("dry-run", "--reset-offsets: only show what would be done."),
    EXECUTE,
    *(target for target in TARGETS if target.name in _SCENARIOS),
    *describe_options(offsets="start offsets and lag"),
)


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act. Kafka exits with 0 after most failures, so this does."""
    actions = [a for a in ACTIONS if options.has(a)]
    if not actions:
        said = ", ".join(f"--{a}" for a in ACTIONS)
        raise UsageError(f"Command must include exactly one action: {said}.")
    _check(options)
    if len(actions) > 1:
        said = ", ".join(f"--{a}" for a in ACTIONS)
        raise UsageError(f"Command must include exactly one action: {said}.")
    act: dict[str, Act] = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    return carry_out_action("share", options, act[actions[0]])


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("describe"):
        check_describe(options)
    if options.has("delete"):
        check_scope(options, "delete")
        if options.has("topic"):
            raise UsageError("Option [delete] does not take the option: [topic]")
    if options.has("delete-offsets") and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.has("reset-offsets"):
        _check_reset(options)
    options.exclude("group", ["all-groups", "list"])
    options.exclude("topic", ["list", "describe"])


def _check_reset(options: Options) -> None:
    if not options.has("group"):
        raise UsageError("Option [reset-offsets] takes the option: [group]")
    require_execution(options)
    if not options.has("all-topics") and not options.has("topic"):
        raise UsageError("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    exclude_each_other(options, _SCENARIOS)


async def _groups(admin: Admin, options: Options) -> list[str]:
    return await api.share_groups(admin) if options.has("all-groups") else options.all("group")


# ---- list


async def _list(admin: Admin, options: Options) -> None:
    states = chosen_states(options.get("state"), api.STATES)
    found = await list_groups(admin, types=[api.SHARE], states=states)
    tell_groups(found, with_state=options.has("state"))


# ---- describe


async def _describe(admin: Admin, options: Options) -> None:
    described = await describe_all(admin, await _groups(admin, options), api.describe_share_group)
    verbose = options.has("verbose")
    for group in described:
        if options.has("members"):
            if _warn_of_state(group):
                sys.stdout.write(members_table(group, verbose=verbose))
        elif options.has("state"):
            _warn_of_state(group)
            sys.stdout.write(state_table(group, verbose=verbose))
        else:
            sys.stdout.write(await _offsets(admin, group, verbose=verbose))


def _warn_of_state(group: Group) -> bool:
    """Say that a group has no members; whether it has some."""
    if group.state == "Empty":
        sys.stderr.write(f"\nShare group '{group.group}' has no active members.\n")
    return group.state != "Empty"


async def _offsets(admin: Admin, group: Group, *, verbose: bool) -> str:
    found = await api.starts(admin, group.group)
    if not found:
        return f"\nShare group '{group.group}' has no offset information.\n"
    head = ["GROUP", "TOPIC", "PARTITION", *["LEADER-EPOCH"] * verbose, "START-OFFSET", "LAG"]
    rows = [
        [
            group.group, tp.topic, str(tp.partition), *[missing(start.leader_epoch)] * verbose, missing(start.offset),
            missing(start.lag),
        ]
        for tp, start in found.items()
    ]  # fmt: skip
    return "\n" + aligned([head, *rows], [15, 15, 10, *[13] * verbose, 13])


def members_table(group: Group, *, verbose: bool) -> str:
    """Return members of one group."""
    epoch = ["MEMBER-EPOCH"] * verbose
    head = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *epoch, "ASSIGNMENT"]
    rows = [
        [
            group.group, m.id, m.host, m.client_id, str(len(m.assignment)), *[missing(m.epoch)] * verbose,
            assignment_text(m.assignment) or missing(None),
        ]
        for m in group.members
    ]  # fmt: skip
    return "\n" + aligned([head, *rows], [15, 15, 15, 15, 12, *[13] * verbose])


def state_table(group: Group, *, verbose: bool) -> str:
    """Return coordinator and state of one group."""
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    epochs = ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"] * verbose
    head = ["GROUP", "COORDINATOR (ID)", "STATE", *epochs, "#MEMBERS"]
    row = [group.group, coordinator, group.state]
    row += [missing(group.epoch), missing(group.target_epoch)] * verbose
    return "\n" + aligned([head, [*row, str(len(group.members))]], [15, 25, 15, *[12, 17] * verbose])


# ---- delete


async def _delete(admin: Admin, options: Options) -> None:
    done: list[str] = []
    failed: dict[str, str] = {}
    known = set(await api.share_groups(admin))
    for group in dict.fromkeys(await _groups(admin, options)):
        if group not in known:
            failed[group] = f"java.lang.IllegalArgumentException: Group '{group}' is not a share group."
            continue
        try:
            if (await api.describe_share_group(admin, group)).state not in EMPTY:
                failed[group] = f"{_NOT_EMPTY}: Share group '{group}' is not EMPTY."
                continue
            await delete_group(admin, group)
            done.append(group)
        except AdminError as e:
            failed[group] = with_class(e)
    tell_deletions("share", done, failed)


_NOT_EMPTY: Final = "org.apache.kafka.common.errors.GroupNotEmptyException"


async def _delete_offsets(admin: Admin, options: Options) -> None:
    group, topics = options.text("group"), list(dict.fromkeys(options.all("topic")))
    results: dict[str, AdminError | None]
    try:
        results = await api.forget_starts(admin, group, topics)
    except AdminError as e:
        print_error(reason(e))
        results = dict.fromkeys(topics, e)
    rows = [["TOPIC", "STATUS"]]
    for topic in sorted(results):
        failed = results[topic]
        rows.append([topic, "Successful" if failed is None else f"Error: {reason(failed)}"])
    sys.stdout.write("\n" + aligned(rows, [15]))


# ---- reset


async def _reset(admin: Admin, options: Options) -> int:
    group = options.text("group")
    if await state_of(admin, group, api.describe_share_group) not in EMPTY:
        say(f"Share group '{group}' is not empty.")
        return 1
    reset = _wanted(options)
    try:
        words: Sequence[str] = options.all("topic")
        for word in words:
            parse_topic(word)
    except ResetError as e:
        raise UsageError(str(e)) from None
    try:
        partitions = (
            list(await api.starts(admin, group))
            if options.has("all-topics")
            else await chosen_partitions(admin, words)
        )
        planned = await plan_partitions(admin, group, reset, partitions, {})
        for text in planned.fallbacks:
            sys.stdout.write(f"\nWarn: {text}\n")
        if options.has("execute"):
            await api.set_starts(admin, group, planned.offsets)
    except AdminError as e:
        print_error(f"Executing share group command failed due to {reason(e)}")
        return 0
    sys.stdout.write(reset_table({group: planned.offsets}))
    return 0


def _wanted(options: Options) -> Reset:
    if options.has("to-datetime"):
        return Reset(how=How.TIME, value=parse_datetime(options.text("to-datetime")))
    if options.has("to-earliest"):
        return Reset(how=How.EARLIEST)
    if options.has("to-latest"):
        return Reset(how=How.LATEST)
    said = ", ".join(f"[{s}]" for s in _SCENARIOS)
    raise UsageError(f"Option [reset-offsets] takes one of these options: {said}")
