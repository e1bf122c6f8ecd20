"""The result of a comparison, as text and as JSON."""

from __future__ import annotations

from typing import Any

from klamm.reconcile.compare import Comparison, Document, Duplicate, SourceLine, Unread

KINDS = {
    "missing": "source lines that are not in the target",
    "duplicates": "ids that more than one document has",
    "unexpected": "documents whose id no source line has",
    "repeated": "source lines whose id an earlier line has",
    "lines_without_id": "source lines without an id",
    "documents_without_id": "documents without an id",
    "unread": "bytes of source files that were gone before they were read",
}


def as_dict(result: Comparison) -> dict[str, Any]:
    """Return the report for `--output json`: counts, and the first differences of each kind."""
    return {
        "complete": result.complete,
        "source_lines": result.source_lines,
        "delivered": result.delivered,
        "unparsed": result.unparsed,
        "excused": dict(result.excused),
        "documents": result.documents,
        "later_lines": result.later_lines,
        "documents_of_later_lines": result.of_later_lines,
        **{kind: listing.count for kind, listing in result.differences.items()},
        "listed": {
            kind: [item._asdict() for item in listing.items]
            for kind, listing in result.differences.items()
            if listing.count
        },
    }


def as_text(result: Comparison) -> list[str]:
    """Return lines to print."""
    counts = {
        "source lines": result.source_lines,
        "delivered": result.delivered,
        "  of these unparsed": result.unparsed,
        **dict(sorted(result.excused.items())),
        "documents": result.documents,
        **({"  of later lines": result.of_later_lines} if result.later_lines else {}),
        **{kind.replace("_", " "): listing.count for kind, listing in result.differences.items()},
    }
    lines = [f"{name:<22}{count:>12,}" for name, count in counts.items()]
    for kind, listing in result.differences.items():
        if listing.count and kind not in result.ignored:
            lines += ["", f"{KINDS[kind]} ({listing.count:,}{_first(listing.count, len(listing.items))}):"]
            lines += [f"  {item(i)}" for i in listing.items]
    return lines


def _first(count: int, listed: int) -> str:
    return "" if listed == count else f", the first {listed}"


def item(found: SourceLine | Document | Duplicate | Unread) -> str:
    """Return one line, document or duplicate as a line of text."""
    match found:
        case SourceLine(id, file, offset):
            return f"{id or '(no id)'}  {file} at byte {offset}"
        case Document(id, key):
            return f"{id or '(no id)'}  {key}"
        case Duplicate(id, keys):
            return f"{id}  {', '.join(keys)}"
        case Unread(file, start, end):
            return f"{file}, bytes {start} to {end}"
