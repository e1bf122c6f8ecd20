"""The common part of the source and sink suites: a worker, a connector on it, and configurations that must be refused."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from klamm.testing.broker import EmbeddedBroker
from klamm.testing.cases import CONVERTERS, SinkCase, SourceCase
from klamm.testing.worker import EmbeddedWorker
from klamm_plugins.connector import Connector

Case = SourceCase | SinkCase
REFUSED = 400


class Running:
    """One connector on a worker, under a name of its own. `remove` removes it."""

    def __init__(self, worker: EmbeddedWorker, case: Case, more: Mapping[str, str]) -> None:
        self.worker = worker
        self.name = f"{case.connector.__name__}-{uuid.uuid4().hex[:8]}"
        self.config = configuration(case, more)

    def start(self, **more: str) -> None:
        """Makes the connector and waits until it runs. `more` are further properties, with dots written as `__`."""
        given = {key.replace("__", "."): value for key, value in more.items()}
        self.worker.create(self.name, self.config | given)
        self.worker.wait_running(self.name)

    def halt(self) -> None:
        self.worker.halt(self.name)

    def committed(self) -> list[int]:
        """Returns the committed offset of each partition that a sink has."""
        found = self.worker.request("GET", f"/connectors/{self.name}/offsets").body["offsets"]
        return [each["offset"]["kafka_offset"] for each in found]

    def resume(self) -> None:
        self.worker.resume(self.name)

    def remove(self) -> None:
        if not self.worker.running:
            self.worker.start()
        self.worker.delete(self.name)


def configuration(case: Case, more: Mapping[str, str]) -> dict[str, str]:
    """Returns the connector's whole configuration."""
    cls = case.connector
    name = f"{cls.__module__}.{cls.__qualname__}"
    given = {key: value for key, value in case.props.items() if key != "name"}  # the worker gives it
    return {**CONVERTERS, **given, "connector.class": name, "tasks.max": "1", **more}


@contextlib.contextmanager
def frozen(broker: EmbeddedBroker | None) -> Iterator[None]:
    """Freezes the embedded broker within the block. Leaves another cluster alone."""
    if broker is None:
        yield
        return
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


def refuses(worker: EmbeddedWorker, case: Case, more: Mapping[str, str]) -> None:
    """Asserts that every bad configuration is refused with a sentence that names its key, and leaves nothing behind."""
    good = configuration(case, more)
    for bad, keys in (
        *(({**good, **given}, list(given)) for given in case.bad),
        *_without(good, case.connector),
    ):
        name = f"bad-{uuid.uuid4().hex[:8]}"
        answer = worker.request("POST", "/connectors", {"name": name, "config": bad})
        shown = {key: bad.get(key) for key in keys}
        assert answer.status == REFUSED, f"{shown} is answered {answer.status}, not {REFUSED}: {answer.body}"
        assert any(key in answer.message for key in keys), f"{shown}: no key is named in {answer.message!r}"
        assert worker.request("GET", f"/connectors/{name}").status == 404


def _without(
    good: Mapping[str, str], connector: type[Connector]
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yields the configuration without each of its required keys."""
    for key in connector.config():
        if key.required and key.name in good:
            yield {name: value for name, value in good.items() if name != key.name}, [key.name]


def assert_at_least_once(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Asserts that everything is there, and that repeated records come in order, from a record on that was there before."""
    first = list(dict.fromkeys(found))
    missing = [each for each in expected if each not in set(first)]
    assert not missing, f"{len(missing)} records are lost, the first is {missing[0]!r}"
    assert first[: len(expected)] == list(expected), "records are out of order"
    place = {each: number for number, each in enumerate(first)}
    places = [place[each] for each in found]
    jumps = [(a, b) for a, b in itertools.pairwise(places) if b > a + 1]
    assert not jumps, f"after a restart, records between {jumps[0][0]} and {jumps[0][1]} were left out"
