"""Faults of a job are known before Java starts: options, schema, SQL, function; one sentence with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.klamm import klamm

from klamm_base.errors import ConfigError
from klamm_base.toml_lines import TomlLines
from klamm_connectors.spark.sink.connector import SparkSinkConnector
from klamm_connectors.spark.source.connector import SparkSourceConnector
from klamm_spark.checks import check_function, check_schema, check_sql
from klamm_spark.pipeline import load, place_in

JOB = '''
[job]
name = "orders"
checkpoint = "cp"

[source]
topics = ["orders"]
bootstrap_servers = "127.0.0.1:9092"
value_format = "json"
schema = "id BIGINT, amount DOUBLE"

[query]
sql = """
SELECT id,
       url = 'x' AS hostz
FROM input
"""

[[outputs]]
format = "elasticsearch"
options = { hosts = "http://127.0.0.1:9200", index = "orders" }

[[outputs]]
name = "table"
format = "sql"
[outputs.options]
url = "sqlite:///orders.db"
table = "orders"
keys = "id"

[[outputs]]
name = "alarms"
format = "klamm"
options.topic = "alarms"
'''


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(start))


def check_refused(path: Path, good: str, old: str, new: str, at: str, said: str) -> None:
    """Checks that a good file is read, and that with `new` for `old` the error is `said`, with the line that has `at`."""
    path.write_text(good)
    load(path)
    text = good.replace(old, new, 1)
    assert text != good
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line_of(text, at)}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "at", "said"),
    [
        ("name =", "nam =", "[job]", "[job] name is missing"),
        ('checkpoint = "cp"', 'checkpoint = "cp"\nmastr = "x"', "mastr", "[job] has an unknown key mastr; did you mean master?"),
        ('"json"', '"jsn"', "value_format", "[source] value_format = 'jsn': use bytes or string or json; did you mean json?"),
        ("hosts =", "hostz =", "options = {", "[[outputs]] elasticsearch options: unknown option hostz of format elasticsearch: did you mean hosts?"),
        ('hosts = "http://127', 'hosts = "127', "options = {", "[[outputs]] elasticsearch options: hosts: write URLs such as"),
        ('index = "orders"', 'index = "o", op = "upsert"', "options = {", "[[outputs]] elasticsearch options: op=upsert: use index or create"),
        ('keys = "id"', 'kays = "id"', "kays", "[[outputs]] table options: unknown option kays of format sql: did you mean keys?"),
        ("sqlite:///", "oracle:///", 'url = "oracle', "[[outputs]] table options: url: format sql writes to sqlite, mysql and mariadb, not to oracle"),
        ('keys = "id"', "", "[outputs.options]", "[[outputs]] table options: format sql needs the option keys"),
        ("options.topic", "options.topik", "options.topik", "[[outputs]] alarms options: unknown option topik of format klamm: did you mean topic?"),
        ("BIGINT", "BIGNT", "schema", "[source] schema = 'id BIGNT, amount DOUBLE': BIGNT is no type; did you mean BIGINT?"),
        ("SELECT id", "SELEC id", "sql", "[query] sql begins with SELEC; did you mean SELECT?"),
        ("value_format", 'starting_offsets = "first"\nvalue_format', "starting_offsets", "[source] starting_offsets: startingOffsets=first: use earliest, latest or JSON"),
        ("value_format", 'options = { minPartitionz = "3" }\nvalue_format', "options = { min", "[source] options: unknown option minPartitionz of format klamm: did you mean minPartitions?"),
        ('name = "alarms"', 'name = "alarms"\ntrigger = "often"', "trigger", "[outputs[2]] trigger = 'often': write a time"),
    ],
)  # fmt: skip
def test_an_error_is_a_sentence_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, at: str, said: str
) -> None:
    check_refused(tmp_path / "job.toml", JOB, old, new, at, said)


LOGS = (
    JOB[: JOB.index("[query]")]
    + """[query]
function = "klamm_spark.jobs.logs:logs"

[query.options]
namespace = "shop"

[[query.options.formats]]
name = "access"
type = "grok"
pattern = '^%{COMBINEDAPACHELOG}'

[[query.options.formats]]
name = "app"
type = "json"
duration = { field = "ms", unit = "ms" }

[[query.options.lookups]]
rows = [{ service = "web", owner = "edge" }]
on = "service.name"
key = "service"
fields = { owner = "service.owner" }

