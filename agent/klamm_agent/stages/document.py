"""ECS documents from the fields that stages found, with a part that all documents share. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, Final

import orjson

from klamm_agent.stages.parse.fields import Document, merge
from klamm_agent.stages.staged import StagedEvents
from klamm_agent.stages.timestamps import stamp

_NESTED_TOO_DEEPLY: Final = "cannot be written as JSON: {}"


class Documents:
    """A maker of record values. `base` is in every document (host, agent, the input's fields); an event's own fields win."""

    def __init__(self, base: Mapping[str, Any], *, original: bool = False) -> None:
        self._base = dict(base)
        self._names = frozenset(base)
        self._written = {name: orjson.Fragment(orjson.dumps(value)) for name, value in base.items()}
        self._original = original

    def build(self, staged: StagedEvents) -> list[bytes]:
        """Returns the values for a block's events."""
        documents = list(self._documents(staged))
        try:
            return list(map(orjson.dumps, documents))
        except TypeError:  # orjson refuses an object that is nested too deeply
            return [self._one(d, text, staged) for d, text in zip(documents, staged.texts, strict=True)]

    def _documents(self, staged: StagedEvents) -> Iterable[Document]:
        stamps = self._stamps(staged)
        path = orjson.Fragment(orjson.dumps({"path": staged.path.encode(errors="replace").decode()}))
        offsets: Iterable[int | None] = staged.offsets or repeat(None, len(staged.docs))
        for doc, text, time, offset, bare in zip(
            staged.docs, staged.texts, stamps, offsets, staged.bare, strict=True
        ):
            found: Document = {"@timestamp": time}
            if not bare or "message" in doc:
                found["message"] = text
            found.update(doc)
            if offset is not None:
                log = found.get("log")
                if type(log) is dict:
                    log["file"], log["offset"] = path, offset
                else:
                    if log is not None:
                        merge(found, {"labels": {"log": log}})
                    found["log"] = {"file": path, "offset": offset}
            if self._original:
                merge(found, {"event": {"original": text}})
            if self._names.isdisjoint(found):
                found.update(self._written)
            else:
                found = self._merged(found)
            found["@timestamp"] = time
            yield found

    def _merged(self, found: Document) -> Document:
        """Merges the base into a document that has names of it; lists of tags are joined."""
        common = [n for n in self._names if n in found]
        if all(self._joins(n, found) for n in common):
            return {**self._written, **found, **{n: {**self._base[n], **found[n]} for n in common}}
        full: Document = {n: copy.deepcopy(self._base[n]) for n in common}
        tags = full.pop("tags", None)
        merge(full, {n: found.pop(n) for n in common if n != "tags"})
        if "agent" in full:  # an event does not say which agent sends it
            merge(full, {"agent": self._base["agent"]})
        if isinstance(tags, list) and isinstance(found.get("tags"), list):
            found["tags"] = [*tags, *(t for t in found["tags"] if t not in tags)]
        if isinstance(labels := found.get("labels"), dict) and isinstance(full.get("labels"), dict):
            merge(full["labels"], labels)
        rest = {n: value for n, value in self._written.items() if n not in found and n not in full}
        return found | full | rest

    def _joins(self, name: str, found: Document) -> bool:
        """Tells whether an event's object shares no name with the base's: then the two need no merging."""
        ours, theirs = self._base[name], found[name]
        return type(ours) is dict and type(theirs) is dict and ours.keys().isdisjoint(theirs)

    @staticmethod
    def _stamps(staged: StagedEvents) -> list[str]:
        known = staged.times
        read = stamp(round(staged.at, 3))
        if known is None:
            return [read if s is None else stamp(s) for s in staged.seconds]
        return [stamp(t if s is None else s) for s, t in zip(staged.seconds, known, strict=True)]

    def _one(self, document: Document, text: str, staged: StagedEvents) -> bytes:
        try:
            return orjson.dumps(document)
        except TypeError as e:
            plain: Document = {
                "@timestamp": document["@timestamp"],
                "message": text,
                "error": {"message": _NESTED_TOO_DEEPLY.format(e), "type": "json"},
                "tags": ["_jsonparsefailure"],
            }
            if isinstance(log := document.get("log"), dict) and "offset" in log:
                plain["log"] = {"file": log["file"], "offset": log["offset"]}
            return orjson.dumps({**self._written, **plain})
