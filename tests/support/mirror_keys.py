"""The table of MirrorMaker 2's keys (`klamm_mirror/settings/mm2_keys.json`), made from Kafka's jars.

    python tests/support/mirror_keys.py   # writes the table anew: new keys without a verdict, gone keys left out

Verdicts, reasons and values that are fine are kept. `klamm_mirror.settings.mm2_keys` cannot read a key without a verdict: write one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "mirror/klamm_mirror/settings/mm2_keys.json"
JAVA = Path(__file__).with_name("MirrorKeys.java")

Rows = dict[str, dict[str, list[Any]]]


def of_lines(text: str) -> Rows:
    """Returns type and default of each key by space and name. Keys that all spaces share are in `common` alone."""
    rows: Rows = {}
    for line in text.splitlines():
        space, name, kind, default = line.split("\t")
        rows.setdefault(space, {})[name] = [kind, default]
    common = rows["common"]
    return {
        space: {n: row for n, row in sorted(keys.items()) if space == "common" or n not in common}
        for space, keys in rows.items()
    }


def merged(found: Rows, table: Rows) -> Rows:
    """Returns Kafka's keys with the verdicts of the table."""
    return {
        space: {name: [*row, *table.get(space, {}).get(name, [])[2:]] for name, row in keys.items()}
        for space, keys in found.items()
    }


def as_text(table: Rows) -> str:
    """Returns JSON with a line for each key."""
    spaces = [
        f"{json.dumps(space)}: {{\n"
        + ",\n".join(f"  {json.dumps(n)}: {json.dumps(row, ensure_ascii=False)}" for n, row in keys.items())
        + "\n}"
        for space, keys in table.items()
    ]
    return "{\n" + ",\n".join(spaces) + "\n}\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.path.insert(0, str(ROOT / "tests"))
    from support import kafka_oracle

    lines = kafka_oracle.require().run(str(JAVA)).stdout
    TABLE.write_text(as_text(merged(of_lines(lines), json.loads(TABLE.read_text("utf-8")))), "utf-8")
