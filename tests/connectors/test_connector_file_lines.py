"""Lines and positions for every way in which a file can arrive, against a one-line definition of a line."""

import re

from hypothesis import given
from hypothesis import strategies as st

from klamm_connectors.file.lines import LineSplitter

PIECES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"word", "ü€😀".encode(), b"\xff", b"\x85", b"\x0c"])
)


def lines_of(data, position=0):
    """What a reader of the whole file sees: a last CR may be half of a CRLF, so it does not end a line."""
    found = re.finditer(rb"([^\r\n]*)(\r\n|\n|\r(?!\Z))", data)
    return [(m[1].decode(errors="replace"), position + m.end()) for m in found]


@given(PIECES, st.data())
def test_any_cut_into_chunks_gives_the_same_lines(pieces, data):
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    splitter = LineSplitter(0)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += splitter.feed(text[start:end])
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
    assert splitter.feed(text[position:]) == [line for line in lines if line[1] > position]


def test_only_line_ends_of_java_end_a_line():
    assert LineSplitter(0).feed("a\x0bb\x0cc\x1cd\x85e\u2028f\n".encode()) == [
        ("a\x0bb\x0cc\x1cd\x85e\u2028f", 15)
    ]
