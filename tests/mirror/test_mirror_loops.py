"""Flows that would copy topics in a circle are found in the file, before anything starts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.mirror.files import load
from klamm_base.errors import ConfigError
from klamm_mirror.patterns import Names, common_name, globs

CLUSTERS = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"
IDENTITY = "replication.policy.class=IdentityReplicationPolicy\n"
BOTH = "A->B.enabled=true\nB->A.enabled=true\n"
RING = "A->B.enabled=true\nB->C.enabled=true\nC->A.enabled=true\n"


def loaded(text: str, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(CLUSTERS + text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            IDENTITY + BOTH,
            r"A->B and B->A would .* in a circle, such as .*A->B\.topics=\.\*, B->A\.topics=\.\*",
        ),
        (IDENTITY + BOTH + "A->B.topics=x,orders.*\nB->A.topics=.*eu,y\n", r"such as orderseu"),
        (IDENTITY + RING, r"A->B and B->C and C->A would"),
        (IDENTITY + RING + "topics=a,b\nA->B.topics=b,c\n", r"such as b: "),
        (BOTH + "A->B.replication.policy.class=IdentityReplicationPolicy\n", r"A->B and B->A would"),
        (BOTH + "B->A.replication.policy.class=IdentityReplicationPolicy\n", r"A->B and B->A would"),
        (IDENTITY + BOTH + "topics=(orders|payments)\nB->A.topics=pay[a-z]+\n", r"in a circle"),
    ],
)
def test_circles_under_one_name_are_refused(text, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        loaded(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        RING,
        IDENTITY + "A->B.enabled=true\nB->C.enabled=true\nA->C.enabled=true\n",
        IDENTITY + BOTH + "A->B.topics=a-.*\nB->A.topics=b-.*\n",
        IDENTITY + BOTH + "A->B.topics.exclude=b-.*\nB->A.topics=b-.*,b-orders\n",
        IDENTITY + BOTH + "A->B.topics=orders.eu\nB->A.topics=orders.us\n",
        IDENTITY + BOTH + "B->A.enabled=false\n",
        IDENTITY + RING + "A->B.topics=a,b\nB->C.topics=b,c\nC->A.topics=c,a\n",
        "A->B.replication.policy.class=IdentityReplicationPolicy\ntopics=orders\n" + BOTH,
    ],
)
def test_flows_without_a_circle_start(text, tmp_path):
    assert loaded(text, tmp_path).enabled


PIECES = st.sampled_from(
    ["a", "b", "ab", r"\.", ".", ".*", ".+", "a?", "b*", "[ab]", "(a|b)", "(?:ab)+", "|", r"\w"]
)
EXPRESSIONS = st.lists(PIECES, min_size=1, max_size=5).map("".join)
NAMES = st.text("abc.", min_size=1, max_size=5)


@given(st.lists(EXPRESSIONS, min_size=1, max_size=3), EXPRESSIONS, st.lists(EXPRESSIONS, max_size=2), NAMES)
def test_a_name_in_common_is_never_missed(ours, theirs, excluded, name):
    def matches(items):
        return any(re.fullmatch(item, name) for item in items)

    if matches(ours) and matches([theirs]) and not matches(excluded):
        assert common_name([Names.of(ours, excluded), Names.of([theirs], [])]) is not None


@given(EXPRESSIONS, NAMES)
def test_an_exact_glob_is_its_expression(expression, name):
    found = globs(expression)
    if all(glob.exact for glob in found):
        alone = common_name([Names(found, []), Names.of([re.escape(name)], [])])
        assert (alone == name) == bool(re.fullmatch(expression, name))


def test_long_lists_of_names_are_told_apart_quickly():
    ours, theirs = ([f"{side}.topic-{i}" for i in range(2000)] for side in "ab")
    assert common_name([Names.of(ours, []), Names.of(theirs, [])]) is None
    assert common_name([Names.of(ours, []), Names.of([*theirs, ours[77]], [])]) == ours[77]
