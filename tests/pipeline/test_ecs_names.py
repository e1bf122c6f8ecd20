"""The log agent and Spark's log job make the same ECS fields of a line: generated lines of every format that both know."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pipeline.test_log_job import run, spark_tests

from klamm_agent.config.inputs import read_input
from klamm_agent.config.values import Values
from klamm_agent.lanes.lane import Lane
from klamm_agent.stages.parse.fields import get
from klamm_base.ecs_names import IDS, LEVELS, NAMES, NUMBERS, TEXTS, TIMES, moved

COUNT = 200
FIELDS = ("@timestamp", "message", *dict.fromkeys(NAMES.values()))
WORDS = ("alpha", "Größe", "a/b", "x=1", "42", "true", "30", "it's")
OBJECTS = {to.partition(".")[0] for to in NAMES.values()}
AT = 1_767_261_605.0
"""The time when lines are read, as Spark's records say: a syslog line has no year."""


def time(rng: random.Random) -> str:
    day, second = rng.randint(1, 28), rng.randint(0, 59)
    zone = rng.choice(["Z", "+01:00", "-05:30", "+0200"])
    return f"2025-{rng.randint(1, 12):02d}-{day:02d}T0{rng.randint(0, 9)}:15:{second:02d}{rng.choice(['', '.5', ',250'])}{zone}"


def fields(rng: random.Random, *, typed: bool) -> dict[str, Any]:
    """Returns some names of the table, with values that fit and others; always a level, a service and a message, which Spark adds."""
    found: dict[str, Any] = {rng.choice(TIMES): time(rng)}
    some = {"level", "service", "msg", *rng.sample(sorted(NAMES), rng.randint(1, 9))}
    for name in rng.sample(sorted(some), len(some)):
        values: list[Any] = ["GET", rng.choice(WORDS), rng.choice(WORDS)]
        if name in NUMBERS:
            values = [str(rng.randint(0, 999)), "12ab" if rng.random() < 0.2 else "7"]
        if typed and name not in {"level", "service", "msg"}:
            values.append({"deep": 1})
            if name not in OBJECTS:  # a number there is in the way of ECS's object
                values += [rng.randint(0, 60), True, None, [1]]
        if typed and name == "level":
            values.append(rng.choice(list(LEVELS)))
        found[name] = rng.choice(values)
    for ecs in ("log.level", "user.name", "trace.id"):
        if rng.random() < 0.1:
            found[ecs] = "own"
    return found


def as_json(rng: random.Random) -> str:
    found = fields(rng, typed=True)
    if rng.random() < 0.2:
        found |= {"service": {"name": "nested"}, "span": {"id": "s1"}}
        found.pop("span_id", None)
    return json.dumps(found, ensure_ascii=rng.random() < 0.5)


def as_logfmt(rng: random.Random) -> str:
    return " ".join(f"{n}={json.dumps(v, ensure_ascii=False)}" for n, v in fields(rng, typed=False).items())


def as_access(rng: random.Random) -> str:
    at = datetime.fromtimestamp(AT - rng.randint(0, 10**7)).astimezone().strftime("%d/%b/%Y:%H:%M:%S %z")
    user, path = rng.choice(["-", "bob"]), rng.choice(["/", "/a?b=c", "/ü"])
    return f'10.0.0.{rng.randint(1, 9)} - {user} [{at}] "GET {path} HTTP/1.1" {rng.randint(200, 599)} {rng.randint(1, 9999)} "-" "curl/8"'


def as_syslog(rng: random.Random) -> str:
    at = f"{rng.choice(['Oct', 'Nov', 'Dec'])} {rng.randint(1, 28):2d} 09:01:{rng.randint(0, 59):02d}"
    return f"{at} web{rng.randint(1, 9)} sshd[{rng.randint(1, 99999)}]: {rng.choice(WORDS)} for {rng.choice(WORDS)}"


def as_own(rng: random.Random) -> str:
    number, status = rng.randint(0, 9), rng.choice(["200", "ok"])
    return f"{time(rng)} [{rng.choice(['INFO', '30', 'warn'])}] shop/{rng.choice(['main', 'w-1'])} {number} {status}: {rng.choice(WORDS)}"