[[outputs]]
format = "klamm"
options.topic = "t"
"""
)


@pytest.mark.parametrize(
    ("old", "new", "at", "said"),
    [
        ("namespace =", "namespce =", "namespce", "[query.options] has an unknown key namespce; did you mean namespace?"),
        ('"json"\nduration', '"jsn"\nduration', 'type = "jsn"', "[query.options.formats[1]] type = 'jsn': use grok or"),
        ("APACHELOG", "APACHE", "pattern", "[query.options.formats[0]] pattern: pattern %{COMBINEDAPACHE}: no pattern"),
        ('"app"', '"access"', 'name = "access"', "[[query.options.formats]]: the name access is given twice"),
        ('unit = "ms"', 'unit = "m"', "duration", "[query.options.formats[1].duration] unit = 'm': use ns or us or ms or s"),
        ("fields = { owner", "fieldz = { owner", "[[query.options.lookups", "[[query.options.lookups]] fields is missing"),
        ('"service.owner"', '"service owner"', "fields", "[query.options.lookups[0]] fields: 'service owner' is not a field"),
    ],
)  # fmt: skip
def test_settings_of_the_log_job_are_looked_at_too(
    tmp_path: Path, old: str, new: str, at: str, said: str
) -> None:
    check_refused(tmp_path / "job.toml", LOGS, old, new, at, said)


def test_commands_that_only_look_need_no_more_than_sections(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("hosts =", "hostz =").replace("BIGINT", "BIGNT"))
    assert load(path, contents=False).name == "orders"
    twice = line_of(JOB, 'name = "alarms"')
    path.write_text(JOB.replace('name = "alarms"', 'name = "table"'))
    with pytest.raises(ConfigError, match=rf"job.toml:{twice}: .*table is given twice"):
        load(path)


@pytest.mark.usefixtures("processes")
def test_the_command_says_it_without_java(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("hosts =", "hostz ="))
    done = klamm("spark", "run", str(path))
    assert done.returncode == 2
    assert done.stderr == (
        f"klamm: {path}:{line_of(JOB, 'options = {')}: [[outputs]] elasticsearch options: "
        "unknown option hostz of format elasticsearch: did you mean hosts?\n"
    )


def test_good_jobs_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    assert [o.format for o in load(path).outputs] == ["elasticsearch", "sql", "klamm"]
    assert place_in(path, "outputs[2].options.topic") == f"{path}:{line_of(JOB, 'options.topic')}"
    assert place_in(path, "spark.x") == str(path)


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT", "`a b` STRING NOT NULL COMMENT 'x, (y', b: INT", "a ARRAY<STRUCT<b: INT, c: MAP<STRING, DOUBLE>>>, d DECIMAL(10, 2)",
        "a INTERVAL DAY TO SECOND", "t TIMESTAMP_NTZ, v variant", "x TYPE_OF_TOMORROW", "é STRING\n, b int",
    ],
)  # fmt: skip
def test_what_may_be_a_schema_is_left_to_spark(text: str) -> None:
    check_schema("[source] schema", text, "source.schema")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "'id' is no field: write a name and a type"),
        ("id BIGINT,", "'' is no field"),
        ("a ARRAY<INT", "< is not closed"),
        ("a DECIMAL(10, 2", r"\( is not closed"),
        ("a INT)", r"\) closes nothing"),
        ("a STRNG, b INT", "STRNG is no type; did you mean STRING"),
    ],
)
def test_what_is_no_schema_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_schema("[source] schema", text, "source.schema")


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
_TYPES = st.recursive(
    st.sampled_from(["INT", "string", "DECIMAL(5,2)", "TIMESTAMP"]),
    lambda inner: st.one_of(
        inner.map("ARRAY<{}>".format),
        st.tuples(_NAMES, inner).map(lambda p: f"STRUCT<{p[0]}: {p[1]}, z: INT>"),
    ),
    max_leaves=4,
)


@given(st.lists(st.tuples(_NAMES, _TYPES), min_size=1, max_size=4))
def test_every_schema_of_known_types_is_taken(fields: list[tuple[str, str]]) -> None:
    check_schema("s", ", ".join(f"{name} {kind}" for name, kind in fields), "s")


def test_queries_begin_with_a_word_of_sql() -> None:
    for text in (
        "-- all\n select 1",
        "(SELECT 1)",
        "/* x */ WITH a AS (SELECT 1) FROM a",
        "values (1)",
        "EXPLAIN x",
    ):
        check_sql("[query] sql", text, "query.sql")
    for text, said in (
        ("  -- nothing", "is empty"),
        ("SELCT 1", "did you mean SELECT"),
        ("WHIT a", "did you mean WITH"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_sql("[query] sql", text, "query.sql")


def test_a_function_is_looked_for_and_nothing_of_it_runs(tmp_path: Path) -> None:
    module = tmp_path / "mine.py"
    module.write_text("raise SystemExit\ndef transform(df, spark): return df\nother = transform\n")
    places = [str(tmp_path)]
    for name in ("mine:transform", "json:loads", "klamm_spark.jobs.logs:logs"):
        check_function(name, places)
    for text, name, said in (
        ("def transform(df, spark): return df\n", "mine:transfrom", "mine.py has no function transfrom; did you mean transform?"),
        ("x = 1\n", "mine:transform", "mine.py has no function transform; it has none"),
        ("def transform(df, spark)\n", "mine:transform", r"mine.py:1 is no Python: expected ':'"),
        ("", "absent_mine:transform", "there is no module absent_mine, neither beside the file nor installed"),
    ):  # fmt: skip
        module.write_text(text)
        with pytest.raises(ConfigError, match=said):
            check_function(name, places)
    for text in (
        "from os.path import *\n",
        "if 1:\n    def transform(a, b): ...\n",
        "from x import y as transform\n",
    ):
        module.write_text(text)
        check_function("mine:transform", places)
    check_function("absent_mine:transform", places, elsewhere=True)


def test_lines_are_found_however_a_key_is_written() -> None:
    text = 'a = """\n[no]\nb = 1\n"""\nb = 2\n[[o]]\nc.d = 1\n[o.e]\n"f.g" = 1\n[[o]]\ne = { h = 1 }\n# """\n[z]\n'
    lines = TomlLines(text)
    found = {
        p: lines.find(p) for p in ("b", "no.b", "o[0].c.d", "o[0].e.f.g", "o[1].e.h", "o[1].x", "z", "y.y")
    }
    assert found == {"b": 5, "no.b": None, "o[0].c.d": 7, "o[0].e.f.g": 9, "o[1].e.h": 11, "o[1].x": 10, "z": 13, "y.y": None}  # fmt: skip


