"""Warnings about configurations: each key that nobody reads has a sentence, and no other key."""

from __future__ import annotations

import pytest

from klamm.connect.config import WORKER_CONFIG
from klamm.connect.validation import definitions
from klamm.connect.validation.warnings import Judged, config_warnings

SINK = {"name": "c", "connector.class": "FileStreamSink", "topics": "t"}
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "topic": "t"}


def warnings(
    config: dict[str, str], *own: str, kind: str = "sink", judged: Judged | None = None
) -> list[str]:
    common = definitions.SINK if kind == "sink" else definitions.SOURCE
    return config_warnings(
        config,
        {*common.names, *own},
        judged or Judged(),
        kind=kind,
        worker={"bootstrap.servers": "b:1"},
        worker_keys=WORKER_CONFIG.names,
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("fiel", "file"),
        ("tasks.mx", "tasks.max"),
        ("topic", "topics"),
        ("errors.deadletterqueue.topic.nmae", "errors.deadletterqueue.topic.name"),
        ("consumer.overide.max.poll.records", None),
        ("task.restart.mx", "task.restart.max"),
        ("utterly.other", None),
    ],
)
def test_a_key_that_nobody_knows_is_named(key: str, meant: str | None) -> None:
    given = {k: v for k, v in SINK.items() if k != meant}
    hint = f"; did you mean {meant}?" if meant else ""
    said = f"{key} is a setting neither of this connector nor of Connect{hint}"
    assert warnings({**given, key: "x"}, "file") == [said]


def test_a_salt_in_a_misspelt_key_is_not_shown() -> None:
    (said,) = warnings({**SINK, "colum.mask.hash.SHA-256.with.salt.S3CR3T": "x"})
    assert "colum.mask.hash.SHA-256.with.salt.***" in said
    assert "S3CR3T" not in said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"value.converter.schemas.enable": "false"},
            "value.converter.schemas.enable has no effect without value.converter: the worker's converter",
        ),
        (
            {"value.converter": "JsonConverter", "value.converter.schemas.enabel": "false"},
            "value.converter.schemas.enabel is not a setting of this converter; did you mean value.converter.schemas.enable?",
        ),
        ({"transforms": "a", "transforms.b.type": "X"}, "transforms.b.type has no effect: transforms does not list b"),
        (
            {"consumer.override.isolation.levle": "x"},
            "consumer.override.isolation.levle has no effect: neither Java's clients nor librdkafka know it; did you mean",
        ),
        ({"group.id": "g"}, "group.id has no effect here: it is a setting of workers"),
        ({"topic.creation.default.partitions": "1"}, "topic.creation.default.partitions has no effect: only source"),
    ],
)  # fmt: skip
def test_connects_own_keys_are_judged(config: dict[str, str], said: str) -> None:
    [found] = warnings(
        {**SINK, **config}, "value.converter.schemas.enable" if "value.converter" in config else "file"
    )
    assert found.startswith(said)


@pytest.mark.parametrize(
    "config",
    [
        {"errors.deadletterqueue.topic.name": "d", "task.restart.max": "3", "task.memory.max.bytes": "0"},
        {"topic.creation.groups": "a", "topic.creation.a.cleanup.policy": "compact"},
        {"topic.creation.default.retention.ms": "1"},
        {"producer.override.linger.ms": "5"},
        {"config.action.reload": "none", "exactly.once.support": "required"},
    ],
)
def test_keys_with_an_effect_are_not_named(config: dict[str, str]) -> None:
    shown = [name for name in config if ".override." in name]  # the validate answer has a row for each
    assert warnings({**SOURCE, **config}, "topic", *shown, kind="source") == []


def test_the_connectors_own_words_win_and_its_further_keys_are_known() -> None:
    judged = Judged(
        warnings={"proxy.port": "proxy.port has no effect: there is no proxy"},
        taken=["http.header.X"],
        names=["batch.size"],
    )
    config = {**SINK, "bach.size": "1", "http.header.X": "y", "proxy.port": "1"}
    assert warnings(config, judged=judged) == [
        "bach.size is a setting neither of this connector nor of Connect; did you mean batch.size?",
        "proxy.port has no effect: there is no proxy",
    ]
