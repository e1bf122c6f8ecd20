"""Single properties of mm2.properties change; comments, order and other lines do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.mirror.edit import change_file, set_property
from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties

FILE = """# flows
clusters = A, B

A->B.enabled : true
A->B.topics = orders,\\
   users
! the last line counts
A->B.topics=logs
"""


def test_a_value_is_replaced_where_it_counts_and_comments_stay():
    assert set_property(FILE, "A->B.topics", "x") == (
        "# flows\nclusters = A, B\n\nA->B.enabled : true\n! the last line counts\nA->B.topics=x\n"
    )


def test_a_new_key_comes_last_and_a_removed_one_goes():
    assert set_property("a=1", "b", "2") == "a=1\nb=2\n"
    assert set_property(FILE, "A->B.enabled", None) == FILE.replace("A->B.enabled : true\n", "")
    assert set_property(FILE, "no.such", None) == FILE


@given(
    st.lists(
        st.sampled_from(["# c\n", "\n", "a=1\n", "b : 2\n", "a=3,\\\n  4\n", "  c 5\n", "!a=9\n"]), max_size=8
    ),
    st.sampled_from("abcd"),
    st.none() | st.text("xyz$.*\\(), =", min_size=1).map(str.strip),
)
def test_no_other_property_changes(tmp_path_factory, lines, key, value):
    path = tmp_path_factory.mktemp("edit") / "p"
    path.write_text("".join(lines))
    before = dict(load_properties(path))
    path.write_text(set_property("".join(lines), key, value))
    after = dict(load_properties(path))
    assert after.pop(key, None) == value
    before.pop(key, None)
    assert after == before


def test_a_file_that_would_not_work_is_not_written(tmp_path):
    path = tmp_path / "p"
    path.write_text(FILE)

    def refuse(trial) -> None:
        raise ConfigError(f"{trial}:1: no")

    with pytest.raises(ConfigError, match=f"^{path}:1: no$"):
        change_file(path, lambda text: text + "x=1\n", refuse)
    assert path.read_text() == FILE
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    assert not change_file(path, lambda text: text, refuse)