SINK = {"name": "s", "connector.class": "SparkSink", "topics": "orders", "value.format": "json", "value.schema": "id BIGINT"}  # fmt: skip
ELASTIC = SINK | {"output.format": "elasticsearch", "output.options.hosts": "http://es:9200", "output.options.index": "i"}  # fmt: skip


@pytest.mark.parametrize(
    ("props", "key", "said"),
    [
        (ELASTIC | {"output.options.hostz": "s3cret"}, "output.options.hostz", "unknown option hostz of format elasticsearch: did you mean hosts?"),
        (ELASTIC | {"output.options.op": "upsert"}, "output.options.op", "op=upsert: use index or create"),
        ({k: v for k, v in ELASTIC.items() if "hosts" not in k}, "output.options.hosts", "hosts is missing"),
        (ELASTIC | {"value.schema": "id BIGNT"}, "value.schema", "BIGNT is no type; did you mean BIGINT?"),
        (ELASTIC | {"query.sql": "SELEC value FROM input"}, "query.sql", "begins with SELEC; did you mean SELECT?"),
        (ELASTIC | {"query.view.v": "SELEC value FROM input"}, "query.view.v", "begins with SELEC; did you mean SELECT?"),
        (SINK | {"output.format": "sql", "output.options.url": "sqlite://", "output.options.table": "t"}, "output.options.keys", "needs the option keys"),
        (SINK | {"output.format": "klamm", "output.options.topik": "t"}, "output.options.topik", "did you mean topic?"),
        (ELASTIC | {"query.function": "klamm_spark.jobs.logs:logs", "query.options": '{"formats": [{"name": "a"}]}'}, "query.options", "[query.options.formats[0]] type is missing"),
    ],
)  # fmt: skip
def test_a_connector_is_refused_with_the_key(props: dict[str, str], key: str, said: str) -> None:
    found = {v.name: v for v in SparkSinkConnector.validate(props) if v.errors}
    assert list(found) == [key]
    assert said in found[key].errors[0]
    assert "[[outputs]]" not in found[key].errors[0]
    assert "s3cret" not in str(found[key])


def test_a_source_s_query_is_looked_at_too() -> None:
    props = {"name": "s", "source.format": "rate", "topic": "t", "query.sql": "SELEC 1"}
    found = {v.name: v.errors for v in SparkSourceConnector.validate(props) if v.errors}
    assert list(found) == ["query.sql"]
