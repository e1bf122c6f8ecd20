"""`klamm reconcile` as a user's shell runs it, and the reader of a genuine Elasticsearch."""

from __future__ import annotations

import json
import sqlite3

import pytest
from support.elasticsearch import unique_index
from support.klamm import klamm

from klamm.demo.logs.target import ElasticsearchTarget, redacted
from klamm.reconcile import targets


@pytest.fixture
def sides(tmp_path):
    """Returns five lines in two files, and a table with the same ids."""
    (tmp_path / "a.log").write_text('{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n')
    (tmp_path / "a.log.1").write_text('{"id":"4"}\n{"id":"5"}\n')
    with sqlite3.connect(tmp_path / "d.db") as connection:
        connection.execute("CREATE TABLE events (id TEXT)")
        connection.executemany("INSERT INTO events VALUES (?)", [(str(n),) for n in range(1, 6)])
    connection.close()
    return tmp_path


def words(sides, *more: str) -> list[str]:
    where = ["--source", str(sides / "a.log*"), "--sqlite", str(sides / "d.db"), "--table", "events"]
    return ["reconcile", *where, "--id-field", "id", "--settle", "0", *more]


@pytest.mark.usefixtures("processes")
def test_equal_sides_end_with_0_and_a_difference_with_1_and_its_place(sides):
    same = klamm(*words(sides))
    assert (same.returncode, same.stderr) == (0, "")
    assert "delivered" in same.stdout
    with sqlite3.connect(sides / "d.db") as connection:
        connection.execute("DELETE FROM events WHERE id = '5'")
        connection.execute("INSERT INTO events VALUES ('6'), ('1')")
    connection.close()
    differ = klamm(*words(sides))
    assert differ.returncode == 1
    assert f"5  {sides}/a.log.1 at byte 11" in differ.stdout
    assert "1  events/1, events/6" in differ.stdout
    assert "6  events/5" in differ.stdout
    document = json.loads(klamm(*words(sides, "-o", "json")).stdout)
    assert (document["missing"], document["duplicates"], document["unexpected"]) == (1, 1, 1)
    assert document["listed"]["missing"] == [{"id": "5", "file": f"{sides}/a.log.1", "offset": 11}]


