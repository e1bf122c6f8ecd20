"""`klamm topic`: topics are listed, made, looked into, changed and deleted, on any Kafka cluster."""

from __future__ import annotations

import fnmatch
import re
from typing import Annotated, Any

import typer

from klamm.cli import topic_changes, topic_records
from klamm.cli.cluster import Cluster, kafka_error
from klamm.cli.common import REQUEST_S, pairs, reported
from klamm.cli.completion import topic_names
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import KlammError

app = Commands(help="List, make, look into, change topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", autocompletion=topic_names, help="Topic names.")]


def _admin(cluster: Cluster) -> Any:
    from confluent_kafka.admin import AdminClient

    return cluster.open(AdminClient, cluster.config("admin"))


def _settle(futures: dict[Any, Any], doing: str) -> dict[Any, Any]:
    """Wait for every answer; all failures are said together, after what worked was done."""
    from confluent_kafka import KafkaException

    results, problems = {}, []
    for name, future in futures.items():
        try:
            results[name] = future.result(REQUEST_S)
        except KafkaException as e:
            problems.append(str(kafka_error(e, f"cannot {doing} {getattr(name, 'name', name)}")))
    if problems:
        raise KlammError("; ".join(problems))
    return results


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
        if todo:
            new = [NewTopic(n, partitions, replication_factor, config=settings) for n in todo]
            _settle(admin.create_topics(new), "create")
        for name in todo:
            typer.echo(f"created {name}")


@app.command()
def describe(
    cluster: Cluster,
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
        chosen = sorted(names or topics)
        offsets = _offsets(admin, {n: list(topics[n].partitions) for n in chosen})
        rows = [
            {
                "topic": name,
                "partition": p.id,
                "leader": p.leader,
                "replicas": p.replicas,
                "isr": p.isrs,
                "start_offset": offsets[name, p.id][0],
                "end_offset": offsets[name, p.id][1],
            }
            for name in chosen
            for p in sorted(topics[name].partitions.values(), key=lambda p: p.id)
        ]
        _print_described(rows, _overrides(admin, chosen), output)


def _print_described(rows: list[dict[str, Any]], configs: dict[str, dict[str, str]], output: Format) -> None:
    if output not in (Format.TABLE, Format.WIDE):
        for row in rows:
            row["configs"] = configs[row["topic"]]
    else:
        for name, settings in configs.items():
            shown = ",".join(f"{k}={v}" for k, v in sorted(settings.items())) or "-"
            typer.echo(f"{name}  partitions={sum(r['topic'] == name for r in rows)}  configs={shown}")
    print_rows(
        rows, ["topic", "partition", "leader", "replicas", "isr", "start_offset", "end_offset"], output
    )


def _offsets(admin: Any, partitions: dict[str, list[int]]) -> dict[tuple[str, int], tuple[int, int]]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    spec_of: Any = OffsetSpec  # its factories are not annotated
    wanted = [TopicPartition(t, p) for t, ids in partitions.items() for p in ids]
    if not wanted:
        return {}
    found = [
        {
            (tp.topic, tp.partition): r.offset
            for tp, r in _settle(admin.list_offsets(dict.fromkeys(wanted, spec)), "list offsets of").items()
        }
        for spec in (spec_of.earliest(), spec_of.latest())
    ]
    return {key: (found[0][key], found[1][key]) for key in found[0]}


def _overrides(admin: Any, names: list[str]) -> dict[str, dict[str, str]]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    if not names:
        return {}
    asked = [ConfigResource(ResourceType.TOPIC, n) for n in names]
    return {
        resource.name: {
            e.name: e.value for e in entries.values() if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, entries in _settle(admin.describe_configs(asked), "describe").items()
    }


@app.command()
def delete(
    cluster: Cluster,
    names: Names,
    regex: Annotated[
        bool, typer.Option("--regex", help="Names are regular expressions for whole names.")
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
        if todo:
            _settle(admin.delete_topics(todo), "delete")
        for name in todo:
            typer.echo(f"deleted {name}")
        absent = [n for n in chosen if n not in existing]
        if absent and not if_exists:
            raise KlammError(f"no topic {', '.join(absent)} at {cluster.bootstrap}")


def _matching(patterns: list[str], existing: Any) -> list[str]:
    try:
        compiled = [re.compile(p) for p in patterns]
    except re.error as e:
        raise typer.BadParameter(f"{e.pattern!r} is no regular expression: {e}", param_hint="TOPIC") from None
    return sorted(n for n in existing if any(c.fullmatch(n) for c in compiled))


topic_changes.register(app)
topic_records.register(app)
