"""`kafka-share-groups`: list, describe and delete share groups, reset and delete their offsets."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm.admin import share_groups as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.group_reset import chosen_partitions, plan_partitions, state_of
from klamm.admin.groups import EMPTY, Group, GroupListing, assignment_text, delete_group, list_groups
from klamm.admin.reset import How, Reset, ResetError, parse_datetime, parse_topic
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.group_offsets import print_error
from klamm.kafka_tools.group_tables import aligned, missing, reset_table
from klamm.kafka_tools.options import Option, Options, UsageError, say
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "list, describe, reset and delete share groups."
_DESCRIBE: Final = ("describe",)
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: the broker to connect to.", "HOST:PORT"),
    Option("command-config", "A .properties file with client settings.", "FILE"),
    Option("list", "List all share groups."),
    Option("describe", "Describe share groups, their members or their offsets."),
    Option("delete", "Delete share groups without members."),
    Option("reset-offsets", "Set start offsets of a group without members; with --dry-run or --execute."),
    Option("delete-offsets", "Forget the offsets of --topic in --group."),
    Option("group", "The share group.", "GROUP"),
    Option("all-groups", "All share groups."),
    Option("topic", "The topic; --reset-offsets: also topic:0,1,2.", "TOPIC"),
    Option("all-topics", "--reset-offsets: all topics that the group has offsets of."),
    Option("timeout", "How long to wait for the cluster, in ms.", "MS", default="30000"),
    Option("dry-run", "--reset-offsets: only show what would be done."),
    Option("execute", "--reset-offsets: do it."),
    Option("to-datetime", "Reset to the first record from this time on.", "YYYY-MM-DDThh:mm:ss.sss"),
    Option("to-earliest", "Reset to the first record."),
    Option("to-latest", "Reset to the end."),
    Option("members", "--describe: the members.", only_with=_DESCRIBE),
    Option("verbose", "--describe: more columns.", only_with=_DESCRIBE),
    Option("offsets", "--describe: start offsets and lag (the default).", only_with=_DESCRIBE),
    Option(
        "state", "--describe: the groups' state; --list: with states, or only groups in these.", "STATE,...",
        optional=True, only_with=("describe", "list"),
    ),
)  # fmt: skip
_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_SCENARIOS: Final = ("to-datetime", "to-earliest", "to-latest")


def run(options: Options) -> int:
    """Check the command line as Kafka does, then act. Kafka exits with 0 after most failures, so this does."""
    actions = [a for a in _ACTIONS if options.has(a)]
    if not actions:
        said = ", ".join(f"--{a}" for a in _ACTIONS)
        raise UsageError(f"Command must include exactly one action: {said}.")
    _check(options)
    if len(actions) > 1:
        said = ", ".join(f"--{a}" for a in _ACTIONS)
        raise UsageError(f"Command must include exactly one action: {said}.")
    act: dict[str, Callable[[Admin, Options], Awaitable[int | None]]] = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    try:
        timeout_s = (options.number("timeout") or 0) / 1000
        return with_admin(options, lambda admin: act[actions[0]](admin, options), timeout_s=timeout_s) or 0
    except KlammError as e:
        said = with_class(e) if isinstance(e, AdminError) else str(e)
        print_error(f"Executing share group command failed due to {said}")
    return 0


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("describe"):
        _scope(options, "describe")
        if sum(options.has(o) for o in ("members", "offsets", "state")) > 1:
            raise UsageError(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if options.get("state") is not None:
            raise UsageError("Option [describe] does not take a value for [state]")
    if options.has("delete"):
        _scope(options, "delete")
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
    if options.has("dry-run") and options.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.has("dry-run") and not options.has("execute"):
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not options.has("all-topics") and not options.has("topic"):
        raise UsageError("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    for name in _SCENARIOS:
        options.exclude(name, [s for s in _SCENARIOS if s != name])


def _scope(options: Options, action: str) -> None:
    if not options.has("group") and not options.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")


async def _groups(admin: Admin, options: Options) -> list[str]:
    return await api.share_groups(admin) if options.has("all-groups") else options.all("group")


# ---- list


async def _list(admin: Admin, options: Options) -> None:
    states = _states(options.get("state"))
    found: list[GroupListing] = await list_groups(admin, types=[api.SHARE], states=states)
    if options.has("state"):
        rows = [["GROUP", "STATE"], *([g.group, g.state] for g in found)]
        sys.stdout.write(aligned(rows, [15]))
    else:
        sys.stdout.write("".join(f"{g.group}\n" for g in found))


def _states(text: str | None) -> list[str]:
    known = {s.lower(): s for s in api.STATES}
    words = [w.strip().lower() for w in text.split(",")] if text else []
    if any(w not in known for w in words):
        said = ", ".join(api.STATES)
        raise UsageError(f"Invalid state list '{text}'. Valid states are: {said}")
    return [known[w] for w in words]


# ---- describe


async def _describe(admin: Admin, options: Options) -> None:
    names = sorted(set(await _groups(admin, options)))
    described: list[Group] = []
    for found in await admin.each(names, lambda name: api.describe_share_group(admin, name)):
        if isinstance(found, AdminError):
            raise found
        described.append(found)
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
    names = ", ".join(f"'{g}'" for g in done)
    if not failed:
        sys.stdout.write(f"Deletion of requested share groups ({names}) was successful.\n")
        return
    print_error("Deletion of some share groups failed:")
    for group, why in failed.items():
        sys.stdout.write(f"* Group '{group}' could not be deleted due to: {why}\n")
    if done:
        sys.stdout.write(f"\nThese share groups were deleted successfully: {names}\n")


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
