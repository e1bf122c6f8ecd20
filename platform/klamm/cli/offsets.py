"""`klamm offsets`: where partitions are at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import fail, reported
from klamm.cli.completion import topic_names
from klamm.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from klamm.admin.client import Admin
    from klamm.admin.model import TopicPartition

TimeOption = Annotated[
    str,
    typer.Option(
        "--time",
        help="A timestamp in ms, or -1 latest, -2 earliest, -3 max-timestamp, -4 earliest-local,"
        " -5 latest-tiered, -6 earliest-pending-upload.",
    ),
]


def offsets(
    cluster: AdminCluster,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            autocompletion=topic_names,
            help="Only topics that match this regular expression.",
        ),
    ] = None,
    topic_option: Annotated[str | None, typer.Option("--topic", help="The same as TOPIC.")] = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", help="Only these partitions: 0,1,2.")
    ] = None,
    topic_partitions: Annotated[
        str | None,
        typer.Option("--topic-partitions", help="Instead: topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3."),
    ] = None,
    time: TimeOption = "latest",
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal-topics", help="Without __consumer_offsets and its kind.")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Print the offset of each partition at a time.

    The time is the end, the start, or a timestamp, which stands for its first record.
    """
    if topic is not None and topic_option is not None:
        raise typer.BadParameter("give the topic once", param_hint="--topic")
    name = topic if topic is not None else topic_option
    if topic_partitions is not None and (name is not None or partitions is not None):
        raise typer.BadParameter(
            "cannot stand beside a topic or --partitions", param_hint="--topic-partitions"
        )
    with reported():
        from klamm.admin.errors import AdminError
        from klamm.admin.filters import FilterError, by_rules, by_topic_and_numbers
        from klamm.admin.offsets import NONE, list_offsets, parse_time
        from klamm.admin.topics import partitions_where

        try:
            timestamp = parse_time(time)
            wanted = (
                by_rules(topic_partitions) if topic_partitions else by_topic_and_numbers(name, partitions)
            )
        except FilterError as e:
            raise typer.BadParameter(str(e)) from None

        async def ask(admin: Admin) -> dict[TopicPartition, int | AdminError]:
            chosen = await partitions_where(admin, wanted, exclude_internal=exclude_internal)
            return await list_offsets(admin, chosen, timestamp)

        found = cluster.ask(ask)
        if not found:
            fail(f"no partition at {cluster.bootstrap} matches")
        rows = [
            {"topic": tp.topic, "partition": tp.partition, "offset": None if offset == NONE else offset}
            for tp, offset in sorted(found.items())
            if not isinstance(offset, AdminError)
        ]
        print_rows(rows, ["topic", "partition", "offset"], output)
        problems = [str(o) for _, o in sorted(found.items()) if isinstance(o, AdminError)]
        if problems:
            fail("; ".join(problems))
