"""Makes the topic registry and the partition directories agree when a log directory is opened.

There are three reasons for a directory that the registry does not know. Its topic was deleted, and a crash came
before the directory was gone (the registry remembers deleted ids): it is removed. Its creation was cut off (it has no
segment yet): it is removed. Another broker, Apache Kafka, made it, or the registry is an old copy: it is adopted, as
nothing that was acknowledged may be lost.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from pathlib import Path

from klamm_base.internal_topics import INTERNAL_TOPICS
from klamm_broker.log.checkpoints import CLEANER_OFFSET, TopicPartition, read_offsets
from klamm_broker.log.errors import CorruptFile
from klamm_broker.log.files import stray_dir_name
from klamm_broker.log.leader_epoch import FILE_NAME as EPOCH_FILE
from klamm_broker.log.leader_epoch import LeaderEpochCache
from klamm_broker.log.log_dir import new_uuid
from klamm_broker.log.partition_metadata import read_topic_id
from klamm_broker.log.topic_registry import Topic, TopicRegistry

log = logging.getLogger(__name__)


def reconcile(
    registry: TopicRegistry, directory: Path, found: dict[TopicPartition, Path], adopted: set[str]
) -> None:
    """Adopt, remove or put aside the directories that the registry does not know; `found` keeps those of topics.

    Changes the registry, but does not save it. `adopted` are the topics that this start has adopted, from any directory:
    each of their partitions counts, in whatever order they are found.
    """
    compacted = {topic for topic, _ in _cleaned(directory)}
    for (name, partition), path in list(found.items()):
        topic = registry.topics.get(name)
        topic_id = read_topic_id(path)
        known = topic is not None and topic_id == topic.id and partition < topic.partitions
        if known and name not in adopted:
            continue
        if topic_id in registry.deleted or not any(path.glob("*.log")):
            shutil.rmtree(path)
            log.info("%s: removed: its topic was deleted, or its creation was cut off", path)
            del found[name, partition]
        elif topic is not None and topic_id not in (topic.id, None):
            aside = path.rename(path.with_name(stray_dir_name(name, partition, uuid.uuid4().hex)))
            log.warning(
                "%s: belongs to topic id %s, but topic %s has id %s: put aside as %s",
                path, topic_id, name, topic.id, aside.name,
            )  # fmt: skip
            del found[name, partition]
        else:
            adopted.add(name)
            _adopt(registry, name, partition, path, topic_id, compact=name in compacted)


def _adopt(
    registry: TopicRegistry, name: str, partition: int, path: Path, topic_id: str | None, *, compact: bool
) -> None:
    topic = registry.topics.get(name)
    if topic is None:
        compact = compact or name in INTERNAL_TOPICS
        configs = {"cleanup.policy": "compact"} if compact else {"retention.ms": "-1"}
        topic = Topic(
            name=name, id=topic_id or new_uuid(), partitions=0, configs=configs, first_start=registry.starts
        )
        registry.topics[name] = topic
        log.warning(
            "%s: topic %s is adopted. Its configuration is not known here (Kafka keeps it in its metadata log): "
            "set to %s, so that nothing is deleted by mistake",
            path, name, configs,
        )  # fmt: skip
    topic.partitions = max(topic.partitions, partition + 1)
    topic.first_start = min(topic.first_start, registry.starts - _latest_epoch(path) - 1)


def _latest_epoch(path: Path) -> int:
    try:
        return LeaderEpochCache.load(path / EPOCH_FILE).latest
    except CorruptFile:
        return 0  # rebuilt from the batches when the log is opened


def _cleaned(directory: Path) -> dict[TopicPartition, int]:
    """Returns the partitions that Kafka's cleaner has compacted. Kafka makes this file empty to begin with."""
    path = directory / CLEANER_OFFSET
    try:
        return read_offsets(path) if path.exists() and path.stat().st_size else {}
    except CorruptFile as e:
        log.warning("%s: ignored", e)
        return {}
