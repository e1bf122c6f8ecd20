"""Share groups in tests: Apache brokers that have them, and Java's share consumer (see ShareReader.java)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from support import kafka_oracle

READER: Final = str(Path(__file__).with_name("ShareReader.java"))
BROKER: Final = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings with which a single Apache broker has share groups."""


class ShareReader:
    """A member of a share group that accepts `count` records, gives some back, and stays a member until the `with` ends."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, count: int, give_back: Iterable[str] = ()
    ) -> None:
        self._args = [READER, bootstrap, group, topic, str(count), *filter(None, [",".join(give_back)])]
        self.accepted: list[str] = []

    def __enter__(self) -> ShareReader:
        command = kafka_oracle.require().command(*self._args)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "done":
                return self
            self.accepted.append(line.removeprefix("accepted ").strip())
        _, said = self._process.communicate(timeout=60)
        raise AssertionError(f"the share consumer ended: {said}")

    def __exit__(self, *_exc: object) -> None:
        _, said = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, said


def share(bootstrap: str, group: str, topic: str, count: int, give_back: Iterable[str] = ()) -> list[str]:
    """Reads as a member of a share group until it has accepted `count` records, and leaves. Returns their values."""
    with ShareReader(bootstrap, group, topic, count, give_back) as reader:
        return reader.accepted
