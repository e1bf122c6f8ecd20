"""Writes docs/reference/mirror-keys.md: every key of MirrorMaker 2 with its verdict.

`./dev docs` runs it. A test compares the page with the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/mirror-keys.md"
TABLE = ROOT / "mirror/klamm_mirror/settings/mm2_keys.json"
HEAD = """# MirrorMaker 2's keys

Made by `./dev docs` from `mirror/klamm_mirror/settings/mm2_keys.json`, whose keys come from the jars of Kafka 4.3.1. *Honoured*: has MirrorMaker's
effect. *Refused*: would change results in a way that the mirror does not have, so the file ends with exit code 2 and the
connector with an error. *Warned*: has no effect here; a warning names the key. Values in brackets need neither. How keys
and prefixes combine: [the mirror](../mirror.md#keys).
"""
TITLES = {
    "file": "Of the file: `KEY`",
    "connector": "Of connectors: `KEY` in JSON, `A->B.KEY` or `KEY` in the file",
    "worker": "Of workers: `B.KEY`",
    "common": "Of all clients: `A.KEY`, `KEY`, behind any prefix below",
    "consumer": "Of the consumer: `A.consumer.KEY`, `A->B.source.consumer.KEY`, `A->B.consumer.KEY`",
    "producer": "Of the producer: `B.producer.KEY`, `A->B.target.producer.KEY`, `A->B.producer.KEY`, `A->B.producer.override.KEY`",
    "admin": "Of admin clients: `A.admin.KEY`, `A->B.source.admin.KEY`, `A->B.target.admin.KEY`, `A->B.admin.KEY`",
}


def main() -> None:
    PAGE.write_text(page(), "utf-8")


def page() -> str:
    """Returns the whole page as Markdown."""
    table = json.loads(TABLE.read_text("utf-8"))
    parts = [HEAD]
    for space, title in TITLES.items():
        parts.append(f"\n## {title}\n\n| key | Kafka's default | verdict | why |\n|---|---|---|---|\n")
        parts += [_row(name, *row) for name, row in table[space].items()]
    return "".join(parts)


def _row(name: str, _kind: str, default: str, verdict: str, why: str = "", fine: Any = ()) -> str:
    shown = (
        f"`{default}`"
        if default not in {"", "null", "required"}
        else default
        if default == "required"
        else ""
    )
    bracket = f" ({', '.join(f'`{value}`' for value in fine)})" if fine else ""
    return f"| `{name}` | {shown.replace('|', chr(92) + '|')} | {verdict}{bracket} | {why} |\n"


if __name__ == "__main__":
    main()
