"""The order of versions, and KIP-891's ranges."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.environments.versions import BadVersion, newest, sort_key, version_key, version_range

ORDERED = [
    "0.9", "1.0.dev1", "1.0a1.dev2", "1.0a1", "1.0-alpha-2", "1.0b2", "1.0-M1", "1.0rc1", "1.0-rc2", "1.0-SNAPSHOT",
    "1.0", "1.0+local", "1.0.post1", "1.0.1", "1.1", "1.2", "1.10", "2", "10.0", "2026.1",
]  # fmt: skip


def test_order():
    mixed = random.Random(1).sample(ORDERED, len(ORDERED))
    assert sorted(mixed, key=sort_key) == ORDERED


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1.0.0"), ("1.0-final", "1"), ("v1.2", "1.2"), ("1.0RC1", "1.0-rc-1"), ("1.ga", "1")],
)
def test_the_same_version_in_other_words(one, other):
    assert version_key(one) == version_key(other)


RANGES = [
    ("1.0", "[1.0,1.0]", ["1.0", "1"], ["1.0.1", "0.9", "1.0rc1"]),
    ("[1.0]", "[1.0,1.0]", ["1.0"], ["1.1"]),
    ("[1.0,2.0)", "[1.0,2.0)", ["1.0", "1.9.9", "2.0rc1"], ["2.0", "0.9", "1.0.dev1"]),
    ("(1.0, 2.0]", "(1.0,2.0]", ["1.0.1", "2.0"], ["1.0", "2.0.1"]),
    ("[1.5,)", "[1.5,)", ["1.5", "99"], ["1.4"]),
    ("(,1.0]", "(,1.0]", ["0.1", "1.0"], ["1.1"]),
    ("[1.0,1.2),[1.5,)", "[1.0,1.2),[1.5,)", ["1.1", "1.5"], ["1.2", "1.4"]),
]


@pytest.mark.parametrize(("text", "shown", "inside", "outside"), RANGES)
def test_ranges(text, shown, inside, outside):
    found = version_range(text)
    assert str(found) == shown
    assert [v for v in inside + outside if v in found] == inside


@pytest.mark.parametrize("text", [None, "", "  ", "latest"])
def test_no_range(text):
    assert version_range(text) is None


@pytest.mark.parametrize("text", ["[1.0", "1.0)", "(1.0)", "[]", "[2.0,1.0]", "1,2", "[1.0]x", "[a[b]"])
def test_what_is_no_range_is_said(text):
    with pytest.raises(BadVersion, match=r"version|range"):
        version_range(text)


TEXT = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc|\.dev|\.post)[0-9]{1,2})?", fullmatch=True)


@given(TEXT)
def test_numbers_are_in_pythons_order(text):
    from packaging.version import Version

    other = "1.2.3"
    assert (version_key(text) < version_key(other)) == (Version(text) < Version(other))


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_the_newest_is_in_no_range_below_it(versions):
    best = newest(versions)
    assert best in versions
    assert all(v in version_range(f"(,{best}]") for v in versions)


@given(st.text())
def test_any_text_is_a_version_and_a_range_or_no_range(text):
    version_key(text)
    with contextlib.suppress(BadVersion):
        version_range(text)