GROK = "^%{NOTSPACE:ts} \\[%{WORD:level}\\] %{WORD:service}/%{NOTSPACE:thread} %{INT:pid} %{WORD:status}: %{GREEDYDATA:msg}$"
REGEX = r"^(?P<time>\S+) \[(?P<level>\w+)\] (?P<service>\w+)/(?P<host>\S+) (?P<id>\d+) (?P<status>\w+): (?P<message>.*)$"
FORMATS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "json": (as_json, {"type": "json"}, {"type": "json"}),
    "json at the top": (as_json, {"type": "json"}, {"type": "json", "target": ""}),
    "logfmt": (as_logfmt, {"type": "logfmt"}, {"type": "logfmt"}),
    "access log": (
        as_access,
        {"type": "grok", "pattern": "^%{COMBINEDAPACHELOG}"},
        {"type": "grok", "pattern": "^%{COMBINEDAPACHELOG}"},
    ),
    "syslog": (
        as_syslog,
        {"type": "grok", "pattern": "^%{SYSLOGLINE}"},
        {"type": "grok", "pattern": "^%{SYSLOGLINE}", "time": {"format": "SYSLOG"}},
    ),
    "grok": (as_own, {"type": "grok", "pattern": GROK}, {"type": "grok", "pattern": GROK}),
    "regex": (as_own, {"type": "regex", "pattern": REGEX}, {"type": "regex", "pattern": REGEX}),
}


def by_agent(lines: list[str], parse: dict[str, Any]) -> list[dict[str, Any]]:
    table = {"paths": ["/x"], "topic": "t", "format": "json", "parse": parse}
    lane = Lane(read_input(Values("test", "", Path("/")), table, ""), host="h", agent_id="a")
    records = lane.block("".join(f"{line}\n" for line in lines).encode(), 0, "/x", AT)
    return [{name: get(json.loads(v), name) for name in FIELDS} for v in records.values]


def shown(found: dict[str, Any]) -> dict[str, Any]:
    """Returns what a field says, without what only one of the two adds, and with milliseconds."""
    result = {name: value for name, value in found.items() if value is not None}
    at = datetime.fromisoformat(result["@timestamp"])
    result["@timestamp"] = at.isoformat(timespec="milliseconds")
    return result


class TestSame:
    pytestmark = spark_tests

    @pytest.mark.parametrize("name", FORMATS)
    def test_agent_and_spark_give_the_same_fields(self, spark: Any, name: str) -> None:
        make, parse, format_ = FORMATS[name]
        rng = random.Random(name)
        lines = [make(rng) for _ in range(COUNT)]
        documents = run(spark, list(lines), formats=[{"name": "it", **format_}], identity="record")
        ours = by_agent(lines, parse)
        assert len(ours) == len(documents) == COUNT
        for n, (line, mine) in enumerate(zip(lines, ours, strict=True)):
            theirs = {field: documents[f"logs-0-{n}"].get(field) for field in FIELDS}
            if mine["service.name"] is None:
                theirs["service.name"] = None  # the format's name
            if mine["log.level"] is None:
                theirs["log.level"] = None  # of the status
            assert shown(theirs) == shown(mine), line


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("host", "web1", ("host.hostname", "web1")),
        ("host", {"name": "web1"}, None),
        ("level", 30, ("log.level", "info")),
        ("level", "30", ("log.level", "info")),
        ("level", 31, None),
        ("level", True, None),
        ("status", "200", ("http.response.status_code", 200)),
        ("status", "ok", None),
        ("pid", -1, None),
        ("pid", 10**9, None),
        ("id", 7, ("event.id", "7")),
        ("id", None, None),
        ("message", "m", None),
    ],
)
def test_a_field_moves_when_its_value_fits(name: str, value: Any, found: tuple[str, Any] | None) -> None:
    assert moved(name, value) == found


def test_a_name_of_the_table_is_no_ecs_name() -> None:
    assert not set(NAMES) & set(NAMES.values())
    assert len(NAMES) == len(TEXTS) + len(NUMBERS) + len(IDS)
