"""`kafka-broker-api-versions`: the versions of each API that each broker serves."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from klamm.admin.client import Admin
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options
from klamm.kafka_tools.run import with_admin
from klamm_base.errors import KlammError
from klamm_kafka.wire.api_keys import ApiKey, message_types

SUMMARY = "ask brokers which versions of which APIs they serve."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    COMMAND_CONFIG,
)
_OTHERS: Final = {
    80: ("AddRaftVoter", 0, 1),
    81: ("RemoveRaftVoter", 0, 0),
    83: ("InitializeShareGroupState", 0, 0),
    84: ("ReadShareGroupState", 0, 0),
    85: ("WriteShareGroupState", 0, 1),
    86: ("DeleteShareGroupState", 0, 0),
    87: ("ReadShareGroupStateSummary", 0, 1),
}
"""APIs of Kafka 4.3's brokers that no client of ours sends: name, oldest and latest version."""


def run(options: Options) -> int:
    options.require("bootstrap-server")

    async def act(admin: Admin) -> None:
        answer = await admin.metadata()
        for broker in sorted(answer.brokers, key=lambda b: b.node_id):
            node = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
            try:
                said = as_text(await admin.api_versions(broker.node_id))
            except KlammError as e:
                said = f"ERROR: {e}"
            sys.stdout.write(f"{node} -> {said}\n")

    with_admin(options, act)
    return 0


def as_text(served: Mapping[int, tuple[int, int]]) -> str:
    """Return the APIs that a broker serves, and those of Kafka 4.3 that it does not, as Kafka's client prints them."""
    known = {int(key): _known(key) for key in ApiKey} | _OTHERS
    rows = [_row(key, known.get(key), served.get(key)) for key in sorted({*known, *served})]
    return "(\n\t" + ",\n\t".join(rows) + "\n)"


def _known(key: ApiKey) -> tuple[str, int, int]:
    request = message_types(key)[0]
    return request.__name__.removesuffix("Request"), request.MIN_VERSION, request.MAX_VERSION


def _row(key: int, known: tuple[str, int, int] | None, served: tuple[int, int] | None) -> str:
    name = known[0] if known else "UNKNOWN"
    if served is None:
        return f"{name}({key}): UNSUPPORTED"
    low, high = served
    versions = str(low) if low == high else f"{low} to {high}"
    if known is None:
        return f"{name}({key}): {versions}"
    _, oldest, latest = known
    if latest < low:
        usable = "unusable: node too new"
    elif high < oldest:
        usable = "unusable: node too old"
    else:
        usable = f"usable: {min(latest, high)}"
    return f"{name}({key}): {versions} [{usable}]"
