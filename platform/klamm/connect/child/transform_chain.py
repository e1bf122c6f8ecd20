"""The transforms of one task, in order, with their predicates: one call takes a list of records through each
(KIP-585).

Invariant: the result pairs each given record with the record in its place, in order; None says that the
record was dropped, or that it was bad and is tolerated. When a transform raises, it gets the records one by
one: the tolerance judges the bad ones (stage TRANSFORMATION), the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol, TypeVar, cast

from klamm.connect.validation.stages import (
    KINDS,
    STAGE_CONFIG,
    TRANSFORMS,
    aliases,
    check_predicates,
)
from klamm.connect.validation.stages import Stage as Place
from klamm_base.configdef import with_prefix
from klamm_base.errors import ConfigError
from klamm_plugins.batch import Batch, SinkBatch, SourceBatch, batches_of
from klamm_plugins.discovery import PluginManager, kafka_name, python_name
from klamm_plugins.errors import DataError
from klamm_plugins.original_keys import refusals
from klamm_plugins.overriding import is_newest
from klamm_plugins.records import SinkRecord, SourceRecord
from klamm_plugins.transform import Predicate, Record, Transformation

log = logging.getLogger(__name__)

STAGE: Final = "TRANSFORMATION"
_OF_TRANSFORMS, _OF_PREDICATES = KINDS
_RUNTIME_KEYS: Final = ("type", "plugin.version", "predicate", "negate")

R = TypeVar("R", SourceRecord, SinkRecord)
B = TypeVar("B", SourceBatch, SinkBatch)
T = TypeVar("T")


class Retry(Protocol):
    """Repeats calls that raise a RetriableError, for as long as errors.retry.timeout says."""

    def call(self, stage: str, operation: Callable[[], T]) -> T: ...


class Errors(Protocol):
    """The part of `Tolerance` that the chain needs."""

    @property
    def retry(self) -> Retry: ...

    def failed(self, record: Any, error: Exception, *, stage: str, executing: str) -> None:
        """Returns when the record is to be left out; raises when the task must fail."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A transform of the chain and, if it has one, the predicate that chooses its records."""

    alias: str
    transform: Transformation
    predicate_alias: str | None = None
    predicate: Predicate | None = None
    negate: bool = False

    @property
    def class_name(self) -> str:
        return name_of(self.transform)

    @property
    def version(self) -> str:
        return self.transform.version()

    def applies_to(self, record: Record) -> bool:
        return self.predicate is None or self.predicate.test(record) != self.negate

    def apply(self, record: Record) -> Record | None:
        return self.transform.apply(record) if self.applies_to(record) else record

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        """Returns as many records as it gets, in the same order."""
        if self.predicate is None:
            return self._transformed(records)
        negate = self.negate
        meant = [yes != negate for yes in self.predicate.test_many(records)]
        self._check(meant, records)
        if not any(meant):
            return list(records)
        changed = iter(self._transformed([r for r, yes in zip(records, meant, strict=True) if yes]))
        return [next(changed) if yes else r for r, yes in zip(records, meant, strict=True)]

    @property
    def in_columns(self) -> bool:
        """True if it takes batches."""
        if not is_newest(type(self.transform), "apply_batch", "apply", "apply_many"):
            return False
        return self.predicate is None or is_newest(type(self.predicate), "test_batch", "test", "test_many")

    @property
    def leaves_values(self) -> bool:
        """True if neither transform nor predicate look at values."""
        predicate = self.predicate is None or self.predicate.leaves_values()
        return self.in_columns and predicate and self.transform.leaves_values()

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """Returns what takes the place of the batch, in order."""
        chosen = True if self.predicate is None else self.predicate.test_batch(batch)
        if isinstance(chosen, bool):
            return self.transform.apply_batch(batch) if chosen != self.negate else [batch]
        self._check(chosen, batch)
        rows = [i for i, yes in enumerate(chosen) if yes != self.negate]
        if len(rows) in (0, len(batch)):
            return self.transform.apply_batch(batch) if rows else [batch]
        return self._beside_others(batch, rows)

    def _beside_others(self, batch: Batch, rows: list[int]) -> list[Batch]:
        """Transforms some rows of a batch, and leaves the others where they are."""
        made = self.transform.apply_batch(batch.select(rows))
        meant = set(rows)
        if not made:
            return [batch.select([i for i in range(len(batch)) if i not in meant])]
        whole = len(made) == 1 and len(made[0]) == len(rows)
        found: list[Batch] = []
        start = done = 0
        for yes, run in groupby(range(len(batch)), meant.__contains__):
            end = start + sum(1 for _ in run)
            if not yes:
                found.append(batch[start:end])
            elif whole:
                found.append(made[0][done : done + end - start])
            else:
                found += self.transform.apply_batch(batch[start:end])
            done += end - start if yes else 0
            start = end
        return found

    def _check(self, answers: Sequence[bool], records: Sequence[Any]) -> None:
        if len(answers) != len(records):
            assert self.predicate is not None
            raise DataError(
                f"{name_of(self.predicate)} answered for {len(answers)} records instead of {len(records)}"
            )

    def _transformed(self, records: Sequence[Record]) -> list[Record | None]:
        changed = self.transform.apply_many(records)
        if len(changed) != len(records):
            raise DataError(
                f"{self.class_name} made {len(changed)} of {len(records)} records; None stands for a dropped one"
            )
        return changed

    def close(self) -> None:
        for plugin in (self.transform, self.predicate):
            if plugin is not None:
                _close(plugin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The effect of a stage on one record, for a dry run.

    `applied` says whether its predicate chose the record, `record` is the result (None: dropped, or `error`
    says what went wrong).
    """

    stage: Stage
    applied: bool
    record: Record | None
    error: Exception | None = None


class TransformChain:
    """A task's chain. It is false without transforms: then nobody need call it."""

    def __init__(self, stages: Sequence[Stage] = ()) -> None:
        self.stages = tuple(stages)
        self._columns = all(stage.in_columns for stage in self.stages)

    def __bool__(self) -> bool:
        return bool(self.stages)

    @property
    def leaves_values(self) -> bool:
        """True if no stage looks at values."""
        return all(stage.leaves_values for stage in self.stages)

    def apply_batches(self, batches: Sequence[SinkBatch], tolerance: Errors) -> list[SinkBatch]:
        """Returns what takes the place of the batches, in order. As `apply` does, it leaves out dropped and bad records."""
        found: list[SinkBatch] = []
        for batch in batches:
            made = self.in_columns(batch)
            if made is None:
                made = batches_of(r for _, r in self.apply(batch.records(), tolerance) if r is not None)
            found += made
        return found

    def in_columns(self, batch: B) -> list[B] | None:
        """Takes a batch through the chain without making records; None when a stage needs records, or raises."""
        if not self._columns:
            return None
        made: list[Any] = [batch]
        try:
            for stage in self.stages:
                made = [after for before in made for after in stage.apply_batch(before) if after]
        except Exception:
            return None  # record by record, the chain finds the bad ones and judges them
        return made

    def apply(self, records: Sequence[R], tolerance: Errors) -> list[tuple[R, R | None]]:
        """Returns every record with the record in its place; None when it is dropped or left out."""
        originals = list(records)  # only once: a batch makes new records each time
        places: Sequence[int] = range(len(originals))
        current: list[Any] = originals
        for stage in self.stages:
            failed = False
            try:
                current = stage.apply_many(current)
            except Exception:
                failed = True
            if failed:
                # Transforming one by one finds the bad records and judges each. Outside of `except`: their errors must
                # not have the error of the whole batch as their context, which says the same.
                current = [
                    _apply_one(stage, originals[place], record, tolerance)
                    for place, record in zip(places, current, strict=True)
                ]
            if not all(current):  # records are true, None is not
                places = [p for p, record in zip(places, current, strict=True) if record is not None]
                current = [record for record in current if record is not None]
                if not current:
                    break
        if len(current) == len(originals):
            return list(zip(originals, current, strict=True))
        made: list[R | None] = [None] * len(originals)
        for place, record in zip(places, current, strict=True):
            made[place] = record
        return list(zip(originals, made, strict=True))

    def trace(self, record: Record) -> Iterator[Step]:
        """Takes one record through the chain, step by step, until it is dropped or fails. For dry runs."""
        current: Record | None = record
        for stage in self.stages:
            assert current is not None, "a step without a record was the last"
            applied = True
            try:
                applied = stage.applies_to(current)
                current = stage.transform.apply(current) if applied else current
            except Exception as e:
                yield Step(stage=stage, applied=applied, record=None, error=e)
                return
            yield Step(stage=stage, applied=applied, record=current)
            if current is None:
                return

    def info(self) -> list[dict[str, str]]:
        """Returns alias, class and version of each transform and its predicate, for the task's metrics."""
        return [_stage_info(stage) for stage in self.stages]

    def close(self) -> None:
        for stage in self.stages:
            stage.close()


def make_chain(plugins: PluginManager, config: Mapping[str, str]) -> TransformChain:
    """Makes the chain that a connector's config names, each part configured.

    Raises ConfigError or PluginNotFoundError for a part that cannot be made, after closing the parts made
    before it.
    """
    stages: list[Stage] = []
    try:
        stages.extend(_make_stage(plugins, alias, config) for alias in aliases(TRANSFORMS, config))
    except Exception:
        TransformChain(stages).close()
        raise
    return TransformChain(stages)


def name_of(plugin: Transformation | Predicate) -> str:
    """Returns Kafka's class name, or Python's if the class stands for none of Kafka's."""
    cls = type(plugin)
    return kafka_name(cls) or python_name(cls)


def make_plugin(
    plugins: PluginManager, place: Place, config: Mapping[str, str]
) -> Transformation | Predicate:
    """Makes and configures one transform or predicate of a config. Raises ConfigError or PluginNotFoundError."""
    below = with_prefix(config, place.prefix)
    name = below.get("type", "").strip()
    if not name:
        raise ConfigError(
            f'Missing required configuration "{place.prefix}type" which has no default value.',
            key=f"{place.prefix}type",
        )
    transform = place.kind is _OF_TRANSFORMS
    plugin = plugins.find_transformation(name)() if transform else plugins.find_predicate(name)()
    # Its own definition parses the keys; a key without a definition is passed on unchanged.
    own = {k: v for k, v in below.items() if k not in _RUNTIME_KEYS}
    try:
        _check_keys(plugin, own, place.prefix)
        plugin.configure(cast("dict[str, Any]", own) | plugin.config().parse(own))
    except ConfigError as e:
        _close(plugin)
        key = e.key if e.key in plugin.config() else "type"
        raise ConfigError(f"{place.prefix.rstrip('.')}: {e}", key=f"{place.prefix}{key}") from e
    except Exception:
        _close(plugin)
        raise
    return plugin


def _check_keys(plugin: Transformation | Predicate, own: Mapping[str, str], prefix: str) -> None:
    """Raises ConfigError for a key of the original that would change results here."""
    if isinstance(plugin, Transformation):
        for key, sentence in refusals(plugin.original_keys, own).items():
            raise ConfigError(sentence, key=f"{prefix}{key}")


def _make_stage(plugins: PluginManager, alias: str, config: Mapping[str, str]) -> Stage:
    check_predicates(config, alias)
    prefix = f"{TRANSFORMS}.{alias}."
    settings = STAGE_CONFIG.parse({k: config[prefix + k] for k in STAGE_CONFIG.names if prefix + k in config})
    transform = cast("Transformation", make_plugin(plugins, Place(_OF_TRANSFORMS, alias), config))
    chosen: str | None = settings["predicate"]
    predicate: Predicate | None = None
    if chosen is not None:
        try:
            predicate = cast("Predicate", make_plugin(plugins, Place(_OF_PREDICATES, chosen), config))
        except Exception:
            _close(transform)
            raise
    return Stage(
        alias=alias,
        transform=transform,
        predicate_alias=chosen,
        predicate=predicate,
        negate=settings["negate"],
    )


def _apply_one(stage: Stage, original: Record, record: Record, tolerance: Errors) -> Record | None:
    try:
        return tolerance.retry.call(STAGE, lambda: stage.apply(record))
    except Exception as e:
        tolerance.failed(original, e, stage=STAGE, executing=stage.class_name)
        return None


def _stage_info(stage: Stage) -> dict[str, str]:
    info = {"transform": stage.alias, "transform-class": stage.class_name, "transform-version": stage.version}
    if stage.predicate is not None:
        info |= {
            "predicate": stage.predicate_alias or "",
            "predicate-class": name_of(stage.predicate),
            "predicate-version": stage.predicate.version(),
        }
    return info


def _close(plugin: Transformation | Predicate) -> None:
    """Closes it. An error of `close` is only logged, so that it hides no earlier error."""
    try:
        plugin.close()
    except Exception:
        log.exception("close() of %s raised", name_of(plugin))
