"""`kafka-streams-groups`: list, describe and delete Streams groups, reset and delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Final

from klamm.admin import streams_groups as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.group_reset import carry_out, chosen_partitions, plan_partitions
from klamm.admin.groups import EMPTY, committed, delete_group, list_groups
from klamm.admin.model import TopicPartition
from klamm.admin.reset import How, Plan, Reset, ResetError, from_file, parse_topic, write_csv
from klamm.admin.topics import delete_topics
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.group_command import (
    ACTIONS,
    BOOTSTRAP,
    EXECUTE,
    EXPORT,
    TARGETS,
    TIMEOUT,
    Act,
    carry_out_action,
    check_describe,
    check_scope,
    chosen_states,
    describe_options,
    exclude_each_other,
    require_execution,
    tell_deletions,
    tell_groups,
)
from klamm.kafka_tools.group_offsets import (
    SCENARIOS,
    Plain,
    forget,
    partitions_to_forget,
    print_error,
    wanted_reset,
)
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError, say
from klamm.kafka_tools.streams_tables import members_table, offsets_table, reset_table, state_table

SUMMARY = "list, describe, reset and delete Streams groups."
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option("list", "List all Streams groups."),
    Option("describe", "Describe Streams groups, their members or their offsets."),
    Option("delete", "Delete Streams groups without members, with their offsets."),
    Option("reset-offsets", "Set offsets of groups without members; with --dry-run or --execute."),
    Option("delete-offsets", "Forget the offsets of --input-topic in --group."),
    Option("group", "The Streams group.", "GROUP"),
    Option("all-groups", "All Streams groups."),
    Option("input-topic", "An input topic, or topic:0,1,2.", "TOPIC"),
    Option("all-input-topics", "All topics that the group has offsets of."),
    Option(
        "delete-all-internal-topics", "--delete, --reset-offsets --execute: delete the internal topics, too."
    ),
    Option("delete-internal-topic", "--reset-offsets --execute: delete this internal topic, too.", "TOPIC"),
    TIMEOUT,
    Option("dry-run", "--reset-offsets: only show what would be done."),
    EXECUTE,
    EXPORT,
    *TARGETS,
    *describe_options(members="the members and their tasks"),
)
_NOT_EMPTY: Final = "org.apache.kafka.common.errors.GroupNotEmptyException"


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act. Kafka exits with 1 where the command fails as a whole."""
    actions = [a for a in ACTIONS if options.has(a)]
    if not actions:
        raise UsageError(_one_action())
    _check(options)
    if len(actions) > 1:
        raise UsageError(_one_action())
    act: dict[str, Act] = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    return carry_out_action("streams", options, act[actions[0]], failed=1)


def _one_action() -> str:
    *first, last = (f"--{a}" for a in ACTIONS)
    return f"Command must include exactly one action: {', '.join(first)}, or {last}."


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("describe"):
        check_describe(options)
    if options.has("delete"):
        check_scope(options, "delete")
    chosen = options.has("input-topic") or options.has("all-input-topics")
    if options.has("delete-offsets") and not (options.has("group") and chosen):
        raise UsageError(
            "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
        )
    if options.has("reset-offsets"):
        require_execution(options)
        check_scope(options, "reset-offsets")
        exclude_each_other(options, SCENARIOS)
    options.exclude("group", ["all-groups", "list"])
    options.exclude("input-topic", ["list", "describe", "delete"])


async def _groups(admin: Admin, options: Options) -> list[str]:
    named = await api.streams_groups(admin) if options.has("all-groups") else options.all("group")
    return list(dict.fromkeys(named))


# ---- list


async def _list(admin: Admin, options: Options) -> None:
    states = chosen_states(options.get("state"), api.STATES)
    found = await list_groups(admin, types=[api.STREAMS], states=states)
    tell_groups(found, with_state=options.has("state"))


# ---- describe


