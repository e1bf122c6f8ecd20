"""The objects for Kibana: every reference has its object, and the log job writes every field."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

COMPOSE = Path(__file__).parents[2] / "compose"
FILE = COMPOSE / "kibana/logs.ndjson"


@pytest.fixture(scope="module")
def objects() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def test_the_file_is_what_the_tables_say():
    spec = importlib.util.spec_from_file_location("make_kibana", COMPOSE / "kibana/make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert FILE.read_text() == make.text(), "run compose/kibana/make.py"


def test_references_lead_somewhere(objects):
    there = {(o["type"], o["id"]) for o in objects}
    assert len(there) == len(objects)
    for each in objects:
        assert {(r["type"], r["id"]) for r in each["references"]} <= there
        meta = each["attributes"].get("kibanaSavedObjectMeta", {})
        named = json.loads(meta.get("searchSourceJSON", "{}")).get("indexRefName")
        assert named is None or named in {r["name"] for r in each["references"]}


def test_the_dashboard_shows_everything_once(objects):
    (dashboard,) = [o for o in objects if o["type"] == "dashboard"]
    panels = json.loads(dashboard["attributes"]["panelsJSON"])
    named = {r["name"]: r["id"] for r in dashboard["references"]}
    shown = [named[f"{p['panelIndex']}:{p['panelRefName']}"] for p in panels]
    assert sorted(shown) == sorted(o["id"] for o in objects if o["type"] in {"visualization", "search"})
    squares = [
        (x, y)
        for p in panels
        for x in range(p["gridData"]["x"], p["gridData"]["x"] + p["gridData"]["w"])
        for y in range(p["gridData"]["y"], p["gridData"]["y"] + p["gridData"]["h"])
    ]
    assert len(set(squares)) == len(squares), "panels lie over each other"
    assert max(x for x, _ in squares) < 48


def test_data_views_match_what_the_job_writes_to(objects):
    from klamm_spark import pipeline

    job = pipeline.load(COMPOSE / "config/pipeline.toml")
    patterns = {o["attributes"]["title"] for o in objects if o["type"] == "index-pattern"}
    outputs = {o.name: o.options for o in job.outputs}
    assert patterns == {outputs["documents"]["template.patterns"], outputs["statistics"]["index"]}


def test_fields_are_those_of_the_job(objects):
    from klamm_base.grok import expand
    from klamm_spark import pipeline

    options = pipeline.load(COMPOSE / "config/pipeline.toml").query.options
    fields = {f.name for each in options["formats"] for f in expand(each["pattern"]).fields}
    fields |= {
        "@timestamp",
        "message",
        "error.message",
        "user_agent.name",
        "log.level",
        "error_rate",
        "p99_ms",
    }
    asked = set()
    for each in objects:
        attributes = each["attributes"]
        for aggregation in json.loads(attributes.get("visState", "{}")).get("aggs", ()):
            asked |= {aggregation["params"][k] for k in ("field",) if k in aggregation["params"]}
        asked |= set(attributes.get("columns", ()))
        source = json.loads(attributes.get("kibanaSavedObjectMeta", {}).get("searchSourceJSON", "{}"))
        asked |= set(re.findall(r"([\w.@]+) (?::|>=)", source.get("query", {}).get("query", "")))
    assert asked
    assert asked <= fields
