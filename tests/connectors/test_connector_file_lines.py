"""Lines and positions for every way in which a file can arrive, against a one-line definition of a line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.file.source.lines import Ends, LineSplitter

PIECES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"word", "ü€😀".encode(), b"\xff", b"\x85", b"\x0c"])
)


def lines_of(data, position=0):
    """Returns what a reader of the whole file sees: a last CR may be half of a CRLF, so it does not end a line."""
    found = re.finditer(rb"([^\r\n]*)(\r\n|\n|\r(?!\Z))", data)
    return [(m[1].decode(errors="replace").encode(), position + m.end()) for m in found]


@given(PIECES, st.data())
def test_any_cut_into_chunks_gives_the_same_lines(pieces, data):
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    splitter = LineSplitter(0)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        seen = data.draw(st.integers(0, start))
        found += splitter.feed(text[start - seen : end], seen).pairs()
        assert splitter.position == end
    assert found == lines_of(text)
    assert splitter.position - splitter.pending == (found[-1][1] if found else 0)


@given(PIECES, st.data())
def test_reading_on_from_any_record_gives_the_rest(pieces, data):
    text = b"".join(pieces)
    lines = lines_of(text)
    if not lines:
        return
    position = data.draw(st.sampled_from(lines))[1]
    splitter = LineSplitter(position)
    assert splitter.feed(text[position:]).pairs() == [line for line in lines if line[1] > position]


def test_only_line_ends_of_java_end_a_line():
    assert LineSplitter(0).feed("a\x0bb\x0cc\x1cd\x85e\u2028f\n".encode()).pairs() == [
        ("a\x0bb\x0cc\x1cd\x85e\u2028f".encode(), 15)
    ]


@given(st.lists(st.binary(max_size=5), max_size=20), st.integers(0, 50), st.data())
def test_ends_are_worked_out_when_asked(lines, start, data):
    ends = Ends.of(lines, start)
    expected, position = [], start
    for line in lines:
        position += len(line) + 1
        expected.append(position)
    assert list(ends) == expected
    assert [ends[i] for i in range(-len(lines), len(lines))] == expected * 2
    cut = data.draw(st.slices(len(lines)))
    assert list(ends[cut]) == expected[cut]
    assert list(ends[3:][1:4]) == expected[3:][1:4]
    with pytest.raises(IndexError):
        ends[len(lines)]
