"""The meaning of the server's answer to a bulk request, for each of its documents. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import orjson

from klamm_connectors.elasticsearch.buffer import Document, Part, one_by_one

_NO_ERRORS: Final = re.compile(rb'^\{\s*("took"\s*:\s*\d+\s*,\s*)?"errors"\s*:\s*false')
_MALFORMED: Final = frozenset(
    {
        "strict_dynamic_mapping_exception",
        "mapper_parsing_exception",
        "document_parsing_exception",
        "illegal_argument_exception",
        "action_request_validation_exception",
        "invalid_index_name_exception",
    }
)
_BUSY: Final = frozenset({"es_rejected_execution_exception", "circuit_breaking_exception"})
_BLOCKED: Final = "cluster_block_exception"  # read-only indices of a full disk, a cluster without a master
_REASON_MAX: Final = 1000
_SIZES: Final = re.compile(r"(?:coordinating|primary)_operation_bytes=(\d+), max_\w+=(\d+)")


class Kind(Enum):
    """The outcome of sending a document."""

    DONE = "done"
    BUSY = "busy"
    """The document is sent again. The attempt does not count."""
    BLOCKED = "blocked"
    """The document is sent again. The attempt does not count; the server accepts no writes at the moment."""
    PASSING = "passing"
    """The document is sent again, up to `max.retries` times."""
    MALFORMED = "malformed"
    """The server refuses the document itself."""
    FAILED = "failed"
    """The task cannot continue."""


@dataclass(slots=True)
class Verdicts:
    """Documents by outcome. `reason` is the first error of the gravest kind."""

    done: list[Part] = field(default_factory=list)
    again: list[Document] = field(default_factory=list)
    malformed: list[tuple[Document, str]] = field(default_factory=list)
    conflicts: list[tuple[Document, str, str]] = field(default_factory=list)
    """Those documents of `done` that the server had already, each with its action and the server's reason."""
    failed: str | None = None
    busy: str | None = None
    blocked: str | None = None
    passing: str | None = None


def judge_item(item: dict[str, Any]) -> tuple[Kind, str]:
    """Judges one entry of `items`, such as `{"index": {"status": 201, …}}`."""
    action, result = next(iter(item.items()))
    status = result.get("status", 0)
    error = result.get("error")
    if error is None:
        return Kind.DONE, ""  # also a delete that found nothing (404)
    kind = error.get("type", "") if isinstance(error, dict) else ""
    reason = f"{kind}: {_reason(error)} (status {status})"
    if status == 429 or kind in _BUSY:
        return Kind.BUSY, reason
    if status == 409:
        # The server has this version already, or `create` made the document before. Usually we wrote it earlier, see
        # conflicts.py. Only an update can succeed when it is sent again.
        return (Kind.PASSING, reason) if action == "update" else (Kind.DONE, reason)
    if kind == _BLOCKED:
        return Kind.BLOCKED, reason
    if kind in _MALFORMED or (status == 400 and kind != "index_closed_exception"):
        return Kind.MALFORMED, reason
    if status >= 500:
        return Kind.PASSING, reason
    return Kind.FAILED, reason


def _reason(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)[:_REASON_MAX]
    text = str(error.get("reason"))
    cause = error.get("caused_by")
    if isinstance(cause, dict):
        text += f"; caused by {cause.get('type')}: {cause.get('reason')}"
    return text[:_REASON_MAX]


def judge(parts: Sequence[Part], answer: bytes, max_retries: int) -> Verdicts:
    """Judges the answer (status 200) to a request with these documents, and counts their attempts.

    When a document must be sent again, all later documents with its id are sent again too, whatever their
    outcome: their changes must be applied last. A document that holds the bytes of the topic is sent again, once, as its
    converted value when the server refuses it: a reader of JSON may take what the server does not, such as a name twice.
    """
    if _NO_ERRORS.match(answer):
        return Verdicts(done=list(parts))
    found, documents = Verdicts(), one_by_one(parts)
    items = _items(answer, len(documents))
    if isinstance(items, str):
        found.failed = items
        return found
    ids_again: set[str] = set()
    for document, item in zip(documents, items, strict=True):
        kind, reason = judge_item(item)
        if document.id is not None and document.id in ids_again:
            found.again.append(document)
            continue
        match kind:
            case Kind.DONE:
                found.done.append(document)
                if reason:
                    found.conflicts.append((document, next(iter(item)), reason))
            case Kind.MALFORMED if not document.rewrite():
                found.malformed.append((document, reason))
            case Kind.FAILED:
                found.failed = found.failed or f"{where(document)}: {reason}"
            case Kind.PASSING if document.attempts >= max_retries:
                tried = f"after {document.attempts + 1} attempts (max.retries)"
                found.failed = found.failed or f"{where(document)}: {reason}, {tried}"
            case _:
                if kind is not Kind.MALFORMED:
                    _note(found, kind, reason)
                document.attempts += kind is Kind.PASSING
                found.again.append(document)
                if document.id is not None:
                    ids_again.add(document.id)
    return found


def _note(found: Verdicts, kind: Kind, reason: str) -> None:
    if kind is Kind.BUSY:
        found.busy = found.busy or reason
    elif kind is Kind.BLOCKED:
        found.blocked = found.blocked or reason
    else:
        found.passing = found.passing or reason


def _items(answer: bytes, count: int) -> list[dict[str, Any]] | str:
    try:
        items = orjson.loads(answer)["items"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return f"the answer to a bulk request is not Elasticsearch's: {answer[:200]!r}"
    if len(items) != count:
        return f"the answer to a bulk request of {count} documents has {len(items)} items"
    return list(items)


def is_servers(answer: bytes) -> bool:
    """Returns True when Elasticsearch itself wrote this error, and not a proxy in front of it."""
    try:
        return isinstance(orjson.loads(answer)["error"], (dict, str))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def never_fits(reason: str) -> bool:
    """Returns True when the server refused a request (429) because it exceeds all the memory that the server has
    for requests.
    """
    found = _SIZES.search(reason)
    return found is not None and int(found[1]) > int(found[2])


def where(document: Document) -> str:
    """Names the record behind a document, for use in a sentence."""
    return f"{document.record.where} for index {document.index}"
