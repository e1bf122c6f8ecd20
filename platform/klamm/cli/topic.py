"""`klamm topic`: topics are listed, made, looked into, changed and deleted, on any Kafka cluster."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections import Counter
from typing import Annotated, Any

import typer

from klamm.cli import topic_changes, topic_records
from klamm.cli.cluster import AdminCluster, Cluster, kafka_error
from klamm.cli.common import REQUEST_S, fail, pairs, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError

app = Commands(help="List, make, look into, change topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="Topic names.")]


def _admin(cluster: Cluster) -> Any:
    from confluent_kafka.admin import AdminClient

    return cluster.open(AdminClient, cluster.config("admin"))


def _settle(futures: dict[Any, Any], doing: str) -> tuple[dict[Any, Any], list[str]]:
    """Wait for every answer. Returns those that came, and a sentence for each failure."""
    from confluent_kafka import KafkaException

    results, problems = {}, []
    for thing, future in futures.items():
        try:
            results[thing] = future.result(REQUEST_S)
        except KafkaException as e:
            problems.append(str(kafka_error(e, f"cannot {doing} {_title(thing)}")))
        except TimeoutError:
            problems.append(f"cannot {doing} {_title(thing)}: no answer after {REQUEST_S:g} s")
    return results, problems


def _title(thing: Any) -> str:
    """Return a topic, a partition or a resource in words."""
    if isinstance(thing, str):
        return thing
    return f"{thing.topic}-{thing.partition}" if hasattr(thing, "partition") else str(thing.name)


def _finish(problems: list[str]) -> None:
    """End with the problems, once what worked was said."""
    if problems:
        sys.stdout.flush()
        fail("; ".join(problems))


@app.command("list")
def list_topics(
    cluster: Cluster,
    pattern: Annotated[
        str | None, typer.Option("--topic", help="Only topics that match this pattern (*, ?).")
    ] = None,
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal", help="Without __consumer_offsets.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """List topics with their partitions and replicas."""
    with reported():
        topics = cluster.metadata(_admin(cluster)).topics
        rows = [
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
            }
            for name, topic in sorted(topics.items())
            if (pattern is None or fnmatch.fnmatchcase(name, pattern))
            and not (exclude_internal and name.startswith("__"))
        ]
        print_rows(rows, ["topic", "partitions", "replicas"], output)


@app.command()
def create(
    cluster: Cluster,
    names: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="-1: the broker's num.partitions.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="-1: the broker's default.replication.factor.")
    ] = -1,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting.")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave what exists as it is.")
    ] = False,
) -> None:
    """Create topics."""
    from confluent_kafka.admin import NewTopic

    settings = pairs(config, "--config")
    with reported():
        admin = _admin(cluster)
        existing = cluster.metadata(admin).topics
        todo = [n for n in names if not (if_not_exists and n in existing)]
        for name in set(names) - set(todo):
            typer.echo(f"{name} exists")
        new = [NewTopic(n, partitions, replication_factor, config=settings) for n in dict.fromkeys(todo)]
        done, problems = _settle(admin.create_topics(new), "create") if new else ({}, [])
        for name in done:
            typer.echo(f"created {name}")
        _finish(problems)


@app.command()
def describe(
    cluster: AdminCluster,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]", autocompletion=topic_names, help="Default: all topics."),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show partitions, leaders, offsets and changed settings."""
    with reported():
        admin = _admin(cluster)
        topics = cluster.metadata(admin).topics
        absent = [n for n in names or [] if n not in topics]
        if absent:
            raise KlammError(f"no topic {', '.join(absent)} at {cluster.bootstrap}")
        chosen = sorted(set(names or topics))
        led = [
            (n, p.id) for n in chosen for p in topics[n].partitions.values() if p.leader >= 0
        ]  # the others answer nothing, and are why people look
        offsets, problems = _offsets(admin, led)
        configs, more = _overrides(cluster, chosen)
        rows = [
            {
                "topic": name,
                "partition": p.id,
                "leader": p.leader if p.leader >= 0 else None,
                "replicas": p.replicas,
                "isr": p.isrs,
                "start_offset": offsets[0].get((name, p.id)),
                "end_offset": offsets[1].get((name, p.id)),
            }
            for name in chosen
            for p in sorted(topics[name].partitions.values(), key=lambda p: p.id)
        ]
        _print_described(rows, configs, output)
        _finish(problems + more)


