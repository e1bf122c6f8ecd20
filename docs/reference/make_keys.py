"""Writes docs/reference/mirror-keys.md and original-keys.md: every key of the originals of our connectors with its verdict.

`./dev docs` runs it. Tests compare the pages with the tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MIRROR_PAGE = ROOT / "docs/reference/mirror-keys.md"
MIRROR_TABLE = ROOT / "mirror/klamm_mirror/settings/mm2_keys.json"
MIRROR_HEAD = """# MirrorMaker 2's keys

Made by `./dev docs` from `mirror/klamm_mirror/settings/mm2_keys.json`, whose keys come from the jars of Kafka 4.3.1. *Honoured*: has MirrorMaker's
effect. *Refused*: would change results in a way that the mirror does not have, so the file ends with exit code 2 and the
connector with an error. *Warned*: has no effect here; a warning names the key. Values in brackets need neither. How keys
and prefixes combine: [the mirror](../mirror.md#keys).
"""
KAFKAS = "Kafka's"
MIRROR_TITLES = {
    "file": "Of the file: `KEY`",
    "connector": "Of connectors: `KEY` in JSON, `A->B.KEY` or `KEY` in the file",
    "worker": "Of workers: `B.KEY`",
    "common": "Of all clients: `A.KEY`, `KEY`, behind any prefix below",
    "consumer": "Of the consumer: `A.consumer.KEY`, `A->B.source.consumer.KEY`, `A->B.consumer.KEY`",
    "producer": "Of the producer: `B.producer.KEY`, `A->B.target.producer.KEY`, `A->B.producer.KEY`, `A->B.producer.override.KEY`",
    "admin": "Of admin clients: `A.admin.KEY`, `A->B.source.admin.KEY`, `A->B.target.admin.KEY`, `A->B.admin.KEY`",
}


DEFAULT_CHARS = 400
CONNECTORS_PAGE = ROOT / "docs/reference/original-keys.md"
CONNECTORS = ROOT / "connectors/klamm_connectors"
TRANSFORMS = ROOT / "plugins/klamm_plugins/transforms"
CONNECTORS_HEAD = """# Keys of the connectors and transforms whose names ours take

Made by `./dev docs` from the tables `original_keys.json` of the connectors and of Debezium's transforms, whose keys come from the originals' own definitions. *Honoured*: has
the original's effect; the last column says where the default differs. *Refused*: would change results in a way that the connector here does not
have, so the configuration is an error. *Warned*: has no effect here, and changes no results; a warning names the key. Values in brackets need
neither. A `*` stands for a name that users choose. Keys in no table are typos, and get a warning, too. Keys of our own are in
[connectors](connectors.md), those of the mirror in [mirror keys](mirror-keys.md).
"""
CONNECTORS_TITLES = {
    CONNECTORS / "mysql": ("Debezium 3.6.1.Final, MySQL and MariaDB", {"common": "", "mariadb": "MariaDB"}),
    TRANSFORMS / "debezium": (
        "Debezium's transforms 3.6.1.Final, and of 3.5.0.Final Filter and ContentBasedRouter",
        {
            f"{name}{part}": name + (part and ": keys of earlier versions, and of the connector's")
            for name in (
                "ExtractNewRecordState",
                "ByLogicalTableRouter",
                "EventRouter",
                "Filter",
                "ContentBasedRouter",
            )
            for part in ("", ".further")
        },
    ),
    CONNECTORS / "sql": ("Confluent's JDBC sink 10.9.7", {"common": ""}),
    CONNECTORS / "elasticsearch": ("Confluent's Elasticsearch sink 15.1.3", {"common": ""}),
    CONNECTORS / "file": (
        "FileStreamSource and FileStreamSink of Kafka 4.3.1",
        {"source": "source", "sink": "sink"},
    ),
}
FURTHER = {"further": "families of keys, and keys of earlier versions"}


def main() -> None:
    MIRROR_PAGE.write_text(mirror_page(), "utf-8")
    CONNECTORS_PAGE.write_text(connectors_page(), "utf-8")


def mirror_page() -> str:
    """Returns the mirror's page as Markdown."""
    table = json.loads(MIRROR_TABLE.read_text("utf-8"))
    parts = [MIRROR_HEAD]
    for space, title in MIRROR_TITLES.items():
        parts.append(f"\n## {title}\n\n{_head(KAFKAS)}")
        parts += [_row(name, *row) for name, row in table[space].items()]
    return "".join(parts)


def connectors_page() -> str:
    """Returns the page of all other connectors, and of transforms, as Markdown."""
    parts = [CONNECTORS_HEAD]
    for folder, (title, spaces) in CONNECTORS_TITLES.items():
        table = json.loads((folder / "original_keys.json").read_text("utf-8"))
        parts.append(f"\n## {title}\n")
        for space, name in (spaces | FURTHER).items():
            if space in table:
                parts.append((f"\n### {name[0].upper()}{name[1:]}\n\n" if name else "\n") + _head("its"))
                parts += [_row(key, *row) for key, row in table[space].items()]
    return "".join(parts)


def _head(whose: str) -> str:
    return f"| key | {whose} default | verdict | why |\n|---|---|---|---|\n"


def _row(name: str, _kind: str, default: str, verdict: str, why: str = "", fine: Any = ()) -> str:
    shown = (
        f"`{default}`"
        if default not in {"", "null", "required"}
        else default
        if default == "required"
        else ""
    )
    bracket = f" ({', '.join(f'`{value}`' for value in fine)})" if fine else ""
    if len(shown) > DEFAULT_CHARS:
        shown = "(long)"
    return f"| `{name}` | {shown.replace('|', chr(92) + '|')} | {verdict}{bracket} | {why} |\n"


if __name__ == "__main__":
    main()
