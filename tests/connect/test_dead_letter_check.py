"""Validation asks the cluster about the dead letter topic: its errors, its silence, and how often."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from klamm.connect.service.dead_letter_check import ASK_S, AWAY_S, FINE_S, DeadLetterCheck
from klamm.connect.validation.connector import Row
from klamm.connect.validation.definitions import DEAD_LETTERS, REPLICATION


class Cluster:
    """An admin client whose answers the test sets; `None` is success, "silence" none at all."""

    def __init__(self, answer: int | str | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int]] = []

    def create_topics(
        self, new: list[Any], *, validate_only: bool, request_timeout: float
    ) -> dict[str, Future[None]]:
        assert validate_only
        assert request_timeout == ASK_S
        self.asked.append((new[0].topic, new[0].replication_factor))
        future: Future[None] = Future()
        if isinstance(self.answer, int):
            future.set_exception(KafkaException(KafkaError(self.answer, "no")))
        elif self.answer is None:
            future.set_result(None)
        else:
            future.set_exception(TimeoutError())
        return {new[0].topic: future}


class Checked:
    """A check with a clock of the test's."""

    def __init__(self, cluster: Cluster) -> None:
        self.now = 100.0
        self.check = DeadLetterCheck(lambda: cluster, lambda: self.now)  # type: ignore[arg-type, return-value]

    def errors(self, topic: str = "d", factor: str = "3", **config: str) -> dict[str, list[str]]:
        rows: dict[str, Row] = {
            key: {"value": {"name": key, "value": value, "errors": []}}
            for key, value in ((DEAD_LETTERS, topic), (REPLICATION, factor))
        }
        found = asyncio.run(self.check.objection({DEAD_LETTERS: topic, REPLICATION: factor, **config}))
        if found is not None:
            found.add_to(rows)
        return {key: row["value"]["errors"] for key, row in rows.items() if row["value"]["errors"]}


def test_a_factor_without_brokers_is_an_error_each_time() -> None:
    cluster = Cluster(KafkaError.INVALID_REPLICATION_FACTOR)
    checked = Checked(cluster)
    for _ in range(2):
        [(key, [error])] = checked.errors().items()
        assert key == REPLICATION
        assert error == (
            f"Invalid value 3 for configuration {REPLICATION}: the cluster cannot make the dead letter topic d: no; set a "
            "number that it has brokers for, or make the topic"
        )
    assert len(cluster.asked) == 2, "somebody may have made the topic meanwhile"


def test_a_bad_name_is_an_error_of_the_name() -> None:
    assert list(Checked(Cluster(KafkaError.TOPIC_EXCEPTION)).errors()) == [DEAD_LETTERS]


@pytest.mark.parametrize("answer", [None, KafkaError.TOPIC_ALREADY_EXISTS])
def test_what_is_fine_is_asked_once_a_minute(answer: int | None) -> None:
    cluster = Cluster(answer)
    checked = Checked(cluster)
    for at, asked in ((0.0, 1), (FINE_S - 1, 1), (FINE_S + 1, 2)):
        checked.now = 100.0 + at
        assert checked.errors() == {}
        assert len(cluster.asked) == asked
    checked.errors(factor="2")
    assert cluster.asked[-1] == ("d", 2)


@pytest.mark.parametrize(
    "answer", ["silence", KafkaError._ALL_BROKERS_DOWN, KafkaError.TOPIC_AUTHORIZATION_FAILED]
)
def test_a_cluster_that_does_not_say_holds_nobody_up(answer: int | str) -> None:
    cluster = Cluster(answer)
    checked = Checked(cluster)
    for topic in ("d", "e", "f"):
        assert checked.errors(topic) == {}
    assert len(cluster.asked) == 1
    checked.now += AWAY_S + 1
    checked.errors("g")
    assert len(cluster.asked) == 2


def test_keys_that_are_wrong_in_themselves_are_not_asked_about() -> None:
    cluster = Cluster(KafkaError.INVALID_REPLICATION_FACTOR)
    assert Checked(cluster).errors(factor="many") == {}
    assert cluster.asked == []


def test_no_topic_and_other_clusters_are_not_asked_about() -> None:
    cluster = Cluster(KafkaError.INVALID_REPLICATION_FACTOR)
    checked = Checked(cluster)
    assert checked.errors("") == {}
    assert checked.errors(**{"admin.override.bootstrap.servers": "other:1"}) == {}
    assert cluster.asked == []
