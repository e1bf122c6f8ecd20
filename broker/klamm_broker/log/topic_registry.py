"""The topics of a log directory: `klamm-topics.json`, with their ids and configuration overrides.

Kafka keeps this in its metadata log; a single node needs only a small file that is replaced as a
whole. A topic exists if and only if it is in this file. So a creation or deletion happens at one moment, and
a crash leaves directories to be removed, never half a topic. The file also counts the starts of the
directory, from which leader epochs follow.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from klamm_base.files import NotSynced, write_atomically
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.mirror_topic import EPOCH
from klamm_broker.log.steps import Steps

log = logging.getLogger(__name__)

FILE_NAME: Final = "klamm-topics.json"
VERSION: Final = 1


@dataclass(slots=True, kw_only=True)
class Topic:
    """A topic: its id (Kafka's text form), number of partitions, and own configuration.

    `first_start` is the start of the directory at which the topic's leader epoch is 0. `places` has the directory.id
    of each partition that was moved from one log directory to another: the copy that counts if there are two.
    """

    name: str
    id: str
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)
    first_start: int = 0
    places: dict[int, str] = field(default_factory=dict)

    @property
    def promotion_epoch(self) -> int:
        """The leader epoch with which a mirror topic became an ordinary one; -1: it did not."""
        return int(self.configs.get(EPOCH, "-1"))


class TopicRegistry:
    """The content of the file. A method returns once its change is on the disk; a method that raises has changed nothing.

    Methods that return steps write in a job, which may run in a thread; other changes may come and go meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.topics: dict[str, Topic] = {}
        self.starts = 0
        self.deleted: set[str] = set()  # ids whose directories may still be there
        self._coming: dict[str, Topic] = {}  # in the file, once it is written, and then in `topics`
        self._going: set[str] = set()  # in `topics` until the file is written without them
        self._configs: dict[str, dict[str, str]] = {}  # by id: as `_coming`, for topics that there are
        self._jobs = 0  # under way: they may write what is taken back meanwhile
        self._lock = threading.Lock()
        self._taken = self._written = 0  # turns: older content never replaces newer content

    @classmethod
    def load(cls, path: Path) -> TopicRegistry:
        """Read the file; without a file the registry is empty. Raises DirectoryError."""
        registry = cls(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return registry
        except (ValueError, RecursionError) as e:
            raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise DirectoryError(f"{path}: no document of version {VERSION}")
        try:
            registry.starts = int(document["starts"])
            registry.deleted = {str(topic_id) for topic_id in document["deleted"]}
            for name, entry in document["topics"].items():
                registry.topics[name] = _topic(name, entry)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e
        return registry

    @property
    def saved(self) -> bool:
        """True once the file has been written since it was read: then it knows of this start."""
        return self._written > 0

    def save(self) -> None:
        """Write the file here and now."""
        turn, document = self._take()
        self._write(turn, _encoded(document))

    def _saving(self) -> Steps[None]:
        """Do `save` as a job."""
        turn, document = self._take()
        self._jobs += 1
        try:
            yield lambda: self._write(turn, _encoded(document))
        except NotSynced:
            raise
        except OSError:
            if self._written < turn:  # otherwise a later turn has written it
                raise
        finally:
            self._jobs -= 1

    def _take(self) -> tuple[int, dict[str, Any]]:
        """Returns the next turn and what the file is to have. Later changes do not reach into it."""
        topics = [t for t in self.topics.values() if t.name not in self._going]
        document = {
            "version": VERSION,
            "starts": self.starts,
            "deleted": sorted(self.deleted | {self.topics[name].id for name in self._going}),
            "topics": {
                t.name: {
                    "id": t.id,
                    "partitions": t.partitions,
                    "configs": self._configs.get(t.id, t.configs),
                    "firstStart": t.first_start,
                }
                | ({"places": {str(p): place for p, place in t.places.items()}} if t.places else {})
                for t in (*topics, *self._coming.values())
            },
        }
        self._taken += 1
        return self._taken, document

    def _write(self, turn: int, content: bytes) -> None:
        """Replace the file, in any thread. Raises OSError."""
        with self._lock:
            if turn > self._written:
                try:
                    write_atomically(self._path, content)
                except NotSynced:
                    self._written = turn
                    raise
                self._written = turn

    def _restore(self, error: OSError) -> None:
        """Write what holds once more, if a change that is taken back can be read in the file, now or soon."""
        if not isinstance(error, NotSynced) and not self._jobs:
            return
        try:
            self.save()
        except NotSynced:
            log.debug("%s: it has its content again, but may not be on the disk", self._path)
        except OSError as e:
            log.warning("%s has a change that was refused, until the next change: %s", self._path, e)

    def putting(self, *topics: Topic) -> Steps[None]:
        """Add topics that do not exist, all or none."""
        names = {topic.name: topic for topic in topics}
        self._coming |= names
        refused: OSError | None = None
        try:
            yield from self._saving()
        except OSError as e:
            refused = e
            raise
        finally:
            for name in names:
                del self._coming[name]
            if refused is not None:
                self._restore(refused)
        self.topics |= names

    def changing(self, configs: Mapping[str, Mapping[str, str]]) -> Steps[None]:
        """Give topics another configuration, all or none. They have it once the file is written.

        A topic's next change comes after the end of this one.
        """
        topics = {self.topics[name].id: self.topics[name] for name in configs}
        changed = {topic.id: dict(configs[topic.name]) for topic in topics.values()}
        self._configs |= changed
        refused: OSError | None = None
        try:
            yield from self._saving()
        except OSError as e:
            refused = e
            raise
        finally:
            for topic_id in changed:
                del self._configs[topic_id]
            if refused is not None:
                self._restore(refused)
        for topic_id, topic in topics.items():
            topic.configs = changed[topic_id]

    def promote(self, topic: Topic, configs: Mapping[str, str], epoch: int) -> None:
        """Give a mirror topic the configuration of an ordinary one, and the leader epoch with which it becomes one.

        Later starts count on from this epoch.
        """
        before = topic.configs, topic.first_start
        topic.configs, topic.first_start = {**configs, EPOCH: str(epoch)}, self.starts - epoch
        try:
            self.save()
        except OSError as e:
            topic.configs, topic.first_start = before
            self._restore(e)
            raise

    def growing(self, partitions: Mapping[str, int]) -> Steps[None]:
        """Give topics more partitions, all or none."""
        before = {name: self.topics[name].partitions for name in partitions}
        self._set_partitions(partitions)
        try:
            yield from self._saving()
        except OSError as e:
            self._set_partitions(before)
            self._restore(e)
            raise

    def _set_partitions(self, partitions: Mapping[str, int]) -> None:
        for name, count in partitions.items():
            self.topics[name].partitions = count

    def moving(self, topic: Topic, partition: int, place: str | None) -> Steps[None]:
        """Note the log directory (its id) whose copy of a partition counts if there are two; None: unknown."""
        before = topic.places.get(partition)
        _set_place(topic, partition, place)
        try:
            yield from self._saving()
        except OSError as e:
            _set_place(topic, partition, before)
            self._restore(e)
            raise

    def take_back(self, name: str, *, partitions: int = 0) -> None:
        """Undo a creation, or a growth from `partitions` partitions, that could not be completed.

        If the file cannot be written now, the next change writes it: a start before that finds the topic, or the partitions,
        empty.
        """
        if partitions:
            self.topics[name].partitions = partitions
        else:
            self.deleted.add(self.topics.pop(name).id)
        try:
            self.save()
        except OSError as e:
            log.warning("%s: topic %s is not taken back on the disk yet: %s", self._path, name, e)

    def removing(self, *names: str) -> Steps[list[Topic]]:
        """Delete topics, all or none. Their ids are remembered until the next start has handled their directories.

        They stay in `topics` until the file is written.
        """
        topics = [self.topics[name] for name in names]
        self._going.update(names)
        refused: OSError | None = None
        try:
            yield from self._saving()
        except OSError as e:
            refused = e
            raise
        finally:
            self._going.difference_update(names)
            if refused is not None:
                self._restore(refused)
        for topic in topics:
            del self.topics[topic.name]
            self.deleted.add(topic.id)
        return topics


def _encoded(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _set_place(topic: Topic, partition: int, place: str | None) -> None:
    others = {p: known for p, known in topic.places.items() if p != partition}
    topic.places = others if place is None else {**others, partition: place}


def _topic(name: str, entry: Mapping[str, Any]) -> Topic:
    return Topic(
        name=name,
        id=str(entry["id"]),
        partitions=int(entry["partitions"]),
        configs={str(k): str(v) for k, v in entry["configs"].items()},
        first_start=int(entry["firstStart"]),
        places={int(p): str(place) for p, place in entry.get("places", {}).items()},
    )
