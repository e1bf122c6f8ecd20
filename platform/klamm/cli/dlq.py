"""`klamm dlq`: shows dead letter topics, and sends dead letters to the topics they were meant for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import Cluster, kafka_error
from klamm.cli.common import Output, OutputOption, counted, print_rows, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.rest_client import Worker

if TYPE_CHECKING:
    from klamm.dlq.letters import Letter
    from klamm.dlq.replay import Replay

app = Commands(help="Look at dead letters, send them again.", no_args_is_help=True)

_TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"
_GROUPED: Final[dict[str, Callable[[Letter], str | None]]] = {
    "error": lambda x: (x.error or "").partition(":")[0] or None,
    "message": lambda x: x.error,
    "stage": lambda x: x.facts.get("stage"),
    "connector": lambda x: x.facts.get("connector.name"),
    "topic": lambda x: x.facts.get("topic"),
}

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="The dead letter topic.")
]
ConnectorOption = Annotated[str | None, typer.Option("--connector", help="Only those of this connector.")]
FromOption = Annotated[str | None, typer.Option("--topic", help="Only records of this topic.")]
StageOption = Annotated[
    str | None, typer.Option("--stage", help="Only those of a stage, such as VALUE_CONVERTER or TASK_PUT.")
]
ErrorOption = Annotated[
    str | None, typer.Option("--error", help="Only those whose error's class or message holds this text.")
]


@app.command("list")
def list_topics(
    cluster: Cluster,
    worker: Worker,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]…", help="Dead letter topics; default: those of a worker's connectors."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List dead letter topics and how many records they hold.

    Shows whose they are, too, and how many records were not sent again yet.
    """
    with reported():
        users = _users(worker) if not topics else {topic: [] for topic in topics}
        rows = []
        for topic, connectors in sorted(users.items()):
            rows.append({"topic": topic, "connectors": connectors, **_counts(cluster, topic)})
        print_rows(rows, ["topic", "connectors", "records", "not_replayed"], output)


