"""`kafka-transactions`: list and describe transactions, find and end those that hang.

This command of Kafka has sub-commands, and a parser of another kind than the rest: `list`, `describe`,
`describe-producers`, `abort`, `find-hanging`, `forceTerminateTransaction`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm.admin import transactions as api
from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.kafka_tools.failures import reason
from klamm.kafka_tools.options import Option, Options, UsageError, version_line
from klamm.kafka_tools.run import connected
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm_base.errors import KlammError

SUMMARY = "look at transactions, find hanging ones and end them."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "--bootstrap-server <host:port> list": "List transactional ids (--duration-filter, --transactional-id-pattern).",
    "… describe": "Describe the state of --transactional-id.",
    "… describe-producers": "Describe the active producers of --topic and --partition (--broker-id).",
    "… abort": "Abort the hanging transaction of --topic and --partition that starts at --start-offset.",
    "… find-hanging": "Find hanging transactions (--broker-id, --topic, --partition, --max-transaction-timeout).",
    "… forceTerminateTransaction": "Abort the ongoing transaction of --transactionalId.",
}
"""For the reference page."""
_PROG: Final = "kafka-transactions"
_MORE: Final = " Enable debug logging for additional detail."


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-transactions is started by its sub-commands")


def main(args: Sequence[str]) -> int:
    """Parse, act and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    act: Callable[[Admin, argparse.Namespace], Awaitable[None]] = given.act
    try:
        connected(given.bootstrap_server, given.command_config, lambda admin: act(admin, given))
    except AdminError as e:
        raise KlammError(
            f"{_failed(given)}: {reason(e)}{'' if reason(e).endswith('.') else '.'}{_MORE}"
        ) from None
    return 0


def _failed(given: argparse.Namespace) -> str:
    """Return the failed action in Kafka's words."""
    match given.command:
        case "list":
            return "Failed to list transactions"
        case "describe":
            return f"Failed to describe transaction state of transactional-id `{given.transactional_id}`"
        case "describe-producers":
            where = "leader" if given.broker_id is None else f"broker {given.broker_id}"
            return f"Failed to describe producers for partition {given.topic}-{given.partition} on {where}"
        case "abort":
            return f"Failed to abort the transaction on {given.topic}-{given.partition}"
        case "find-hanging":
            return "Failed to find hanging transactions"
        case _:
            return f"Failed to force terminate transactionalId `{given.transactionalId}`"


def _parser() -> Parser:
    parser = Parser(
        prog=_PROG,
        allow_abbrev=False,
        description="Looks at the transactional state of producers in the cluster; finds and ends hanging transactions.",
    )
    parser.add_argument("-v", "--version", action="version", version=version_line())
    parser.add_argument("--command-config", metavar="FILE", help="a .properties file with client settings")
    parser.add_argument(
        "--bootstrap-server", metavar="host:port", required=True, help="brokers to ask first, by commas"
    )
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, what: str, act: Callable[[Admin, argparse.Namespace], Awaitable[None]]
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
        sub.set_defaults(act=act)
        return sub

    sub = command("list", "list transactions", _list)
    sub.add_argument("--duration-filter", type=int, help="only those that run longer than so many ms")
    sub.add_argument("--transactional-id-pattern", help="only ids that match this regular expression")
    sub = command("describe", "describe the state of a transactional id", _describe)
    sub.add_argument("--transactional-id", required=True)
    sub = command("describe-producers", "describe the active producers of a partition", _producers)
    sub.add_argument("--broker-id", type=int, help="ask this replica instead of the leader")
    _partition(sub)
    sub = command("abort", "abort a hanging transaction", _abort)
    _partition(sub)
    sub.add_argument("--start-offset", type=int, help="where the transaction starts")
    for name in ("producer-id", "producer-epoch", "coordinator-epoch"):
        sub.add_argument(f"--{name}", type=int, help="for brokers before 3.0, instead of --start-offset")
    sub = command("find-hanging", "find hanging transactions", _find)
    sub.add_argument("--broker-id", type=int, help="only partitions of this broker")
    sub.add_argument(
        "--max-transaction-timeout", type=int, default=15, help="only those older than so many minutes (15)"
    )
    sub.add_argument("--topic", help="only this topic")
    sub.add_argument("--partition", type=int, help="only this partition of --topic")
    sub = command("forceTerminateTransaction", "abort the ongoing transaction of an id", _terminate)
    sub.add_argument("--transactionalId", required=True)
    return parser


