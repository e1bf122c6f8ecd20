"""`klamm txn`: transactions, the producers behind them, and ending one that hangs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.transactions import ProducerState, Transaction

app = Commands(help="Look at transactions, end hanging ones.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="TRANSACTIONAL_ID", help="The transactional id.")]
Topic = Annotated[str, typer.Option("--topic", autocompletion=topic_names, help="The topic.")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="The partition.")]


@app.command("list")
def list_transactions(
    cluster: AdminCluster,
    duration_filter: Annotated[
        int | None, typer.Option("--duration-filter", help="Only those that run longer than so many ms.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", help="Only ids that match this regular expression (RE2)."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List transactional ids with coordinator and state."""
    with reported():
        from klamm.admin.transactions import list_transactions as ask

        found = cluster.ask(lambda a: ask(a, duration_ms=duration_filter, pattern=pattern))
        rows = [
            {
                "transactional_id": t.transactional_id,
                "coordinator": t.coordinator,
                "producer_id": t.producer_id,
                "state": t.state,
            }
            for t in found
        ]
        print_rows(rows, ["transactional_id", "coordinator", "producer_id", "state"], output)


@app.command()
def describe(cluster: AdminCluster, transactional_id: Id, output: FormatOption = Format.TABLE) -> None:
    """Describe the transaction of a transactional id."""
    with reported():
        t = cluster.ask(lambda a: _known(a, transactional_id))
        row = {
            "transactional_id": t.transactional_id,
            "coordinator": t.coordinator,
            "producer_id": t.producer_id,
            "producer_epoch": t.producer_epoch,
            "state": t.state,
            "timeout_ms": t.timeout_ms,
            "started_ms": t.started_ms,
            "duration_ms": None if t.started_ms is None else int(time.time() * 1000) - t.started_ms,
            "partitions": [str(tp) for tp in t.partitions],
        }
        print_rows([row], list(row), output)


async def _known(admin: Admin, transactional_id: str) -> Transaction:
    """Return the transaction as its coordinator knows it. Raises KlammError for an unknown id."""
    from klamm.admin.errors import AdminError
    from klamm.admin.transactions import describe_transaction
    from klamm_kafka.wire.errors import ErrorCode

    try:
        return await describe_transaction(admin, transactional_id)
    except AdminError as e:
        if e.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise KlammError(f"no transactional id {transactional_id!r}") from None
        raise


@app.command("describe-producers")
def describe_producers(
    cluster: AdminCluster,
    topic: Topic,
    partition: Partition,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Ask this replica instead of the leader.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Describe the producers that a partition remembers."""
    with reported():
        found = cluster.ask(lambda a: _producers(a, topic, partition, broker_id))
        rows = [_producer_row(p) for p in found]
        columns = [
            "producer_id",
            "producer_epoch",
            "coordinator_epoch",
            "last_sequence",
            "last_timestamp",
            "txn_start",
        ]
        print_rows(rows, columns, output)


async def _producers(admin: Admin, topic: str, partition: int, broker_id: int | None) -> list[ProducerState]:
    from klamm.admin.errors import AdminError
    from klamm.admin.model import TopicPartition
    from klamm.admin.transactions import describe_producers as ask

    tp = TopicPartition(topic, partition)
    found = (await ask(admin, [tp], broker_id=broker_id))[tp]
    if isinstance(found, AdminError):
        raise found
    return found


def _producer_row(p: ProducerState) -> dict[str, Any]:
    return {
        "producer_id": p.producer_id,
        "producer_epoch": p.producer_epoch,
        "coordinator_epoch": p.coordinator_epoch,
        "last_sequence": p.last_sequence,
        "last_timestamp": p.last_timestamp,
        "txn_start": p.txn_start,
    }


@app.command("find-hanging")
def find_hanging(
    cluster: AdminCluster,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Only this partition of --topic.")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Only partitions of this broker.")
    ] = None,
    max_timeout: Annotated[
        int, typer.Option("--max-transaction-timeout", min=0, help="Only those older than so many minutes.")
    ] = 15,
    output: FormatOption = Format.TABLE,
) -> None:
    """Find transactions that block readers.

    No coordinator will end these; klamm txn abort does.
    """
    if partition is not None and topic is None:
        raise typer.BadParameter("needs --topic", param_hint="--partition")
    with reported():
        now_ms = int(time.time() * 1000)
        found = cluster.ask(
            lambda a: _hanging(
                a, topic, partition, broker_id, older_than_ms=max_timeout * 60_000, now_ms=now_ms
            ),
        )
        rows = [
            {
                "topic": t.partition.topic,
                "partition": t.partition.partition,
                **_producer_row(t.producer),
                "duration_ms": now_ms - t.producer.last_timestamp,
            }
            for t in found
        ]
        columns = ["topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "txn_start"]
        print_rows(rows, [*columns, "last_timestamp", "duration_ms"], output)


async def _hanging(
    admin: Admin,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    *,
    older_than_ms: int,
    now_ms: int,
) -> Any:
    from klamm.admin import transactions as api

    wanted = await api.partitions_to_search(admin, topic, partition, broker_id)
    return await api.find_hanging(
        admin, wanted, older_than_ms=older_than_ms, now_ms=now_ms, broker_id=broker_id
    )


@app.command()
def abort(
    cluster: AdminCluster,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int, typer.Option("--start-offset", min=0, help="Where the transaction starts (txn_start).")
    ],
) -> None:
    """Abort a hanging transaction on one partition. Never abort one that its producer still works on."""
    with reported():
        if cluster.ask(lambda a: _abort(a, topic, partition, start_offset)):
            typer.echo(f"aborted the transaction at offset {start_offset} of {topic}-{partition}")
        else:
            fail(f"no open transaction starts at offset {start_offset} of {topic}-{partition}")


async def _abort(admin: Admin, topic: str, partition: int, start_offset: int) -> bool:
    from klamm.admin import transactions as api
    from klamm.admin.model import TopicPartition

    tp = TopicPartition(topic, partition)
    found = await api.find_open(admin, tp, start_offset)
    if found is None:
        return False
    await api.abort(
        admin,
        tp,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=max(found.coordinator_epoch, 0),
    )
    return True


@app.command()
def terminate(cluster: AdminCluster, transactional_id: Id) -> None:
    """Abort the transaction of a transactional id.

    Its producer is fenced.
    """
    with reported():
        cluster.ask(lambda a: _terminate(a, transactional_id))
        typer.echo(f"terminated {transactional_id}")


async def _terminate(admin: Admin, transactional_id: str) -> None:
    """Terminate a known transactional id. Kafka does this by InitProducerId, which would create an unknown id."""
    from klamm.admin.transactions import terminate

    await _known(admin, transactional_id)
    await terminate(admin, transactional_id)
