"""Decides whether a changed query fits the checkpoint of its earlier form. Pure: two descriptions of plans in,
changes out.

Spark notices some misfits when the query runs and fails. Others it does not notice: then results are
silently wrong. The rules follow Spark's guide ("Recovery semantics after changes in a streaming query") and
the behaviour of its file sink. `plan` makes the descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Literal

Level = Literal["safe", "careful", "breaks"]
"""safe: results are as if nothing had happened. careful: the query runs, but somebody should know the
consequence. breaks: the query would fail or go wrong silently; it needs a checkpoint of its own, or its old
form.
"""

Plan = Mapping[str, Any]
"""The description of one query from `plan.describe`, as kept beside the checkpoint."""

FILES: Final = frozenset({"parquet", "json", "csv", "orc", "text", "avro", "xml"})
_LEVELS: Final = ("breaks", "careful", "safe")
_NO_KEYS: Final = "none"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference and its consequence."""

    level: Level
    what: str

    def to_json(self) -> dict[str, str]:
        return {"level": self.level, "what": self.what}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a query's checkpoint and target: the last planned batch, the last finished batch (None: no
    batch), and the last batch that a file sink's directory knows.
    """

    planned: int | None = None
    done: int | None = None
    files: int | None = None

    @property
    def fresh(self) -> bool:
        return self.planned is None


def judge(old: Plan | None, new: Plan, standing: Standing) -> list[Change]:
    """Returns all changes, the worst first. A checkpoint without batches fits any query."""
    found = _directory(new, standing)
    if not standing.fresh:
        if old is None:
            found.append(
                Change("careful", "what wrote this checkpoint is not recorded: Spark alone will judge")
            )
        else:
            found += _compare(old, new)
    return sorted(found, key=lambda change: _LEVELS.index(change.level))


def _directory(new: Plan, standing: Standing) -> list[Change]:
    """Judges a file sink, which skips every batch whose number its directory knows already."""
    at = -1 if standing.planned is None else standing.planned
    if standing.files is None or standing.files <= at:
        return []
    where = new["output"].get("target") or "the directory"
    return [
        Change(
            "breaks",
            f"{where} holds batches up to {standing.files} of another checkpoint, this one is at "
            f"{'its beginning' if at < 0 else f'batch {at}'}: Spark would pass over every batch up to {standing.files} without "
            "writing it; use the old checkpoint, or another directory",
        )
    ]


def _compare(old: Plan, new: Plan) -> list[Change]:
    return [
        *_sources(old["sources"], new["sources"]),
        *_stateful(old["stateful"], new["stateful"]),
        *_watermarks(old["watermarks"], new["watermarks"]),
        *_mode(old, new),
        *_output(old["output"], new["output"]),
        *_columns(old, new),
        *_state(old, new),
    ]


def _sources(old: Sequence[Plan], new: Sequence[Plan]) -> list[Change]:
    if len(old) != len(new):
        return [
            Change(
                "breaks",
                f"the query read {_counted(len(old), 'source')} and now reads {len(new)}: a checkpoint holds one place for each",
            )
        ]
    found = []
    for number, (a, b) in enumerate(zip(old, new, strict=True), 1):
        name = f"source {number}" if len(old) > 1 else "the source"
        if a["kind"] != b["kind"]:
            found.append(
                Change(
                    "breaks",
                    f"{name} was {a['kind']} and is {b['kind']}: their places are written differently",
                )
            )
        elif a["kind"] in {"klamm", "kafka"}:
            found += _topics(name, a, b)
        elif a["options"] != b["options"]:
            found.append(
                Change(
                    "careful",
                    f"{name} ({a['kind']}) has other options: {_differences(a['options'], b['options'])}",
                )
            )
    return found


def _topics(name: str, old: Plan, new: Plan) -> list[Change]:
    a, b = old["options"], new["options"]
    found = []
    if a.get("subscribe") != b.get("subscribe") or a.get("subscribePattern") != b.get("subscribePattern"):
        before, after = _listed(a), _listed(b)
        if before is None or after is None:
            found.append(
                Change("careful", f"{name} subscribed to {_subscription(a)} and now to {_subscription(b)}")
            )
        else:
            found += [
                Change("careful", f"{name} has a new topic {t}, which is read from its first record")
                for t in sorted(after - before)
            ]
            found += [
                Change("careful", f"{name} no longer reads {t}: what is there and not yet read stays unread")
                for t in sorted(before - after)
            ]
    servers = "kafka.bootstrap.servers"
    if a.get(servers) != b.get(servers):
        found.append(
            Change(
                "careful",
                f"{name} is at {b.get(servers)}, it was at {a.get(servers)}: in another cluster the checkpoint's offsets mean "
                "other records",
            )
        )
    return found


def _listed(options: Plan) -> set[str] | None:
    text = options.get("subscribe")
    return {t.strip() for t in text.split(",")} if text else None


def _subscription(options: Plan) -> str:
    return str(options.get("subscribe") or options.get("subscribePattern") or options.get("assign"))


def _stateful(old: Sequence[Plan], new: Sequence[Plan]) -> list[Change]:
    if [o["kind"] for o in old] != [o["kind"] for o in new]:
        return [
            Change(
                "breaks",
                f"the state is kept by {_kinds(old)}, the query now has {_kinds(new)}",
            )
        ]
    found = []
    for number, (a, b) in enumerate(zip(old, new, strict=True), 1):
        name = a["kind"] if len(old) == 1 else f"{a['kind']} ({number})"
        for part, what in (("keys", "key"), ("values", "result")):
            for x, y in zip_longest(a.get(part, ()), b.get(part, ())):
                found += _state_column(name, what, x, y)
        if a.get("text") != b.get("text"):
            found.append(Change("breaks", f"{name} was {a.get('text')} and is {b.get('text')}"))
    return found


def _state_column(name: str, what: str, old: Plan | None, new: Plan | None) -> list[Change]:
    if old is None or new is None:
        added = (
            f"has a new {what} {new['expression']}"
            if new
            else f"no longer has the {what} {old and old['expression']}"
        )
        return [Change("breaks", f"{name} {added}: the state does not hold it")]
    if old["type"] != new["type"]:
        return [
            Change(
                "breaks",
                f"{name}: the {what} {old['expression']} ({old['type']}) became {new['expression']} ({new['type']})",
            )
        ]
    if old["expression"] != new["expression"]:
        return [
            Change(
                "breaks",
                f"{name}: the {what} {old['expression']} became {new['expression']}; Spark would go on with the old state "
                "under the new meaning",
            )
        ]
    return []


def _watermarks(old: Sequence[Plan], new: Sequence[Plan]) -> list[Change]:
    before, after = {w["column"]: w["delay"] for w in old}, {w["column"]: w["delay"] for w in new}
    found = []
    for column in sorted(before | after):
        a, b = before.get(column), after.get(column)
        if a == b:
            continue
        if a is None:
            found.append(
                Change(
                    "careful", f"a watermark on {column} ({b}) is new: rows behind it are late from now on"
                )
            )
        elif b is None:
            found.append(
                Change("careful", f"the watermark on {column} ({a}) is gone: state is no longer given up")
            )
        else:
            found.append(
                Change(
                    "safe",
                    f"the watermark on {column} is {b}, it was {a}: it counts for what arrives from now on",
                )
            )
    return found


def _mode(old: Plan, new: Plan) -> list[Change]:
    a, b = old["output"]["mode"], new["output"]["mode"]
    if a == b:
        return []
    if not new["stateful"]:
        return [Change("safe", f"the mode is {b}, it was {a}; without state they are the same")]
    if "complete" in (a, b):
        return [
            Change(
                "breaks",
                f"the mode was {a} and is {b}: complete keeps all groups, the others give up those behind the watermark",
            )
        ]
    return [
        Change(
            "careful",
            f"the mode is {b}, it was {a}: groups that are open now may be written once more, or again",
        )
    ]


def _output(old: Plan, new: Plan) -> list[Change]:
    if old["format"] != new["format"]:
        return [Change("careful", f"results go to {new['format']} from now on, they went to {old['format']}")]
    found = []
    if old.get("target") != new.get("target"):
        found.append(
            Change(
                "careful", f"results go to {new.get('target')} from now on, they went to {old.get('target')}"
            )
        )
    if old.get("partition_by") != new.get("partition_by"):
        level: Level = "breaks" if old.get("target") == new.get("target") else "careful"
        found.append(
            Change(
                level,
                f"files were partitioned by {_names(old.get('partition_by'))} and now by {_names(new.get('partition_by'))}: "
                "a directory has one way",
            )
        )
    return found


def _columns(old: Plan, new: Plan) -> list[Change]:
    before, after = dict(old["columns"]), dict(new["columns"])
    files = new["output"]["format"] in FILES
    found = []
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        if a is None:
            found.append(Change("safe", f"results have a new column {name} ({b}); older ones do not"))
        elif b is None:
            found.append(Change("careful", f"results no longer have the column {name}"))
        elif files:
            found.append(
                Change(
                    "careful",
                    f"the column {name} was {a} and is {b}: files of both kinds are in one directory",
                )
            )
        else:
            found.append(
                Change("careful", f"the column {name} was {a} and is {b}: see that the target takes it")
            )
    return found


def _state(old: Plan, new: Plan) -> list[Change]:
    if not new["stateful"] or not old["stateful"]:
        return []
    a, b = old.get("state", {}), new.get("state", {})
    found = []
    if a.get("provider") != b.get("provider"):
        found.append(
            Change(
                "breaks",
                f"the state store was {_short(a.get('provider'))} and is {_short(b.get('provider'))}: it cannot be read",
            )
        )
    if a.get("partitions") != b.get("partitions"):
        found.append(
            Change(
                "careful",
                f"spark.sql.shuffle.partitions = {b.get('partitions')} has no effect: the state has {a.get('partitions')} parts, "
                "and the checkpoint decides",
            )
        )
    return found


def _kinds(operators: Sequence[Plan]) -> str:
    return ", ".join(o["kind"] for o in operators) or "nothing"


def _differences(old: Plan, new: Plan) -> str:
    return ", ".join(
        f"{k} {old.get(k, _NO_KEYS)} → {new.get(k, _NO_KEYS)}"
        for k in sorted(old.keys() | new.keys())
        if old.get(k) != new.get(k)
    )


def _names(columns: Sequence[str] | None) -> str:
    return ", ".join(columns or ()) or "nothing"


def _short(name: str | None) -> str:
    return re.sub(r".*\.", "", name or "unknown")


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
