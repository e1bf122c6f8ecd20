"""Reads the last statuses of a flow's connectors from the status topic at its target."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from klamm.connect.model import TaskId
from klamm.connect.secrets import Secrets
from klamm.connect.topics.config_topic import Status, StatusState
from klamm_base.clientconfig import translate
from klamm_base.errors import KlammError
from klamm_mirror.mm2_config import Flow

PATIENCE_S: Final = 5.0


def rows(flow: Flow) -> list[dict[str, Any]]:
    """Returns a row for each connector and task, or a row with the reason when the target cannot be asked."""
    try:
        state = _read(flow)
    except (KafkaException, KlammError) as e:
        said = e.args[0].str() if isinstance(e, KafkaException) else str(e)
        return [_row(flow, "-", None, None, said)]
    found = []
    for name in sorted(state.connectors()):
        keys: list[str | TaskId] = [name, *state.tasks(name)]
        for key in keys:
            status = state.get(key)
            if status is not None:
                task = key.task if isinstance(key, TaskId) else None
                found.append(_row(flow, name, task, status, status.trace))
    return found or [_row(flow, "-", None, None, "never ran")]


def _row(
    flow: Flow, connector: str, task: int | None, status: Status | None, trace: str | None
) -> dict[str, Any]:
    lines = (trace or "").strip().splitlines()
    return {
        "flow": flow.name,
        "connector": connector,
        "task": task,
        "state": str(status.state) if status else "UNKNOWN",
        "worker": status.worker_id if status else None,
        "trace": lines[-1] if lines else None,
    }


def _read(flow: Flow) -> StatusState:
    """Reads the whole status topic. Raises KafkaException, KlammError."""
    client = {
        k: v for k, v in flow.worker.items() if k.startswith(("bootstrap.", "security.", "sasl.", "ssl."))
    }
    client = Secrets.from_properties(flow.worker).resolve(client).config
    config = translate(client, "consumer", lenient=True).config | {
        "group.id": "klamm-mirror-status",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    topic = flow.worker["status.storage.topic"]
    state = StatusState("klamm mirror status")
    consumer = Consumer(config)
    try:
        metadata = consumer.list_topics(topic, PATIENCE_S).topics[topic]
        for partition in metadata.partitions:
            place = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(place, PATIENCE_S)
            _apply(consumer, TopicPartition(topic, partition, low), high, state)
    finally:
        consumer.close()
    return state


def _apply(consumer: Consumer, start: TopicPartition, end: int, state: StatusState) -> None:
    assert start.offset is not None
    if start.offset >= end:
        return
    consumer.assign([start])
    while True:
        record = consumer.poll(PATIENCE_S)
        if record is None:
            raise KlammError(f"no answer while reading {start.topic}-{start.partition}")
        if record.error():
            raise KafkaException(record.error())
        key = record.key()
        if key is not None:
            state.apply(key.decode(errors="replace"), record.value())
        if (record.offset() or 0) >= end - 1:
            return
