"""Each `-o` of each command takes the same formats, and each format says the same."""

from __future__ import annotations

import csv
import io
import json

import pytest
import typer
import yaml

from klamm.cli.common import Output, print_document, print_record, print_rows, print_streamed
from klamm.cli.main import app
from klamm.cli.output import Format, table
from klamm.cli.reference import walk

ROWS = [{"name": "a", "n": 1, "more": [1, 2]}, {"name": "yes", "n": None, "more": []}]


def test_every_output_option_takes_all_formats():
    """Records (consume) have no table, and a configuration is written for a file."""
    lacking = {
        " ".join(path): list(p.type.choices)
        for path, command in walk(typer.main.get_command(app), ("klamm",))
        for p in command.params
        if "--output" in p.opts and hasattr(p.type, "choices")
        if [getattr(c, "value", c) for c in p.type.choices] != [f.value for f in Format]
    }
    assert set(lacking) <= {"klamm consume", "klamm connector config"}


DOES = {
    "add", "add-partitions", "alter", "abort", "apply", "clone", "copy", "create", "delete", "delete-offsets", "edit", "expire", "files", "init",
    "install", "lock", "logs", "passwd", "pause", "produce", "prune", "register", "remove", "rename", "renew", "replay", "restart", "restore", "resume", "rollback",
    "run", "set", "setup", "signal", "start", "stop", "terminate", "token", "password", "uninstall", "unset", "up", "upgrade", "use", "verify",
    "distributed", "standalone",
}  # fmt: skip
"""The last words of commands that change something or run, and say so in a sentence."""
OWN_FORM = {
    "klamm export": "YAML for klamm apply", "klamm group export": "CSV for klamm group import", "klamm log dump": "Kafka's text",
    "klamm service check": "a sentence", "klamm broker start": "a server",
}  # fmt: skip


def test_every_command_that_shows_something_takes_a_format():
    without = {
        " ".join(path)
        for path, command in walk(typer.main.get_command(app), ("klamm",))
        if not getattr(command, "commands", None) and not path[-1].startswith(("kafka-", "connect-"))
        if not any("--output" in p.opts for p in command.params)
    }
    assert {name for name in without if name.split()[-1] not in DOES and name not in OWN_FORM} <= {"klamm"}


def test_both_kinds_of_formats_are_the_same():
    assert [o.value for o in Output] == [f.value for f in Format]


@pytest.mark.parametrize("form", [o for o in Output if o.structured])
def test_rows_are_the_same_in_every_format(form, capsys):
    print_rows(ROWS, ["name", "n"], form)
    said = capsys.readouterr().out
    match form:
        case Output.JSON:
            assert json.loads(said) == ROWS
        case Output.JSONL:
            assert [json.loads(line) for line in said.splitlines()] == ROWS
        case Output.YAML:
            assert yaml.safe_load(said) == ROWS
        case Output.CSV:
            assert list(csv.reader(io.StringIO(said))) == [["name", "n"], ["a", "1"], ["yes", ""]]


def test_tables_have_the_columns_alone(capsys):
    for form in (Output.TABLE, Output.WIDE):
        print_rows(ROWS, ["name", "n"], form)
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["NAME", "N"],
            ["a", "1"],
            ["yes", "-"],
        ]


def test_a_record_in_csv_has_a_line_for_each_field(capsys):
    print_record({"a": 1, "b": [1, 2]}, Output.CSV)
    assert capsys.readouterr().out == 'field,value\na,1\nb,"1,2"\n'


def test_streams_have_a_line_or_a_document_for_each(capsys):
    for form, read in (
        (Output.JSON, lambda t: [json.loads(x) for x in t.splitlines()]),
        (Output.YAML, lambda t: list(yaml.safe_load_all(t))),
    ):
        for row in ROWS:
            print_streamed(row, form)
        assert read(capsys.readouterr().out) == ROWS
    print_document([{"a": 1}, {"b": 2}], Output.CSV)
    assert capsys.readouterr().out == "a,b\n1,\n,2\n"


def test_a_name_from_a_client_gives_a_terminal_no_orders():
    shown = table(
        [{"group": "a\x1b[31mb\nc\u202ed", "n": 1}, {"group": "\u00fc\u4e2d", "n": 2}], ["group", "n"]
    )
    assert shown.splitlines()[1:] == [
        "a\\x1b[31mb\\nc\\u202ed  1",
        "\u00fc\u4e2d                    2",
    ]
