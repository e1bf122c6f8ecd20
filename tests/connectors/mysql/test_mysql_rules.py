"""Column rules, message keys and sources of transactions: the pure side of Debezium's keys."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.connect.service.connectors import _log_change
from klamm_connectors.mysql.column_rules import ColumnRules
from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.events import Origin, TableEvents
from klamm_connectors.mysql.failures import Failures
from klamm_connectors.mysql.gtid_sources import GtidSources
from klamm_connectors.mysql.key_set import KeySet
from klamm_connectors.mysql.message_keys import MessageKeys
from klamm_connectors.mysql.shape import Shape
from klamm_connectors.mysql.view import View
from klamm_plugins.errors import DataError

UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "1c2aad49-ae92-409a-b4df-d05a03e4702e")
TEXT = Column("ssn", Kind.STRING, length=20)
# Java's MessageDigest over a serialized String (first), and over its UTF-8 (v2), with the salt CzQMA0cB5K.
HASHES = [
    ("MD5", "", "999615ee3c36220e47deeaaccd5e3a2f", "ca2879352539ff0de523d59fc3b840cf"),
    ("MD5", "ü\0🎉", "9a5a2b5165a6dea79fbca79da5c453df", "4f92d1f6e3f653bffcc3c8e8a8dfa6f2"),
    ("MD5", "x" * 70000, "a95ab887b65d3a5827f462fbd8dec18c", "0194746faa3a1602f165d6e05e6beff1"),
    (
        "SHA-256",
        "anne",
        "b0dade90b1312358fd2e97c4f061eedc668c2655bacb62273bd5e80190659e2e",
        "4075fa5a0244c71168c476f4e5d9ef310e6b643ba11cab218046cb86e08b8c63",
    ),
    (
        "SHA-512/256",
        "anne",
        "edad6da4da77f0539e0c5a05fae1eccc577889d6f223e550335ed40a7b7bba34",
        "028db4a62ed42dd579d3e892a70ba7547332df5c0a93ed065a8747b38173cbc4",
    ),
    (
        "SHA3-256",
        "anne",
        "f1983d0029c743a69cda5e7b5fe1726999f3184ceb6e559dcc89689e3fe93f9c",
        "93d36dd22add19c05f5da2ed4fd2b57de8770a3739f8289c143068fb7b693569",
    ),
]


def mapped(props, column=TEXT):
    return ColumnRules.from_properties(props).of("shop", "users", column)


@pytest.mark.parametrize(("algorithm", "value", "first", "second"), HASHES)
def test_hashes_are_those_of_java(algorithm, value, first, second):
    column = Column("ssn", Kind.STRING)
    for version, expected in (("", first), ("v2.", second)):
        key = f"column.mask.hash.{version}{algorithm}.with.salt.CzQMA0cB5K"
        assert mapped({key: r"shop\.users\.ssn"}, column).change(value) == expected
        assert mapped({key: r"shop\.users\.ssn"}).change(value) == expected[:20], "as long as the column"


def test_a_mask_hides_null_too_and_says_so_in_the_schema():
    found = mapped({"column.mask.with.3.chars": "SHOP.users.ssn,shop.users.x"})
    assert (found.change("078-05-1120"), found.fixed, found.parameters) == ("***", "***", {"masked": "true"})
    assert mapped({"column.mask.with.0.chars": r".*\.ssn"}).change("x") == ""


def test_a_cut_shortens_texts_and_bytes_but_not_shorter_columns():
    key = {"column.truncate.to.4.chars": ".*"}
    assert mapped(key).change("abcdef") == "abcd"
    assert mapped(key).parameters == {"truncateLength": "4"}
    assert mapped(key, Column("b", Kind.BYTES)).change(b"abcdef") == b"abcd"
    assert mapped(key, Column("c", Kind.STRING, length=4)) is None


def test_a_mask_wins_over_a_cut_and_what_is_no_text_is_named(caplog):
    both = {"column.truncate.to.4.chars": ".*", "column.mask.with.2.chars": ".*"}
    assert mapped(both).change("abcdef") == "**"
    assert mapped(both, Column("n", Kind.INT, size=4)) is None
    assert "shop.users.n, which is no text" in caplog.text


def test_a_salt_is_in_no_message():
    with pytest.raises(Exception, match="there is no hash X") as found:
        mapped({"column.mask.hash.X.with.salt.hush": "a"})
    assert "hush" not in str(found.value)


def test_a_salt_is_in_no_log_of_a_changed_configuration(caplog):
    key = "column.mask.hash.v2.SHA-256.with.salt.hush.hush"
    with caplog.at_level(logging.INFO):
        _log_change("c", {"tasks.max": "1"}, {"tasks.max": "2", key: "a"})
    assert "changed: column.mask.hash.v2.SHA-256.with.salt.***, tasks.max" in caplog.text


@given(st.text(), st.integers(0, 30))
def test_a_cut_is_the_beginning(text, length):
    cut = mapped({f"column.truncate.to.{length}.chars": ".*"}, Column("t", Kind.STRING)).change(text)
    assert text.startswith(cut)
    assert len(cut) == min(len(text), length)


TABLE = Table(
    "shop",
    "users",
    (Column("id", Kind.INT, nullable=False, size=4), TEXT, Column("mail", Kind.STRING)),
    ("id",),
)


def of_view(captured, key, **rules):
    found = {c.name: ColumnRules.from_properties(rules).of("shop", "users", c) for c in TABLE.columns}
    rules = {name: mapped for name, mapped in found.items() if mapped is not None}
    return TableEvents(TABLE, View(frozenset(captured), tuple(key), rules), Shape("p"))


def test_keys_hold_columns_that_are_left_out_or_masked_in_the_value():
    events = of_view({"id", "mail"}, ("ssn", "mail"), **{"column.mask.with.1.chars": r".*\.mail"})
    values = events.convert([1, "s", "m"])
    (record,) = events.records("c", None, values, Origin(1, 1, None, "f", 4), {}, {}, 0, 5)
    record.value.validate()
    record.key.validate()
    assert record.key.to_dict() == {"ssn": "s", "mail": "m"}
    assert record.value["after"].to_dict() == {"id": 1, "mail": "*"}
    assert [f.name for f in record.key_schema.fields] == ["ssn", "mail"]
    moved = events.records(
        "u", values, events.convert([1, "t", "m"]), Origin(1, 1, None, "f", 4), {}, {}, 0, 5
    )
    assert [r.value and r.value["op"] for r in moved] == ["d", None, "c"], "the key has changed"


@pytest.mark.parametrize(
    ("text", "table", "key"),
    [
        ("shop.users:mail", "users", ("mail",)),
        (" (.*).users:ssn,mail ; shop.x:a", "users", ("ssn", "mail")),
        ("shop.other:mail", "users", ("id",)),
        ("shop.users:nothing", "users", ("id",)),
        (None, "users", ("id",)),
    ],
)
def test_message_keys(text, table, key):
    names = [c.name for c in TABLE.columns]
    assert MessageKeys.parse(text).of("shop", table, names, ("id",)) == key


def test_sources_of_transactions():
    sources = GtidSources.from_lists([UUIDS[0]], [])
    assert sources.reads(f"{UUIDS[0].upper()}:5")
    assert not sources.reads(f"{UUIDS[1]}:5")
    assert sources.reads("")
    done, executed = f"{UUIDS[0]}:1-5,{UUIDS[1]}:1-2", f"{UUIDS[0]}:1-9,{UUIDS[1]}:1-7:9"
    assert sources.start(done, executed) == f"{UUIDS[1]}:1-7:9,{UUIDS[0]}:1-5"
    assert GtidSources.from_lists([], ["0-2"]).start("0-2-7", "0-1-9") == "0-2-7"
    assert not GtidSources.from_lists([], ["0-2"]).reads("0-2-7")
    assert GtidSources.from_lists([], []) is None


def test_rows_that_do_not_fit_are_named_counted_or_fatal(caplog):
    class Events:
        def convert(self, row):
            raise DataError("no")

    with pytest.raises(DataError, match="p: no"):
        Failures().all(Events(), [1], "p")
    for mode in ("warn", "skip"):
        failures = Failures(mode)
        assert failures.all(Events(), [1, 2, 3], "p") == [None] * 3
        assert failures.count == 3
    assert caplog.text.count("mode=warn") == 3
    assert caplog.text.count("mode=skip") == 1


@given(st.sets(st.binary()), st.sets(st.binary()))
def test_a_set_has_what_was_added_and_nothing_else(added, others):
    keys = KeySet()
    for key in (*added, *added):
        keys.add(key)
    assert len(keys) == len(added)
    assert all(key in keys for key in added)
    assert not any(key in keys for key in others - added)
