# ruff: noqa: INP001 - a script, not a package
"""Writes `dashboards/*.json` for Grafana from the tables in `panels/`: `python compose/grafana/make.py`.

A panel is a title, a unit and its queries with their legends; two stand side by side.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: tomllib.loads(file.read_text()) for file in sorted((HERE / "panels").glob("*.toml"))
}


def panel(number: int, title: str, unit: str, queries: list[list[str]]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 10, "showPoints": "never"}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": source, "expr": expr, "legendFormat": legend}
            for i, (expr, legend) in enumerate(queries)
        ],
    }


def dashboard(name: str) -> dict[str, Any]:
    table = DASHBOARDS[name]
    return {
        "uid": f"klamm-{name}",
        "title": table["dashboard"],
        "tags": ["klamm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "panels": [panel(i, **each) for i, each in enumerate(table["panels"])],
    }


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (HERE / "dashboards" / f"{each}.json").write_text(text(each))
