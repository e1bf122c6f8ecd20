"""The schema file beside a checkpoint: as rows for people, and with later differences adopted. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from klamm_spark.schema_drift import Type, columns, ddl, merged, merged_all


def rows(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns fields by topic, then the differences from the schema."""
    answer = []
    for topic, one in kept.get("topics", {}).items():
        for name, kind in one["type"]["struct"].items():
            answer.append({"topic": topic, "field": name, "type": ddl(kind), "drift": None, "count": None})
    if not kept.get("topics"):
        answer.append({"topic": "*", "field": None, "type": kept.get("schema"), "drift": None, "count": None})
    for topic, drift in kept.get("drift", {}).items():
        for entry in drift["found"]:
            was = f" (was {entry['was']})" if entry["was"] else ""
            answer.append(
                {
                    "topic": topic,
                    "field": entry["field"],
                    "type": entry["now"],
                    "drift": entry["kind"] + was,
                    "count": entry["count"],
                }
            )
    return answer


def adopted(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the file with new fields and wider types in the topics' schemas. Missing fields stay in them."""
    answer = copy.deepcopy(dict(kept))
    for topic, drift in answer.pop("drift", {}).items():
        one = answer["topics"].setdefault(topic, {"type": {"struct": {}}, "documents": 0})
        for entry in drift["found"]:
            if "seen" in entry:
                one["type"] = merged(one["type"], _at(entry["field"], entry["seen"]))
        one["schema"] = columns(one["type"])
    answer["schema"] = columns(merged_all(t["type"] for t in answer["topics"].values()))
    return answer


def _at(path: str, kind: Type) -> Type:
    """Returns a document type that has nothing but `kind` at a path (`a.b[].c`)."""
    parts: list[str] = []
    for name in path.split("."):
        plain = name.rstrip("[]")
        parts += [plain] + ["[]"] * ((len(name) - len(plain)) // 2)
    for part in reversed(parts):
        kind = {"array": kind} if part == "[]" else {"struct": {part: kind}}
    return kind