def _partition(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--topic", required=True)
    sub.add_argument("--partition", type=int, required=True)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell, each with a tab behind it."""
    lines = [list(head), *([str(c) for c in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        sys.stdout.write("".join(f"{c:<{w}}\t" for c, w in zip(line, widths, strict=True)) + "\n")


def _or_none(value: int | None) -> object:
    return "None" if value is None else value


async def _list(admin: Admin, given: argparse.Namespace) -> None:
    found = await api.list_transactions(
        admin, duration_ms=given.duration_filter, pattern=given.transactional_id_pattern
    )
    rows = [(t.transactional_id, t.coordinator, t.producer_id, t.state) for t in found]
    _table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


async def _describe(admin: Admin, given: argparse.Namespace) -> None:
    t = await api.describe_transaction(admin, given.transactional_id)
    lasted = None if t.started_ms is None else int(time.time() * 1000) - t.started_ms
    head = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    row = (
        t.coordinator, t.transactional_id, t.producer_id, t.producer_epoch, t.state, t.timeout_ms,
        _or_none(t.started_ms), _or_none(lasted), ",".join(map(str, t.partitions)),
    )  # fmt: skip
    _table(head, [row])


async def _producers(admin: Admin, given: argparse.Namespace) -> None:
    tp = TopicPartition(given.topic, given.partition)
    found = (await api.describe_producers(admin, [tp], broker_id=given.broker_id))[tp]
    if isinstance(found, AdminError):
        raise found
    head = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence, p.last_timestamp, _or_none(p.txn_start))
        for p in found
    ]  # fmt: skip
    _table(head, rows)


async def _abort(admin: Admin, given: argparse.Namespace) -> None:
    tp = TopicPartition(given.topic, given.partition)
    if given.start_offset is None:
        if given.producer_id is None:
            raise KlammError(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above)"
                " or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
            )
        for name in ("producer_epoch", "coordinator_epoch"):
            if getattr(given, name) is None:
                raise KlammError(f"Missing required argument --{name.replace('_', '-')}")
        ids = (given.producer_id, given.producer_epoch, given.coordinator_epoch)
    else:
        found = await api.find_open(admin, tp, given.start_offset)
        if found is None:
            raise KlammError(
                f"Could not find any open transactions starting at offset {given.start_offset} on partition {tp}"
            )
        ids = (found.producer_id, found.producer_epoch, found.coordinator_epoch)
    # -1: no marker was ever written there. 0 is not newer than any coordinator's epoch
    await api.abort(admin, tp, producer_id=ids[0], producer_epoch=ids[1], coordinator_epoch=max(ids[2], 0))


async def _find(admin: Admin, given: argparse.Namespace) -> None:
    if given.topic is None and given.broker_id is None:
        raise KlammError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if given.partition is not None and given.topic is None:
        raise KlammError("The --partition argument requires --topic to be provided")
    now_ms = int(time.time() * 1000)
    found = await api.find_hanging(
        admin,
        await api.partitions_to_search(admin, given.topic, given.partition, given.broker_id),
        older_than_ms=given.max_transaction_timeout * 60_000,
        now_ms=now_ms,
        broker_id=given.broker_id,
    )
    head = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    rows = [
        (
            t.partition.topic, t.partition.partition, t.producer.producer_id, t.producer.producer_epoch,
            t.producer.coordinator_epoch, t.producer.txn_start, t.producer.last_timestamp,
            (now_ms - t.producer.last_timestamp) // 60_000,
        )
        for t in found
    ]  # fmt: skip
    _table(head, rows)


async def _terminate(admin: Admin, given: argparse.Namespace) -> None:
    await api.terminate(admin, given.transactionalId)