def _print_described(rows: list[dict[str, Any]], configs: dict[str, dict[str, str]], output: Format) -> None:
    if output not in (Format.TABLE, Format.WIDE):
        for row in rows:
            row["configs"] = configs.get(row["topic"])
    else:
        numbers = Counter(row["topic"] for row in rows)
        for name, settings in configs.items():
            shown = ",".join(f"{k}={v}" for k, v in sorted(settings.items())) or "-"
            typer.echo(f"{name}  partitions={numbers[name]}  configs={shown}")
    print_rows(
        rows, ["topic", "partition", "leader", "replicas", "isr", "start_offset", "end_offset"], output
    )


Found = dict[tuple[str, int], int]


def _offsets(admin: Any, partitions: list[tuple[str, int]]) -> tuple[tuple[Found, Found], list[str]]:
    """Return the first and the next offset of each partition that tells them, and what went wrong."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec_of: Any = OffsetSpec  # its factories are not annotated
    wanted = [TopicPartition(t, p) for t, p in partitions]
    if not wanted:
        return ({}, {}), []
    starts, problems = _settle(
        admin.list_offsets(dict.fromkeys(wanted, spec_of.earliest())), "list offsets of"
    )
    ends, more = _settle(admin.list_offsets(dict.fromkeys(wanted, spec_of.latest())), "list offsets of")

    def by_place(found: dict[Any, Any]) -> Found:
        return {(tp.topic, tp.partition): r.offset for tp, r in found.items()}

    return (by_place(starts), by_place(ends)), list(dict.fromkeys(problems + more))


def _overrides(cluster: AdminCluster, names: list[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the topics' own settings, where they are told, and what went wrong."""
    from klamm.admin.configs import topic_overrides

    found = cluster.ask(lambda admin: topic_overrides(admin, names)) if names else {}
    problems = [str(own) for own in found.values() if not isinstance(own, dict)]
    return {n: own for n, own in found.items() if isinstance(own, dict)}, list(dict.fromkeys(problems))


@app.command()
def delete(
    cluster: Cluster,
    names: Names,
    regex: Annotated[
        bool,
        typer.Option(
            "--regex",
            help="Names are regular expressions for whole names. One without an underscore at its beginning spares topics"
            " that have one there, such as __consumer_offsets.",
        ),
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Pass over topics that do not exist.")
    ] = False,
) -> None:
    """Delete topics and their records."""
    with reported():
        admin = _admin(cluster)
        existing = cluster.metadata(admin).topics
        chosen = _matching(names, existing) if regex else list(dict.fromkeys(names))
        todo = [n for n in chosen if n in existing]
        done, problems = _settle(admin.delete_topics(todo), "delete") if todo else ({}, [])
        for name in done:
            typer.echo(f"deleted {name}")
        absent = [n for n in chosen if n not in existing]
        if absent and not if_exists:
            problems.append(f"no topic {', '.join(absent)} at {cluster.bootstrap}")
        _finish(problems)


def _matching(patterns: list[str], existing: Any) -> list[str]:
    try:
        compiled = [re.compile(p) for p in patterns]
    except re.error as e:
        raise typer.BadParameter(f"{e.pattern!r} is no regular expression: {e}", param_hint="TOPIC") from None
    return sorted(
        n
        for n in existing
        if any(c.fullmatch(n) and (n[0] != "_" or c.pattern.startswith("_")) for c in compiled)
    )


topic_changes.register(app)
topic_records.register(app)
