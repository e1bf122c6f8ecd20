"""Moves of `kafka-reassign-partitions` between the log directories of a broker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.model import TopicPartition
from klamm.admin.records import describe_log_dirs
from klamm.admin.replicas import alter_log_dirs
from klamm.kafka_tools.reassign_plans import Assignment, Replica, Terse
from klamm_base.errors import KlammError
from klamm_kafka.wire.errors import ErrorCode

_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveState:
    """The directory of a replica, how far its move is, and Kafka's sentence about it."""

    replica: Replica
    current: str | None
    moving: bool
    done: bool
    said: str


async def _found(
    admin: Admin, partitions: Mapping[int, set[TopicPartition]]
) -> dict[tuple[Replica, bool], str]:
    """Return the directories of replicas, by replica and whether it is one that is being filled."""
    places: dict[tuple[Replica, bool], str] = {}
    for broker, wanted in partitions.items():
        for each in await describe_log_dirs(admin, [broker], wanted):
            for r in each.replicas:
                places[(r.partition, broker), r.future] = each.path
    return places


async def dirs_of(admin: Admin, assignment: Assignment) -> dict[Replica, str]:
    """Return the directory of each replica of an assignment on a live broker."""
    live = await admin.brokers()
    wanted: dict[int, set[TopicPartition]] = {}
    for tp, replicas in assignment.items():
        for broker in replicas:
            if broker in live:
                wanted.setdefault(broker, set()).add(tp)
    return {replica: path for (replica, future), path in (await _found(admin, wanted)).items() if not future}


async def move_states(admin: Admin, targets: Mapping[Replica, str]) -> list[MoveState]:
    """Return how far the moves of replicas into directories are, by broker, topic and partition."""
    wanted: dict[int, set[TopicPartition]] = {}
    for tp, broker in targets:
        wanted.setdefault(broker, set()).add(tp)
    places = await _found(admin, wanted) if wanted else {}
    return [
        _state(replica, targets[replica], places.get((replica, False)), places.get((replica, True)))
        for replica in sorted(targets, key=lambda r: (r[1], r[0]))
    ]


def _state(replica: Replica, target: str, current: str | None, future: str | None) -> MoveState:
    tp, broker = replica
    name = f"{tp}-{broker}"
    done = moving = False
    if current is None:
        said = (
            f"Partition {tp} is not found in any live log dir on broker {broker}."
            " There is likely an offline log directory on the broker."
        )
        done = True
    elif future is not None:
        moving = True
        said = (
            f"Reassignment of replica {name} is still in progress."
            if future == target
            else f"Partition {tp} on broker {broker} is being moved to log dir {future} instead of {target}."
        )
    elif current == target:
        done = True
        said = f"Reassignment of replica {name} completed successfully."
    else:
        done = True
        said = f"Partition {tp} on broker {broker} is not being moved from log dir {current} to {target}."
    return MoveState(replica=replica, current=current, moving=moving, done=done, said=said)


async def move_dirs(admin: Admin, targets: Mapping[Replica, str], timeout_s: float) -> None:
    """Begin moves between directories. A replica that is not there yet is waited for. Raises KlammError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pending = dict(targets)
    while True:
        results = await alter_log_dirs(admin, pending)
        for (tp, broker), error in sorted(results.items(), key=lambda i: (i[0][1], i[0][0])):
            if error is None:
                path = pending.pop((tp, broker))
                sys.stdout.write(
                    f"Successfully started moving log directory to {path} for replica {tp} with broker {broker} \n"
                )
            elif error.code != ErrorCode.REPLICA_NOT_AVAILABLE:
                raise KlammError(f"Failed to alter dir for {tp}-{broker}") from error
        if not pending:
            return
        if loop.time() >= deadline:
            names = ",".join(f"{tp}-{b}" for tp, b in sorted(pending, key=lambda r: (r[1], r[0])))
            several = "" if len(pending) == 1 else "s"
            raise Terse(f"Timed out before log directory move{several} could be started for: {names}")
        await asyncio.sleep(_PAUSE_S)
