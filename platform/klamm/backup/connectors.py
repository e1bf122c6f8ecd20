"""Connectors by Connect's REST API, with their offsets: for a backup, and back to other workers.

Whoever backs up Connect's own topics has its connectors already; these are for workers with other topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from klamm.admin.model import TopicPartition
from klamm.backup.mapping import Mapping as Offsets
from klamm.backup.model import Connector
from klamm_base.errors import KlammError
from klamm_base.redaction import HIDDEN

Call = Callable[[str, str, Any], Any]
"""Sends a request (method, path, body) to a worker. Raises KlammError with the worker's words."""
STOPPED: Final = "STOPPED"
STOP_S: Final = 30.0
"""The time that a connector's tasks have to stop."""
PAUSE_S: Final = 0.25


def read_connectors(call: Call, say: Callable[[str], None]) -> tuple[Connector, ...]:
    """Return all connectors of a worker's group by name. Raises KlammError."""
    told = call("GET", "/connectors?expand=info&expand=status", None)
    return tuple(_connector(call, name, told[name], say) for name in sorted(told))


def _connector(call: Call, name: str, told: Mapping[str, Any], say: Callable[[str], None]) -> Connector:
    offsets = None
    try:
        rows = call("GET", f"/connectors/{quote(name, safe='')}/offsets", None)["offsets"]
        offsets = tuple({"partition": row["partition"], "offset": row["offset"]} for row in rows)
    except KlammError as e:
        say(f"connector {name}: its offsets cannot be read ({e})")
    return Connector(
        name=name, config=dict(told["info"]["config"]), state=told["status"]["connector"]["state"], offsets=offsets
    )  # fmt: skip


def restore_connectors(
    call: Call, connectors: Sequence[Connector], names: Mapping[str, str], places: Mapping[TopicPartition, Offsets],
    say: Callable[[str], None], *, resume: bool = False,
) -> tuple[int, list[str]]:  # fmt: skip
    """Make connectors, set their offsets, and let those run that ran. Sinks' offsets are translated as groups' are.

    With topics of other names all stay stopped, because configurations name the old ones, or make them of a prefix. So does one whose worker
    hid a value. With `resume`, connectors of the same configuration are those of a killed restore: stopped ones go on, others are done.
    Returns how many were made, and sentences on what was refused.
    """
    made, refused = 0, []
    renamed = any(old != new for old, new in names.items())
    for connector in connectors:
        hidden = sorted(key for key, value in connector.config.items() if HIDDEN in value)
        try:
            there = _state_of(call, connector) if resume else None
            if there in (None, STOPPED):
                _restore(
                    call,
                    connector,
                    names,
                    places,
                    stopped=renamed or bool(hidden),
                    is_there=there is not None,
                )
            made += 1
        except KlammError as e:
            refused.append(f"connector {connector.name}: {e}")
            continue
        if hidden:
            refused.append(
                f"connector {connector.name}: {', '.join(hidden)}, which its worker hid. It is stopped: set what is missing, then resume it"
            )
        elif renamed and connector.state != STOPPED:
            say(
                f"connector {connector.name} is stopped, because topics have other names: change its configuration, then resume it"
            )
    return made, refused


def _restore(
    call: Call, connector: Connector, names: Mapping[str, str], places: Mapping[TopicPartition, Offsets], *,
    stopped: bool, is_there: bool,
) -> None:  # fmt: skip
    path = f"/connectors/{quote(connector.name, safe='')}"
    body = {"name": connector.name, "config": dict(connector.config), "initial_state": STOPPED}
    if not is_there:
        call("POST", "/connectors", body)
    rows = [row for given in connector.offsets or () if (row := translated(given, names, places)) is not None]
    if rows:
        _patiently(lambda: call("PATCH", f"{path}/offsets", {"offsets": rows}))
    if stopped or connector.state == STOPPED:
        return
    call("PUT", f"{path}/pause" if connector.state == "PAUSED" else f"{path}/resume", None)


def _state_of(call: Call, connector: Connector) -> str | None:
    """Return the state of a connector with this name and configuration; None where there is none, or another."""
    path = f"/connectors/{quote(connector.name, safe='')}"
    try:
        same = call("GET", f"{path}/config", None) == dict(connector.config)
        return str(call("GET", f"{path}/status", None)["connector"]["state"]) if same else None
    except KlammError:  # it is not there, or making it tells why not
        return None


def sink_place(row: Mapping[str, Any]) -> TopicPartition | None:
    """Return the partition that an offset is of; None for a source's."""
    where = row["partition"]
    if not isinstance(where, dict) or set(where) != {"kafka_topic", "kafka_partition"}:
        return None
    return TopicPartition(where["kafka_topic"], int(where["kafka_partition"]))


def translated(
    row: Mapping[str, Any], names: Mapping[str, str], places: Mapping[TopicPartition, Offsets]
) -> dict[str, Any] | None:
    """Return an offset for the restored topics. A source's stays as it is; a sink's is None where its topic was not restored."""
    place = sink_place(row)
    if place is None:
        return dict(row)
    if place not in places:
        return None
    offset = places[place].translate(int(row["offset"]["kafka_offset"]))
    return {
        "partition": {"kafka_topic": names[place.topic], "kafka_partition": place.partition},
        "offset": {"kafka_offset": offset},
    }


def _patiently(attempt: Callable[[], Any]) -> None:
    """Repeat a change of offsets until the connector has stopped."""
    until = time.monotonic() + STOP_S
    while True:
        try:
            attempt()
            return
        except KlammError as e:
            if STOPPED not in str(e) or time.monotonic() > until:
                raise
        time.sleep(PAUSE_S)