@pytest.mark.usefixtures("processes")
def test_a_database_s_url_stays_off_the_command_line(sides):
    sources = ["--source", str(sides / "a.log*"), "--table", "events", "--id-field", "id", "--settle", "0"]
    done = klamm("reconcile", *sources, KLAMM_SQL_URL=f"sqlite:///{sides}/d.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert "delivered                        5" in done.stdout


@pytest.mark.usefixtures("processes")
def test_several_targets_count_as_one_and_a_line_may_be_named_by_itself(sides):
    with sqlite3.connect(sides / "d.db") as connection:
        connection.execute("DELETE FROM events WHERE id IN ('2', '5')")
        connection.execute("CREATE TABLE unparsed (id TEXT, line TEXT)")
        connection.execute("""INSERT INTO unparsed VALUES (NULL, '{"id":"5"}'), ('2', NULL)""")
        connection.execute("ALTER TABLE events ADD COLUMN line TEXT")
    connection.close()
    without = klamm(*words(sides, "--exclude", str(sides / "a.log.1"), "-o", "json"))
    found = json.loads(without.stdout)
    assert (found["missing"], found["unexpected"], found["complete"]) == (1, 1, False)
    every = klamm(*words(sides, "--table", "unparsed", "--raw-field", "line", "-o", "json"))
    assert every.returncode == 0, every.stdout
    found = json.loads(every.stdout)
    assert (found["documents"], found["delivered"], found["unparsed"]) == (5, 5, 1)
    ignored = klamm(
        *words(sides, "--exclude", str(sides / "a.log.1"), "--table", "unparsed", "--raw-field", "line"),
        "--ignore-unexpected",
    )
    assert ignored.returncode == 0
    assert "unexpected                       2" in ignored.stdout


@pytest.mark.usefixtures("processes")
def test_lines_of_a_stack_trace_need_no_id(sides):
    with (sides / "a.log").open("a") as log:
        log.write("Traceback (most recent call last):\n  File ...\n")
    plain, ignored = klamm(*words(sides)), klamm(*words(sides, "--ignore-lines-without-id"))
    assert (plain.returncode, ignored.returncode) == (1, 0), ignored.stdout
    assert "lines without id                 2" in ignored.stdout
    assert "source lines without an id (2)" in plain.stdout
    assert "source lines without an id" not in ignored.stdout, "what nobody minds is not listed"


@pytest.mark.usefixtures("processes")
def test_wrong_use_is_one_sentence_and_exit_code_2(sides):
    for more, said in (
        (["--id-regex", "("], "klamm: '(' is not a regular expression"),
        (["--source", "/nowhere/*"], "klamm: no file matches '/nowhere/*'"),
        (["--until", "soon"], "klamm: --until: 'soon' is no time"),
        (["--since", "2026-02-31"], "klamm: --since: '2026-02-31' is no time: write 2026-01-31T23:59:00Z"),
        (
            ["--since", "2026-02-01", "--until", "2026-01-01"],
            "is not before --until 2026-01-01: no line would count",
        ),
        (["--since", "2026-01-01", "--time-regex", 'id":"(.)'], f"{sides}/a.log at byte 0: '1' is no time"),
        (["--agent-state", "/nowhere"], "klamm: no agent has run with state_dir /nowhere"),
    ):
        result = klamm(*words(sides, *more))
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert said in result.stderr
    nothing = klamm("reconcile", "--source", str(sides / "a.log"), "--id-field", "id", ELASTICSEARCH_URL="")
    assert nothing.returncode == 2
    assert "--elasticsearch" in nothing.stderr


@pytest.mark.usefixtures("processes")
def test_a_server_that_is_not_there_is_one_sentence_without_its_password(sides):
    url = "http://elastic:sesame@127.0.0.1:9"
    for command in (
        [
            "reconcile",
            "--source",
            str(sides / "a.log"),
            "--id-field",
            "id",
            "--elasticsearch",
            url,
            "--index",
            "i",
        ],
        ["demo", "logs", "--elasticsearch", url, "--data-dir", str(sides / "work")],
    ):
        result = klamm(*command)
        assert result.returncode == 1
        assert "Elasticsearch" in result.stderr
        assert "sesame" not in result.stderr + result.stdout
        assert result.stderr.count("\n") == 1
    assert redacted(url) == "http://127.0.0.1:9"


def test_every_document_of_an_index_is_read_page_by_page(elasticsearch_server):
    target = ElasticsearchTarget(elasticsearch_server.url, unique_index("reconcile"))
    target.prepare()
    client = target._client
    operations = [
        line
        for n in range(257)
        for line in (
            {"index": {"_index": target.index("events"), "_id": f"d{n}"}},
            {"event_id": f"e{n}", "other": n},
        )
    ]
    assert not client.bulk(operations=operations)["errors"]
    client.index(index=target.index("unparsed"), id="u", document={"message": f"broken rid={'a' * 32}"})
    found = list(targets.elasticsearch_documents(client, target.index("events"), ["event_id"], page=50))
    assert dict(found) == {f"{target.index('events')}/d{n}": {"event_id": f"e{n}"} for n in range(257)}
    with_id = targets.elasticsearch_documents(client, target.index("events"), ["_id"])
    assert {row["_id"] for _, row in with_id} == {f"d{n}" for n in range(257)}
    assert target.count() == 258
    documents = list(target.documents())
    assert len(documents) == 258
    assert [(d.id, d.parsed) for d in documents][-1] == ("a" * 32, False)
    assert list(targets.elasticsearch_documents(client, "no-such-index-*", ["a"])) == []
    assert list(targets.elasticsearch_documents(client, "no-such-index", ["a"])) == []
    target.remove()
    assert target.count() == 0


def test_a_data_stream_is_read_over_all_its_indices(elasticsearch_server, tmp_path):
    """Elasticsearch keeps an id unique within one of them only: a document that came again after a rollover is found."""
    stream = unique_index("logs-stream")
    client = targets.elasticsearch_client(elasticsearch_server.url)
    template = {"index_patterns": [f"{stream}*"], "data_stream": {}, "priority": 900}
    client.indices.put_index_template(name=stream, **template)
    document = {"@timestamp": "2026-01-01T00:00:00Z", "message": "x"}

    def create(*ids: str) -> None:
        operations = [line for i in ids for line in ({"create": {"_index": stream, "_id": i}}, document)]
        assert not client.bulk(operations=operations, refresh=True)["errors"]

    create("1", "2")
    client.indices.rollover(alias=stream)
    create("3", "2")
    (tmp_path / "a.log").write_text("id=1\nid=2\nid=3\nid=4\n")
    result = klamm(
        "reconcile", "--source", str(tmp_path / "a.log"), "--id-regex", "id=([0-9])", "--id-field", "_id",
        "--elasticsearch", elasticsearch_server.url, "--index", stream, "--settle", "0", "-o", "json",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert (result.returncode, found["documents"], found["delivered"], found["unexpected"]) == (1, 4, 3, 0)
    assert [m["id"] for m in found["listed"]["missing"]] == ["4"]
    (twice,) = found["listed"]["duplicates"]
    assert twice["id"] == "2"
    assert len({key.partition("/")[0] for key in twice["keys"]}) == 2
