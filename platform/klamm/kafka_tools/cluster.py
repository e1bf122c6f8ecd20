"""`kafka-cluster`: the cluster's id, its brokers' addresses, and brokers that are gone for good."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm.admin.nodes import describe_cluster, unregister_broker
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import Option, Options, UsageError
from klamm.kafka_tools.run import connected
from klamm.kafka_tools.subcommands import Parser, parsed
from klamm_base.errors import KlammError
from klamm_kafka.client import UnsupportedApi

SUMMARY = "ask for the cluster's id and its brokers' addresses, or unregister a broker."
OPTIONS: tuple[Option, ...] = ()
COMMANDS: Final = {
    "cluster-id --bootstrap-server <host:port>": "Print the cluster's id (also -b, and --command-config or -c).",
    "list-endpoints …": "List brokers with their addresses (--include-fenced-brokers).",
    "unregister … --id <id>": "Unregister a broker that is gone for good.",
}
"""For the reference page."""


def run(options: Options) -> int:
    """Refuse: `main` has a parser of its own."""
    raise UsageError("kafka-cluster is started by its sub-commands")


def main(args: Sequence[str]) -> int:
    """Parse, act and return the exit code. Raises UsageError and KlammError."""
    given = parsed(_parser(), args)
    if isinstance(given, int):
        return given
    if given.bootstrap_controller is not None:
        raise UsageError("--bootstrap-controller: ask a broker, --bootstrap-server HOST:PORT")
    act: Callable[[Admin, argparse.Namespace], Awaitable[None]] = given.act
    try:
        connected(
            given.bootstrap_server, given.command_config or given.config, lambda admin: act(admin, given)
        )
    except AdminError as e:
        raise KlammError(with_class(e)) from None
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="kafka-cluster",
        allow_abbrev=False,
        description="The Kafka cluster tool.",
        epilog="Each takes --bootstrap-server HOST:PORT.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, what, act in (
        ("cluster-id", "Get information about the ID of a cluster.", _cluster_id),
        ("unregister", "Unregister a broker.", _unregister),
        ("list-endpoints", "List endpoints", _list_endpoints),
    ):
        sub = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
        sub.set_defaults(act=act)
        place = sub.add_mutually_exclusive_group(required=True)
        place.add_argument("--bootstrap-server", "-b", metavar="HOST:PORT,...", help="brokers to ask first")
        place.add_argument("--bootstrap-controller", "-C", metavar="HOST:PORT,...", help="not here")
        sub.add_argument("--command-config", "-c", metavar="FILE", help="client settings")
        sub.add_argument("--config", metavar="FILE", help="the older name of --command-config")
        if name == "unregister":
            sub.add_argument("--id", "-i", type=int, required=True, help="the broker to unregister")
        if name == "list-endpoints":
            sub.add_argument("--include-fenced-brokers", action="store_true", help="fenced brokers too")
    return parser


async def _cluster_id(admin: Admin, given: argparse.Namespace) -> None:
    sys.stdout.write(f"Cluster ID: {(await describe_cluster(admin)).id}\n")


async def _unregister(admin: Admin, given: argparse.Namespace) -> None:
    try:
        await unregister_broker(admin, given.id)
    except UnsupportedApi:
        sys.stdout.write("The target cluster does not support the broker unregistration API.\n")
        return
    sys.stdout.write(f"Broker {given.id} is no longer registered.\n")


async def _list_endpoints(admin: Admin, given: argparse.Namespace) -> None:
    found = await describe_cluster(admin, fenced=given.include_fenced_brokers)
    hosts = max((len(b.host) for b in found.brokers), default=100)
    racks = max((len(b.rack) for b in found.brokers if b.rack), default=10)
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    rows += [
        (
            str(b.id),
            b.host,
            str(b.port),
            b.rack or "null",
            "fenced" if b.fenced else "unfenced",
            "broker",
        )
        for b in found.brokers
    ]
    for id_, host, port, rack, state, kind in rows:
        sys.stdout.write(f"{id_:<10} {host:<{hosts}} {port:<10} {rack:<{racks}} {state:<10} {kind:<15}\n")