async def _describe(admin: Admin, options: Options) -> None:
    verbose = options.has("verbose")
    for name in sorted(await _groups(admin, options)):
        group = await api.describe_streams_group(admin, name)
        if options.has("state"):
            if not group.members:
                print_error(f"Streams group '{name}' has no active members.")
            sys.stdout.write(state_table(group, verbose=verbose))
        elif not group.members:
            continue  # Kafka's prints nothing then
        elif options.has("members"):
            sys.stdout.write(members_table(group, verbose=verbose))
        else:
            rows = await api.positions(admin, group)
            sys.stdout.write(offsets_table(name, rows, verbose=verbose))


# ---- delete


async def _delete(admin: Admin, options: Options) -> None:
    done: list[str] = []
    failed: dict[str, str] = {}
    known = set(await api.streams_groups(admin))
    for group in await _groups(admin, options):
        if group not in known:
            why = f"Group '{group}' does not exist or is not a streams group."
            failed[group] = f"java.lang.IllegalArgumentException: {why}"
            continue
        try:
            found = await api.describe_streams_group(admin, group)
            if found.state not in EMPTY:
                failed[group] = f"{_NOT_EMPTY}: Streams group '{group}' is not EMPTY."
                continue
            await delete_group(admin, group)
            done.append(group)
            if options.has("delete-all-internal-topics"):
                await _delete_topics(admin, found.internal_topics)
        except AdminError as e:
            failed[group] = with_class(e)
    tell_deletions("streams", done, failed, nothing="''", end=".")


async def _delete_topics(admin: Admin, names: Collection[str]) -> None:
    """Delete those of the topics that exist."""
    present = {t.name for t in (await admin.metadata()).topics}
    await delete_topics(admin, [name for name in names if name in present])


async def _delete_offsets(admin: Admin, options: Options) -> None:
    group = options.text("group")
    results: dict[TopicPartition, AdminError | None] = {}
    if options.has("all-input-topics"):
        wanted = sorted(await committed(admin, group))
    else:
        wanted = await partitions_to_forget(admin, options.all("input-topic"), results)
    await forget(admin, group, wanted, results)


# ---- reset


async def _reset(admin: Admin, options: Options) -> None:
    groups = await _groups(admin, options)
    plans: dict[str, dict[TopicPartition, int]] = {}
    for group in groups:
        plans[group] = {}
        try:
            found = await api.describe_streams_group(admin, group)
        except AdminError as e:
            raise Plain(f"java.util.concurrent.ExecutionException: {with_class(e)}") from None
        if found.state not in EMPTY:
            print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {found.state}."
            )
            continue
        planned = await _planned(admin, options, group, wanted_reset(options, groups))
        if planned is None:
            print_error(f"One or more topics are not part of the group '{group}'.")
            continue
        for text in planned.clipped:
            say(f"WARN {text}")
        for text in planned.fallbacks:
            sys.stdout.write(f"\nWarn: {text}\n")
        if options.has("execute"):
            await carry_out(admin, group, planned)
            gone = set(options.all("delete-internal-topic"))
            every = options.has("delete-all-internal-topics")
            await _delete_topics(admin, [t for t in found.internal_topics if every or t in gone])
        plans[group] = dict(planned.offsets)
    if options.has("export"):
        sys.stdout.write(write_csv(plans, with_group=len(options.all("group")) != 1) + "\n")
    else:
        sys.stdout.write(reset_table(plans))


async def _planned(admin: Admin, options: Options, group: str, reset: Reset) -> Plan | None:
    """Return the plan for one group; None for partitions that it has no offsets of."""
    offsets = {tp: c.offset for tp, c in (await committed(admin, group)).items()}
    try:
        if reset.how is How.FILE:
            partitions: Collection[TopicPartition] = from_file(reset, group)
        elif options.has("all-input-topics"):
            partitions = list(offsets)
        elif options.has("input-topic"):
            for word in options.all("input-topic"):
                parse_topic(word)
            partitions = await chosen_partitions(admin, options.all("input-topic"))
        else:
            raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
        if not set(partitions) <= set(offsets):
            return None
        return await plan_partitions(admin, group, reset, partitions, offsets)
    except AdminError as e:
        raise Plain(reason(e)) from None
    except ResetError as e:
        raise UsageError(str(e)) from None
