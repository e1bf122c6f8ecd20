"""Rows of the text protocol: cut wherever the network cuts them, as PyMySQL reads them."""
# ruff: noqa: DTZ001  values of DATETIME have no zone

from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.mysql import text_rows
from klamm_connectors.mysql.columns import Column, Kind, Table
from klamm_connectors.mysql.text_rows import TextRows, decoded
from klamm_plugins.errors import DataError

EOF = b"\xfe\0\0\2\0"


class Stream:
    """Gives what was sent, in the sizes given."""

    def __init__(self, data, sizes):
        self._data, self._sizes = data, iter(sizes)

    def read1(self, most):
        return self._take(min(most, next(self._sizes, most)))

    def read(self, size):
        return self._take(size)

    def _take(self, size):
        found, self._data = self._data[:size], self._data[size:]
        return found


def text(value):
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    return b"\xfc" + size.to_bytes(2, "little") + value


def packets(payload, full):
    """Returns a payload as packets; one of the greatest size is followed by another."""
    found = b""
    while True:
        part, payload = payload[:full], payload[full:]
        found += len(part).to_bytes(3, "little") + b"\0" + part
        if len(part) < full:
            return found


def reading(data, sizes=()):
    rows = TextRows.__new__(TextRows)
    rows.done, rows._data, rows._at = False, b"", 0
    rows._connection = SimpleNamespace(_rfile=Stream(data, sizes), _force_close=lambda: None, encoding="utf8")
    return rows


ROWS = st.lists(st.lists(st.none() | st.binary(max_size=400), min_size=2, max_size=2), max_size=8)


@given(ROWS, st.lists(st.integers(1, 90), max_size=99), st.integers(1, 5), st.sampled_from([300, 0xFFFFFF]))
def test_rows_are_read_however_they_are_cut(rows, sizes, most, full):
    sent = b"".join(packets(b"".join(map(text, row)), full) for row in rows) + packets(EOF, full)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_rows, "_FULL", full)
        source, found = reading(sent, sizes), []
        while not source.done:
            part = source.next(most)
            assert len(part) <= most
            found += part
    assert found == rows


def test_an_error_among_rows_is_the_servers():
    sent = packets(text(b"1"), 99) + packets(b"\xff\x25\x05#70100Query was interrupted", 99)
    source = reading(sent)
    with pytest.raises(pymysql.err.OperationalError, match="interrupted"):
        source.next(5)
    assert source.done


def test_a_lost_connection_is_an_error():
    with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
        reading(packets(text(b"1"), 99)[:-1]).next(5)
    with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
        reading(packets(text(b"1"), 99)).next(5)


def test_values_are_those_of_the_binlog():
    kinds = [
        Kind.INT,
        Kind.DECIMAL,
        Kind.DATE,
        Kind.DATETIME,
        Kind.TIMESTAMP,
        Kind.STRING,
        Kind.BYTES,
        Kind.DOUBLE,
    ]
    table = Table("d", "t", tuple(Column(f"c{i}", kind) for i, kind in enumerate(kinds)), ())
    rows = [
        [b"-7", b"1.50", b"2024-02-29", b"2024-02-29 01:02:03", b"2024-02-29 01:02:03.5", "é".encode(), b"\xff", b"1e-7"],
        [None] * len(kinds),
        [b"0", b"0.00", b"0000-00-00", b"0000-00-00 00:00:00", b"2024-02-29 01:02:03.123456", b"", b"", b"0"],
    ]  # fmt: skip
    ints, decimals, dates, times, stamps, texts, raw, doubles = decoded(table, rows)
    assert list(ints) == [-7, None, 0]
    assert list(decimals) == [Decimal("1.50"), None, Decimal("0.00")]
    assert list(dates) == [date(2024, 2, 29), None, None]
    assert list(times) == [datetime(2024, 2, 29, 1, 2, 3), None, None]
    assert list(stamps) == [
        datetime(2024, 2, 29, 1, 2, 3, 500000),
        None,
        datetime(2024, 2, 29, 1, 2, 3, 123456),
    ]
    assert (list(texts), list(raw)) == (["é", None, ""], [b"\xff", None, b""])
    assert list(doubles) == [1e-7, None, 0.0]
    with pytest.raises(DataError, match=r"d\.t\.c0: a value is no int"):
        decoded(table, [[b"1.5"] * len(kinds)])
    assert decoded(table, []) == [[]] * len(kinds)
