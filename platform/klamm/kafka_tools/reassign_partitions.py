"""`kafka-reassign-partitions`: move partitions between brokers, and between the directories of a broker."""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final

from klamm.admin import replicas as api
from klamm.admin.client import Admin
from klamm.admin.configs import Resource, alter_config
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.nodes import describe_cluster
from klamm.admin.topics import describe_topics, unknown
from klamm.kafka_tools import reassign_plans as plans
from klamm.kafka_tools.failures import reason, with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError
from klamm.kafka_tools.reassign_dirs import dirs_of, move_dirs, move_states
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError

SUMMARY = "move topic partitions between replicas."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    Option("bootstrap-controller", "Not here: brokers answer for their controllers.", "HOST:PORT,..."),
    COMMAND_CONFIG,
    Option("generate", "Propose where the partitions of topics could stand."),
    Option("execute", "Begin the moves of --reassignment-json-file."),
    Option("verify", "Say how far these moves are; when all are done, remove throttles."),
    Option("cancel", "Stop these moves."),
    Option("list", "List all running moves."),
    Option(
        "reassignment-json-file",
        'A file like {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], "log_dirs": ["any","any","/d"]}],'
        ' "version": 1}; log_dirs may be left out.',
        "FILE",
    ),
    Option(
        "topics-to-move-json-file",
        '--generate: a file like {"topics": [{"topic": "foo"}], "version": 1}.',
        "FILE",
    ),
    Option("broker-list", "--generate: the brokers to move to.", "ID,ID,..."),
    Option("disable-rack-aware", "--generate: take no notice of racks."),
    Option("additional", "--execute: beside moves that run; also changes their throttle."),
    Option("disallow-replication-factor-change", "--execute: refuse another number of replicas."),
    Option("throttle", "--execute: bytes a second between brokers.", "N", default="-1"),
    Option(
        "replica-alter-log-dirs-throttle",
        "--execute: bytes a second between directories.",
        "N",
        default="-1",
    ),
    Option("preserve-throttles", "--verify, --cancel: leave throttles as they are."),
    Option("timeout", "Milliseconds to wait until moves between directories begin.", "MS", default="10000"),
)
_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_REQUIRED: Final = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "list": (),
    **dict.fromkeys(("execute", "verify", "cancel"), ("reassignment-json-file",)),
}
_PERMITTED: Final = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
_LEADER: Final = "leader.replication.throttled"
_FOLLOWER: Final = "follower.replication.throttled"
_BETWEEN_DIRS: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a"
    " new partition assignment in addition to the existing one. The --additional flag can also be used to change the"
    " throttle by resubmitting the current reassignment."
)
_PERIODICALLY: Final = "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."


def run(options: Options) -> int:
    action = check(options)
    acts: dict[str, Callable[[Admin, Options], Awaitable[None]]] = {
        "generate": _generate,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }
    try:
        with_admin(options, lambda admin: acts[action](admin, options))
    except plans.Terse as e:
        sys.stdout.write(f"{e}\n")
        return 1
    except AdminError as e:
        sys.stdout.write(f"Error: {with_class(e)}\n")
        return 1
    except KlammError as e:
        sys.stdout.write(f"Error: {e}\n")
        return 1
    return 0


def check(options: Options) -> str:
    """Return the action. Raises UsageError for a command line that Kafka's tool refuses, in its words."""
    given = [a for a in _ACTIONS if options.has(a)]
    if len(given) != 1:
        listed = ", ".join(f"--{a}" for a in _ACTIONS)
        raise UsageError(f"Command must include exactly one action: {listed}")
    (action,) = given
    if options.has("bootstrap-controller"):
        raise UsageError("--bootstrap-controller: ask a broker, --bootstrap-server HOST:PORT")
    if not options.has("bootstrap-server"):
        raise UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    options.require(*_REQUIRED[action])
    allowed = {action, "bootstrap-server", "command-config", *_REQUIRED[action], *_PERMITTED[action]}
    for option in OPTIONS:
        if options.has(option.name) and option.name not in allowed:
            raise UsageError(f'Option "[{option.name}]" can\'t be used with action "[{action}]"')
    return action


def _read(options: Options, name: str = "reassignment-json-file") -> str:
    path = Path(options.text(name))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise KlammError(f"Unable to read file {path}") from None


