"""Commits of offsets by the group coordinator, for OffsetCommit and TxnOffsetCommit.

Very many offsets are committed in several batches, so that others are served between them: each partition has its own outcome,
in the protocol too. What is refused as a whole is refused for the batches that come after it as well, and a group that is
deleted between two batches does not come to life again. Offsets within a transaction
are committed at once: it could end between two batches, and what came behind its marker would belong to the next one.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from klamm_broker.coordinator.model import CommitRequest, CommitResult, OffsetToCommit, TopicPartition
from klamm_broker.log.steps import Steps
from klamm_broker.server.slices import when_done
from klamm_kafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from klamm_broker.server.state import BrokerState

BATCH: Final = 500
"""Offsets that are committed at once, which takes some 3 ms."""


def committing(broker: BrokerState, commit: CommitRequest) -> Steps[CommitResult | Future[CommitResult]]:
    """Commits in steps. Makes the result, or a future of it where it has to wait for the disk."""
    if commit.is_transactional or len(commit.offsets) <= BATCH:
        return _ask(broker, commit)
    groups, missing = broker.groups.coordinator.groups, None
    left = iter(commit.offsets.items())
    parts: list[Mapping[TopicPartition, OffsetToCommit]] = []
    answers: list[CommitResult | Future[CommitResult]] = []
    while part := dict(islice(left, BATCH)):
        parts.append(part)
        answer = missing or _ask(broker, replace(commit, offsets=part))
        answers.append(answer)
        existed = commit.group_id in groups
        yield None
        if existed and commit.group_id not in groups:
            reported = commit.reports_missing_group
            missing = CommitResult(
                error=ErrorCode.GROUP_ID_NOT_FOUND if reported else ErrorCode.ILLEGAL_GENERATION
            )
        if isinstance(answer, CommitResult) and answer.error is not ErrorCode.NONE:
            parts[-1] = part | dict(left)
            break
    waiting = [answer for answer in answers if isinstance(answer, Future)]

    def result(_: object) -> CommitResult:
        told = [answer.result() if isinstance(answer, Future) else answer for answer in answers]
        return _together(parts, told)

    return when_done(broker.loop, asyncio.gather(*waiting), result) if waiting else result(None)


def _ask(broker: BrokerState, commit: CommitRequest) -> CommitResult | Future[CommitResult]:
    shell = broker.groups
    answer: Any = shell.ask(
        lambda token, now: shell.coordinator.commit(commit, token, now), lambda result: result
    )
    return answer  # type: ignore[no-any-return]


def _together(
    parts: list[Mapping[TopicPartition, OffsetToCommit]], results: list[CommitResult]
) -> CommitResult:
    outcomes: dict[TopicPartition, ErrorCode] = {}
    for part, result in zip(parts, results, strict=True):
        outcomes.update(dict.fromkeys(part, result.error))
        outcomes.update(result.partitions)
    return CommitResult(partitions=outcomes)
