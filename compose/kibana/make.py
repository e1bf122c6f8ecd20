# ruff: noqa: INP001 - a script, not a package
"""Writes `logs.ndjson`, saved objects for Kibana 8, from the tables below: `python compose/kibana/make.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Json = dict[str, Any]

LOGS, STATISTICS = "klamm-logs", "klamm-log-statistics"
DATA_VIEWS = {LOGS: ("logs-*-compose", "Logs"), STATISTICS: ("log-statistics", "Log statistics")}
VERSIONS = {"index-pattern": "8.0.0", "search": "8.0.0", "visualization": "8.5.0", "dashboard": "8.9.0"}
"""Of the form in which objects of a type are written here; a newer Kibana migrates them."""


def metric(kind: str, field: str | None = None, label: str | None = None) -> Json:
    params = {"field": field} if field else {}
    return {"type": kind, "schema": "metric", "params": params | ({"customLabel": label} if label else {})}


def over_time(interval: str = "auto") -> Json:
    params = {"field": "@timestamp", "interval": interval, "min_doc_count": 0}
    return {"type": "date_histogram", "schema": "segment", "params": params}


def terms(field: str, schema: str = "group", size: int = 10) -> Json:
    return {
        "type": "terms",
        "schema": schema,
        "params": {"field": field, "size": size, "order": "desc", "orderBy": "1", "missingBucket": False},
    }


# id → title, kind, data view, query, aggregations
VISUALIZATIONS: dict[str, tuple[str, str, str, str, list[Json]]] = {
    "lines": ("Lines by service", "histogram", LOGS, "", [metric("count"), over_time(), terms("service.name")]),
    "errors": ("Errors by service", "histogram", LOGS, "http.response.status_code >= 500 or log.level : (ERROR or FATAL or CRITICAL or error or crit)", [metric("count"), over_time(), terms("service.name")]),
    "statuses": ("Answers by status", "pie", LOGS, "http.response.status_code : *", [metric("count"), terms("http.response.status_code", "segment")]),
    "levels": ("Lines by level", "pie", LOGS, "log.level : *", [metric("count"), terms("log.level", "segment")]),
    "rate": ("Error rate by service", "line", STATISTICS, "", [metric("max", "error_rate", "error rate"), over_time("1m"), terms("service.name")]),
    "p99": ("p99 by service, ms", "line", STATISTICS, "", [metric("max", "p99_ms", "p99, ms"), over_time("1m"), terms("service.name")]),
    "paths": ("Requests by path", "table", LOGS, "url.original : *", [metric("count"), terms("url.original", "bucket", 20)]),
    "browsers": ("User agents", "pie", LOGS, "user_agent.name : *", [metric("count"), terms("user_agent.name", "segment")]),
}  # fmt: skip

# id → title, query, columns
SEARCHES: dict[str, tuple[str, str, list[str]]] = {
    "newest": ("Newest lines", "", ["service.name", "log.level", "message"]),
    "unparsed": ("Lines that no format takes", "error.message : *", ["message", "error.message"]),
}  # fmt: skip

LAYOUT = [
    ("visualization", "lines"), ("visualization", "errors"), ("visualization", "rate"), ("visualization", "p99"),
    ("visualization", "statuses"), ("visualization", "levels"), ("visualization", "browsers"), ("visualization", "paths"),
    ("search", "newest"), ("search", "unparsed"),
]  # fmt: skip


def saved(kind: str, name: str, attributes: Json, references: list[Json]) -> Json:
    return {
        "id": name, "type": kind, "attributes": attributes, "references": references,
        "coreMigrationVersion": "8.8.0", "typeMigrationVersion": VERSIONS[kind],
    }  # fmt: skip


def source(query: str) -> Json:
    """What an object searches; the data view is its first reference."""
    given = {
        "query": {"query": query, "language": "kuery"}, "filter": [],
        "indexRefName": "kibanaSavedObjectMeta.searchSourceJSON.index",
    }  # fmt: skip
    return {"searchSourceJSON": json.dumps(given)}


def view(name: str) -> list[Json]:
    return [{"id": name, "name": "kibanaSavedObjectMeta.searchSourceJSON.index", "type": "index-pattern"}]


def visualization(name: str) -> Json:
    title, kind, data_view, query, aggregations = VISUALIZATIONS[name]
    state = {
        "title": title, "type": kind, "params": {"type": kind, "addTooltip": True, "addLegend": True, "legendPosition": "right"},
        "aggs": [{"id": str(n), "enabled": True} | each for n, each in enumerate(aggregations, 1)],
    }  # fmt: skip
    attributes = {
        "title": title, "description": "", "version": 1, "uiStateJSON": "{}",
        "visState": json.dumps(state), "kibanaSavedObjectMeta": source(query),
    }  # fmt: skip
    return saved("visualization", f"klamm-{name}", attributes, view(data_view))


def search(name: str) -> Json:
    title, query, columns = SEARCHES[name]
    attributes = {
        "title": title, "description": "", "columns": columns, "sort": [["@timestamp", "desc"]],
        "kibanaSavedObjectMeta": source(query),
    }  # fmt: skip
    return saved("search", f"klamm-{name}", attributes, view(LOGS))


def dashboard() -> Json:
    panels, references = [], []
    for n, (kind, name) in enumerate(LAYOUT):
        wide = kind == "search"
        place = {
            "x": 0 if wide else 24 * (n % 2),
            "y": 15 * (n // 2),
            "w": 48 if wide else 24,
            "h": 15,
            "i": str(n),
        }
        if wide:
            place["y"] = 15 * (len(VISUALIZATIONS) // 2 + n - len(VISUALIZATIONS))
        panels.append(
            {"type": kind, "gridData": place, "panelIndex": str(n), "embeddableConfig": {}, "panelRefName": f"panel_{n}"}
        )  # fmt: skip
        references.append({"id": f"klamm-{name}", "name": f"{n}:panel_{n}", "type": kind})
    attributes = {
        "title": "Klamm logs", "description": "What the log pipeline has brought.", "version": 1,
        "panelsJSON": json.dumps(panels), "optionsJSON": json.dumps({"useMargins": True, "hidePanelTitles": False}),
        "timeRestore": True, "timeFrom": "now-30m", "timeTo": "now", "refreshInterval": {"pause": False, "value": 10_000},
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps({"query": {"query": "", "language": "kuery"}, "filter": []})},
    }  # fmt: skip
    return saved("dashboard", "klamm-logs-dashboard", attributes, references)


def objects() -> list[Json]:
    views = [
        saved("index-pattern", name, {"title": pattern, "name": label, "timeFieldName": "@timestamp"}, [])
        for name, (pattern, label) in DATA_VIEWS.items()
    ]
    return [*views, *map(visualization, VISUALIZATIONS), *map(search, SEARCHES), dashboard()]


def text() -> str:
    """The file's content."""
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects())


if __name__ == "__main__":
    (HERE / "logs.ndjson").write_text(text())