def _listed(partitions: Collection[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


async def _assignment(admin: Admin, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of topics' partitions. Raises KlammError for a topic that is not there."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for name in sorted(set(topics)):
        try:
            (topic,) = await describe_topics(admin, [name])
        except AdminError as e:
            raise AdminError(e.code, name, f"Topic {name} not found." if unknown(e) else e.text) from None
        found |= {TopicPartition(name, p.number): p.replicas for p in topic.partitions}
    return found


# ---- the actions


async def _list(admin: Admin, options: Options) -> None:
    running = await api.list_reassignments(admin)
    if not running:
        sys.stdout.write("No partition reassignments found.\n")
        return
    sys.stdout.write("Current partition reassignments:\n")
    for tp, found in sorted(running.items()):
        parts = {"adding": found.adding, "removing": found.removing}
        more = "".join(f" {what}: {','.join(map(str, ids))}." for what, ids in parts.items() if ids)
        sys.stdout.write(f"{tp}: replicas: {','.join(map(str, found.replicas))}.{more}\n")


async def _generate(admin: Admin, options: Options) -> None:
    wanted = plans.parse_brokers(options.text("broker-list"))
    topics = plans.parse_topics(_read(options, "topics-to-move-json-file"))
    current = await _assignment(admin, topics)
    aware = not options.has("disable-rack-aware")
    known = (await describe_cluster(admin)).brokers
    racks = {b.id: b.rack if aware else None for b in known if b.id in wanted}
    if aware and len({rack is None for rack in racks.values()}) > 1:
        raise KlammError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment"
            " without rack information."
        )
    at = max(len(racks), 1)
    proposed = plans.spread(current, racks, start=random.randrange(at), shift=random.randrange(at))
    dirs = await dirs_of(admin, current)
    sys.stdout.write(f"Current partition replica assignment\n{plans.as_json(current, dirs)}\n\n")
    sys.stdout.write(f"Proposed partition reassignment configuration\n{plans.as_json(proposed, {})}\n")


async def _execute(admin: Admin, options: Options) -> None:
    plan = plans.parse_plan(_read(options))
    plans.check_plan(plan)
    running = await api.list_reassignments(admin)
    if running and not options.has("additional"):
        raise plans.Terse(_EXISTING)
    known = {b.id for b in (await describe_cluster(admin)).brokers}
    if strangers := sorted({r for _, replicas in plan.rows for r in replicas} - known):
        raise KlammError(f"Unknown broker id {strangers[0]}")
    everything = await _assignment(admin, {tp.topic for tp in plan.targets})
    if missing := plan.targets.keys() - everything.keys():
        raise AdminError(3, "", f"Unable to find partition: {', '.join(map(str, sorted(missing)))}")
    current = {tp: everything[tp] for tp in plan.targets}
    dirs = await dirs_of(admin, current)
    sys.stdout.write(f"Current partition replica assignment\n\n{plans.as_json(current, dirs)}\n\n")
    sys.stdout.write("Save this to use as the --reassignment-json-file option during rollback\n")
    sys.stdout.flush()  # it must be out before anything moves
    await _throttle(admin, options, plan, plans.moves(running, plan.targets, current))
    same_factor = options.has("disallow-replication-factor-change")
    errors = await api.reassign(admin, plan.targets, allow_replication_factor_change=not same_factor)
    if errors:
        said = "\n".join(f"{tp}: {reason(e)}" for tp, e in sorted(errors.items()))
        raise plans.Terse(f"Error reassigning partition(s):\n{said}")
    several = "" if len(plan.targets) == 1 else "s"
    sys.stdout.write(f"Successfully started partition reassignment{several} for {_listed(plan.targets)}\n")
    if plan.dirs:
        await move_dirs(admin, plan.dirs, (options.number("timeout") or 0) / 1000)


async def _throttle(
    admin: Admin,
    options: Options,
    plan: plans.Plan,
    moving: dict[TopicPartition, tuple[set[int], set[int]]],
) -> None:
    """Set the limits that were asked for on brokers and topics."""
    between_brokers = options.number("throttle") or 0
    between_dirs = options.number("replica-alter-log-dirs-throttle") or 0
    if between_brokers < 0 and between_dirs < 0:
        return
    sys.stdout.write(f"{_PERIODICALLY}\n")
    if between_brokers >= 0:
        for topic, (leaders, followers) in plans.throttled_replicas(moving).items():
            put = {f"{_LEADER}.replicas": leaders, f"{_FOLLOWER}.replicas": followers}
            await alter_config(admin, Resource.TOPIC, topic, put=put, delete=[])
        put = {f"{_LEADER}.rate": str(between_brokers), f"{_FOLLOWER}.rate": str(between_brokers)}
        for broker in sorted({b for pair in moving.values() for side in pair for b in side}):
            await alter_config(admin, Resource.BROKER, str(broker), put=put, delete=[])
        sys.stdout.write(f"The inter-broker throttle limit was set to {between_brokers} B/s\n")
    if between_dirs >= 0:
        for broker in sorted({broker for _, broker in plan.dirs}):
            await alter_config(
                admin, Resource.BROKER, str(broker), put={_BETWEEN_DIRS: str(between_dirs)}, delete=[]
            )
        sys.stdout.write(f"The replica-alter-dir throttle limit was set to {between_dirs} B/s\n")


async def _verify(admin: Admin, options: Options) -> None:
    plan = plans.parse_plan(_read(options))
    running = await api.list_reassignments(admin)
    sys.stdout.write("Status of partition reassignment:\n")
    for tp, target in sorted(plan.targets.items()):
        if tp in running:
            sys.stdout.write(f"Reassignment of partition {tp} is still in progress.\n")
            continue
        current = await _replicas(admin, tp)
        if current == target:
            sys.stdout.write(f"Reassignment of partition {tp} is completed.\n")
        else:
            have, want = (",".join(map(str, ids)) for ids in (current, target))
            sys.stdout.write(
                f"There is no active reassignment of partition {tp}, but replica set is {have} rather than {want}.\n"
            )
    states = await move_states(admin, plan.dirs)
    sys.stdout.write("\n".join(state.said for state in states) + "\n")
    if not running and all(state.done for state in states) and not options.has("preserve-throttles"):
        await _clear_throttles(admin, plan)


async def _replicas(admin: Admin, tp: TopicPartition) -> tuple[int, ...]:
    try:
        return (await _assignment(admin, [tp.topic])).get(tp, ())
    except AdminError as e:
        if unknown(e):
            return ()
        raise


async def _cancel(admin: Admin, options: Options) -> None:
    plan = plans.parse_plan(_read(options))
    found = await api.list_reassignments(admin, plan.targets)
    active = [tp for tp, r in found.items() if r.adding or r.removing]
    if active:
        errors = await api.reassign(admin, dict.fromkeys(active))
        if errors:
            several = "" if len(errors) == 1 else "s"
            said = "\n".join(f"{tp}: {reason(e)}" for tp, e in sorted(errors.items()))
            raise plans.Terse(f"Error cancelling partition reassignment{several} for:\n{said}")
        several = "" if len(active) == 1 else "s"
        sys.stdout.write(f"Successfully cancelled partition reassignment{several} for: {_listed(active)}\n")
    else:
        sys.stdout.write("None of the specified partition reassignments are active.\n")
    back = {s.replica: s.current for s in await move_states(admin, plan.dirs) if s.moving and s.current}
    if back:
        await move_dirs(admin, back, (options.number("timeout") or 0) / 1000)
    else:
        sys.stdout.write("None of the specified partition moves are active.")
    if not options.has("preserve-throttles"):
        await _clear_throttles(admin, plan)


async def _clear_throttles(admin: Admin, plan: plans.Plan) -> None:
    """Delete all limits of moves: nothing says which brokers took part in them."""
    known = {b.id for b in (await describe_cluster(admin)).brokers}
    brokers = sorted(known | {r for _, replicas in plan.rows for r in replicas})
    said = ",".join(map(str, brokers))
    sys.stdout.write(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {said}\n")
    for broker in brokers:
        await alter_config(
            admin,
            Resource.BROKER,
            str(broker),
            put={},
            delete=[f"{_LEADER}.rate", f"{_FOLLOWER}.rate", _BETWEEN_DIRS],
        )
    topics = sorted({tp.topic for tp in plan.targets})
    sys.stdout.write(
        f"Clearing topic-level throttles on topic{'' if len(topics) == 1 else 's'} {','.join(topics)}\n"
    )
    for topic in topics:
        await alter_config(
            admin, Resource.TOPIC, topic, put={}, delete=[f"{_LEADER}.replicas", f"{_FOLLOWER}.replicas"]
        )
