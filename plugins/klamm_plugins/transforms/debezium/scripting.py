"""Filter and ContentBasedRouter: an expression says which records stay, or their topics.

Debezium runs scripts there, in a language of the JVM's. Here the expression is read, not run: `expression_syntax` says
what there is, and a text with more is an error of the configuration.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Final

from klamm_base.configdef import ConfigDef, Importance, Type, invalid
from klamm_base.errors import ConfigError
from klamm_plugins.batch import Batch
from klamm_plugins.errors import DataError
from klamm_plugins.java_regex import compile_java
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.transform import Record
from klamm_plugins.transforms._parts import KlammTransformation
from klamm_plugins.transforms._validators import regex
from klamm_plugins.transforms.debezium.envelope import one_of_words, word
from klamm_plugins.transforms.debezium.expression import LANGUAGES, compile_expression
from klamm_plugins.transforms.debezium.expression_values import UNDEFINED

_KEEP, _DROP, _EVALUATE = "keep", "drop", "evaluate"
_TOPICS_MAX: Final = 10_000  # remembered; a topic costs a match


class _Scripting(KlammTransformation):
    """The common part: the choice of records, and the expression."""

    key: ClassVar[str]
    """The setting of the expression."""
    about: ClassVar[str]

    @classmethod
    def config(cls) -> ConfigDef:
        return (
            ConfigDef()
            .define("topic.regex", Type.STRING, None, validator=regex, importance=Importance.LOW, documentation="Regular expression (Java's syntax) that the whole topic must match; records of other topics stay as they are.")
            .define("language", Type.STRING, validator=_language, importance=Importance.HIGH, documentation="`jsr223.groovy` or `jsr223.graal.js`: the language of the expression, of which Klamm reads conditions.")
            .define(cls.key, Type.STRING, importance=Importance.HIGH, documentation=cls.about)
            .define("null.handling.mode", Type.STRING, _KEEP, validator=one_of_words(_KEEP, _DROP, _EVALUATE), importance=Importance.LOW, documentation="A record without a value: `keep` leaves it as it is, `drop` drops it, `evaluate` asks the expression.")
        )  # fmt: skip

    def configure(self, props: Mapping[str, Any]) -> None:
        settings = self.config().parse(props)
        self._text: str = settings[self.key]
        try:
            self._evaluate = compile_expression(self._text, settings["language"].strip())
        except ConfigError as e:
            raise invalid(self.key, self._text, str(e)) from e
        self._nulls = word(settings["null.handling.mode"])
        pattern = settings["topic.regex"]
        self._pattern = compile_java(pattern) if pattern else None
        self._known: dict[str, bool] = {}

    def apply_many(self, records: Sequence[Record]) -> list[Record | None]:
        made: list[Record | None] = []
        evaluates_nulls, null = self._nulls == _EVALUATE, self._nulls == _KEEP
        for record in records:
            if not self._meant(record.topic):
                made.append(record)
            elif record.value is None and not evaluates_nulls:
                made.append(record if null else None)
            else:
                made.append(self._judged(record, self._evaluate(record)))
        return made

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if not self._meant(batch.topic):
            return [batch]
        # The expression needs records, but changes nothing of them but the topic.
        topics = [None if record is None else record.topic for record in self.apply_many(batch.records())]
        rows = [row for row, topic in enumerate(topics) if topic is not None]
        if not rows:
            return []
        if len({*topics} - {None}) == 1:
            kept = batch if len(rows) == len(batch) else batch.select(rows)
            topic = topics[rows[0]]
            return [kept if topic == batch.topic else kept.replace(topic=topic)]
        runs = [list(run) for _, run in groupby(rows, topics.__getitem__)]
        return [batch.select(run).replace(topic=topics[run[0]]) for run in runs]

    def _meant(self, topic: str) -> bool:
        if self._pattern is None:
            return True
        if topic not in self._known:
            if len(self._known) >= _TOPICS_MAX:
                self._known.clear()
            self._known[topic] = self._pattern.fullmatch(topic) is not None
        return self._known[topic]

    @abstractmethod
    def _judged(self, record: Record, found: Any) -> Record | None:
        """Returns the record that the expression's value makes of this one."""

    def _wrong(self, found: Any, wanted: str) -> DataError:
        shown = (
            "null" if found is None else "undefined" if found is UNDEFINED else f"a {type(found).__name__}"
        )
        return DataError(f"{self.key}={self._text} gives {shown}, which should be {wanted}")


class FilterByCondition(_Scripting):
    """Filter: drops the records for which a condition is false. Named as Debezium's, not to be taken for Kafka's Filter."""

    kafka_name = "io.debezium.transforms.Filter"
    full_name_only = True  # Filter is Kafka's
    original_keys = KeyTable(__package__, "Filter")
    key = "condition"
    about = "The condition of records that stay, such as `value.op == 'u' && value.before.id == 2`."

    def _judged(self, record: Record, found: Any) -> Record | None:
        if found is True:
            return record
        if found is not False:
            raise self._wrong(found, "true or false")
        return None


class ContentBasedRouter(_Scripting):
    """ContentBasedRouter: the value of an expression becomes the topic; null leaves it."""

    kafka_name = "io.debezium.transforms.ContentBasedRouter"
    original_keys = KeyTable(__package__, "ContentBasedRouter")
    key = "topic.expression"
    about = "The topic, such as `value.op == 'u' ? 'updates' : null`. Null leaves the record where it is."

    def _judged(self, record: Record, found: Any) -> Record | None:
        if found is None or found is UNDEFINED:
            return record
        if not isinstance(found, str) or not found:
            raise self._wrong(found, "a text that is a topic, or null")
        changed = record.copy()
        changed.topic = found
        return changed


def _language(name: str, value: Any) -> None:
    if value is None or value.strip() not in LANGUAGES:
        raise invalid(
            name,
            value,
            f"must be one of {', '.join(LANGUAGES)}: conditions in these are read, scripts and modules are not run",
        )