@app.command()
def show(
    cluster: Cluster,
    topic: TopicArgument,
    most: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="The last so many of them.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help=f"Count them by {', '.join(_GROUPED)} instead.")
    ] = None,
    connector: ConnectorOption = None,
    of_topic: FromOption = None,
    stage: StageOption = None,
    error: ErrorOption = None,
    values: Annotated[bool, typer.Option("--values", help="Show keys, values and headers.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the errors' stack traces.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show dead letters.

    Shows where each came from, which task could not use it, and why.
    """
    from collections import deque

    from klamm.dlq.letters import Wanted
    from klamm.dlq.reading import letters, ranges

    if by is not None and by not in _GROUPED:
        raise typer.BadParameter(f"{by!r} is not one of {', '.join(_GROUPED)}", param_hint="--by")
    wanted = Wanted(connector=connector, topic=of_topic, stage=stage, error=error)
    with reported():
        consumer = _consumer(cluster, topic)
        try:
            found = ranges(consumer, topic)
            starts, ends = ({p: edge[i] for p, edge in found.items()} for i in (0, 1))
            chosen = (x for batch in letters(consumer, topic, starts, ends) for x in batch if wanted(x))
            if by is not None:
                _print_counts(by, Counter(_GROUPED[by](x) for x in chosen), output)
                return
            kept = list(chosen) if most is None else list(deque(chosen, most))
            _print_letters(kept, output, values=values, trace=trace)
        finally:
            consumer.close()


@app.command()
def replay(
    cluster: Cluster,
    topic: TopicArgument,
    to: Annotated[
        str | None, typer.Option("--to", help="Send all to this topic instead of where each came from.")
    ] = None,
    connector: ConnectorOption = None,
    of_topic: FromOption = None,
    stage: StageOption = None,
    error: ErrorOption = None,
    most: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="At most so many.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="From the first one on, also those that were sent before.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out what cannot be sent instead of stopping there.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent where; send nothing.")
    ] = False,
) -> None:
    """Send dead letters to the topics they came from, as they were.

    Each is sent once: a later replay goes on where this one ended. Letters that were chosen (--connector, --topic,
    --stage, --error) are not remembered.
    """
    from klamm.dlq.letters import Wanted
    from klamm.dlq.replay import Replay

    wanted = Wanted(connector=connector, topic=of_topic, stage=stage, error=error)
    run = Replay(topic=topic, wanted=wanted, to=to, again=again, skip=skip, most=most, dry_run=dry_run)
    with reported():
        consumer = _consumer(cluster, topic)
        try:
            run.run(consumer, _producer(cluster, topic))
        finally:
            _tell(run)
            consumer.close()


def _tell(run: Replay) -> None:
    verb = "would be sent" if run.dry_run else "sent"
    for name, count in sorted(run.sent.items()):
        typer.echo(f"{counted(count, 'record')} {verb} to {name}")
    for why in run.refused:
        typer.echo(f"klamm: left out: {why}", err=True)
    if run.left_out:
        typer.echo(f"{counted(run.left_out, 'record')} left as they are: not chosen")
    if not run.sent:
        typer.echo("nothing to send")
    elif not run.remembers and not run.dry_run:
        typer.echo("chosen records are not remembered: the same command sends them once more")


def _users(worker: Worker) -> dict[str, list[str]]:
    """Return dead letter topics of a worker's connectors."""
    users: dict[str, list[str]] = {}
    for name, item in worker.call("GET", "/connectors?expand=info").items():
        topic = (item["info"]["config"].get(_TOPIC_KEY) or "").strip()
        if topic:
            users.setdefault(topic, []).append(name)
    return users


def _counts(cluster: Cluster, topic: str) -> dict[str, Any]:
    """Count records by offsets. This counts markers of transactions, and records that compaction removed, as well."""
    from klamm.dlq.reading import committed, ranges

    consumer = _consumer(cluster, topic)
    try:
        if topic not in cluster.metadata(consumer).topics:
            return {"records": None, "not_replayed": None}
        found = ranges(consumer, topic)
        ends = sum(high for _, high in found.values())
        return {
            "records": ends - sum(low for low, _ in found.values()),
            "not_replayed": ends - sum(committed(consumer, topic, found).values()),
        }
    finally:
        consumer.close()


def _consumer(cluster: Cluster, topic: str) -> Any:
    from confluent_kafka import Consumer

    from klamm.dlq.replay import group_of

    config = cluster.config("consumer") | {
        "group.id": group_of(topic),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
    consumer = cluster.open(Consumer, config)
    cluster.metadata(consumer)
    return consumer


def _producer(cluster: Cluster, topic: str) -> Any:
    from confluent_kafka import KafkaException, Producer

    from klamm.dlq.replay import group_of

    config = cluster.config("producer") | {
        "transactional.id": group_of(topic),
        "partitioner": "murmur2_random",
    }
    try:
        return cluster.open(Producer, config)
    except KafkaException as e:
        raise kafka_error(e, f"no producer for {cluster.bootstrap}") from None


def _print_counts(by: str, counts: Counter[str | None], output: Output) -> None:
    rows = [{by: name, "records": count} for name, count in counts.most_common()]
    print_rows(rows, [by, "records"], output)


def _print_letters(found: list[Letter], output: Output, *, values: bool, trace: bool) -> None:
    rows = [_row(x, values=values, trace=trace) for x in found]
    columns = ["at", "time", "came_from", "task", "stage", "error"]
    if values and not output.structured:
        columns += ["key", "value"]
    if trace and not output.structured:
        for x, row in zip(found, rows, strict=True):
            typer.echo("  ".join(str(row[c] or "-") for c in columns))
            typer.echo(x.facts.get("exception.stacktrace", "").rstrip())
        return
    print_rows(rows, columns, output)


def _row(letter: Letter, *, values: bool, trace: bool) -> dict[str, Any]:
    from klamm.records.formats import json_value

    when = letter.timestamp
    row: dict[str, Any] = {
        "at": f"{letter.partition}@{letter.offset}",
        "time": None
        if when is None
        else datetime.fromtimestamp(when / 1000, UTC).isoformat(timespec="milliseconds"),
        "came_from": letter.origin,
        "task": letter.task,
        "stage": letter.facts.get("stage"),
        "error": letter.error,
    }
    if values:
        row |= {
            "key": json_value(letter.key),
            "value": json_value(letter.value),
            "headers": [[name, json_value(value)] for name, value in letter.headers],
        }
    if trace:
        row["trace"] = letter.facts.get("exception.stacktrace")
    return row
