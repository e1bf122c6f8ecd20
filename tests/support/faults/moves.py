"""Partitions that go from one log directory to another while they are written to, and while the broker dies."""

from __future__ import annotations

from collections.abc import Sequence

from support.faults.load import Load
from support.faults.recorder import Recorder
from support.raw import RawClient

from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

INTERNAL = (("__consumer_offsets", 4), ("__transaction_state", 4))


class MoveLoad(Load):
    """Sends a partition of any topic, the coordinators' too, to any of the directories, every now and then."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str, seed: int, *, topics: Sequence[str], partitions: int, directories: Sequence[str]) -> None:  # fmt: skip
        super().__init__(name, recorder, bootstrap, seed)
        self.places = [(t, p) for t in topics for p in range(partitions)]
        self.places += [(t, p) for t, count in INTERNAL for p in range(count)]
        self.directories = directories
        self.port = int(bootstrap.rpartition(":")[2])

    def work(self) -> None:
        while not self.stopping.is_set():
            topic, partition = self.chance.choice(self.places)
            place = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
            directory = AlterReplicaLogDir(path=self.chance.choice(self.directories), topics=[place])
            try:
                with RawClient(self.port, timeout_s=60) as client:
                    answer = client.request(AlterReplicaLogDirsRequest(dirs=[directory]), 2)
            except OSError as e:
                self.last_error = str(e)
            else:
                (result,) = answer.results[0].partitions
                made_later = (
                    topic.startswith("__") and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                if result.error_code and not made_later:
                    raise AssertionError(f"{topic}-{partition} to {directory.path}: {result.error_code}")
                self.progress += 1
            self.rest(0.2)
