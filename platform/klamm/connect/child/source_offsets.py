"""The place of a source task's offsets: the workers' topic, or the connector's own (`offsets.storage.topic`).

The connector's own topic is on the cluster that the task's records go to. Offsets missing there are looked up
in the workers' topic, so a connector may get its own topic later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer

from klamm.connect.child import clients
from klamm.connect.child.control import Control
from klamm.connect.child.retry import Stopped
from klamm.connect.child.source_loop import ReadOffsets
from klamm.connect.model import STANDALONE, TaskSpec
from klamm.connect.topics.own_offset_topic import KEY, OffsetTopic, storage_settings
from klamm_base.clientconfig import Kind, translate

WORKERS_TOPIC: Final = "offset.storage.topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The topic of a connector's offsets. `own`: it is not, or not only, the workers' topic."""

    topic: str
    own: bool


def place_of(spec: TaskSpec, *, exactly_once: bool) -> Place:
    """Returns the place by Kafka's rule: the workers' topic if name and brokers are those of the workers."""
    if spec.worker.get(STANDALONE) == "true":
        return Place(topic=spec.worker.get(WORKERS_TOPIC, ""), own=False)
    given = spec.connector_config.get(KEY, "").strip()
    topic = given or spec.worker[WORKERS_TOPIC]
    if not given and not exactly_once:
        return Place(topic=topic, own=False)
    brokers = clients.properties(spec, "producer").get("bootstrap.servers", "")
    same = topic == spec.worker[WORKERS_TOPIC] and _brokers(brokers) == _brokers(
        spec.worker["bootstrap.servers"]
    )
    return Place(topic=topic, own=not same)


def read_by_worker(control: Control, connector: str) -> ReadOffsets:
    """Returns a reader of offsets in the workers' topic, which asks the worker."""

    def read(partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        found: list[dict[str, Any] | None] = control.call(
            "read_offsets", {"connector": connector, "partitions": partitions}
        )
        return found

    return read


def read_own(topic: OffsetTopic, connector: str, otherwise: ReadOffsets) -> ReadOffsets:
    """Returns a reader of offsets in the connector's own topic, else in the workers'."""

    def read(partitions: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        state = topic.read_to_end()
        found: list[dict[str, Any] | None] = [state.get(connector, p) for p in partitions]
        missing = [i for i, offset in enumerate(found) if offset is None]
        if missing:
            for i, offset in zip(missing, otherwise([partitions[i] for i in missing]), strict=True):
                found[i] = offset
        return found

    return read


def open_topic(spec: TaskSpec, name: str, wait: Callable[[], None]) -> OffsetTopic:
    """Opens the connector's own topic, with clients of its settings."""
    props = {**clients.properties(spec, "admin"), **_cluster(spec, "admin")}
    admin = clients.make_admin(
        translate({"client.id": f"connector-adminclient-{spec.id}", **props}, "admin", lenient=True).config
    )

    def make_consumer(fixed: Mapping[str, Any]) -> Consumer:
        props = {
            "client.id": f"connector-consumer-{spec.id}",
            # librdkafka insists on a group name; without subscribe or commit the group never comes into
            # being.
            "group.id": f"connect-{spec.id.connector}",
            **clients.properties(spec, "consumer"),
            **_cluster(spec, "consumer"),
        }
        return clients.make_consumer({**translate(props, "consumer", lenient=True).config, **fixed})

    return OffsetTopic(
        storage_settings(spec.worker, name), admin=admin, make_consumer=make_consumer, wait=wait
    )


def alive(control: Control) -> Callable[[], None]:
    """Returns what a task does while it waits for its offsets: it shows that it lives, and raises Stopped
    when it must stop.
    """

    def wait() -> None:
        control.vitals.enter("broker")
        if control.stopping.is_set():
            raise Stopped

    return wait


def _cluster(spec: TaskSpec, kind: Kind) -> dict[str, str]:
    """Returns the settings for the records' brokers, unless the connector names others for this kind of client."""
    own = f"{kind}.override.bootstrap.servers"
    servers = spec.connector_config.get("producer.override.bootstrap.servers")
    return {"bootstrap.servers": servers} if servers and own not in spec.connector_config else {}


def _brokers(text: str) -> set[str]:
    return {each.strip() for each in text.split(",") if each.strip()}
