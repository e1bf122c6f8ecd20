"""Flows that would copy topics in a circle are found in the file, before anything starts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.mirror.files import load
from klamm_base.errors import ConfigError
from klamm_mirror.provenance.config import left_out
from klamm_mirror.settings.patterns import Names, common_name, globs

CLUSTERS = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"
IDENTITY = "replication.policy.class=IdentityReplicationPolicy\n"
BLIND = IDENTITY + "mirror.provenance=false\n"
BOTH = "A->B.enabled=true\nB->A.enabled=true\n"
RING = "A->B.enabled=true\nB->C.enabled=true\nC->A.enabled=true\n"


def loaded(text: str, tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(CLUSTERS + text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BLIND + BOTH, r"A->B and B->A would .* in a circle, such as .*A->B\.topics=\.\*, B->A\.topics=\.\*"),
        (BLIND + BOTH + "A->B.topics=x,orders.*\nB->A.topics=.*eu,y\n", r"such as orders"),
        (BLIND + RING, r"A->B and B->C and C->A would"),
        (BLIND + RING + "topics=a,b\nA->B.topics=b,c\n", r"such as b: "),
        (BLIND + BOTH + "topics=(orders|payments)\nB->A.topics=pay[a-z]+\n", r"in a circle"),
        (
            IDENTITY + BOTH + "B->A.mirror.provenance=false\n",
            r"mirror\.provenance=true \(it is false for B->A\)",
        ),
        (
            BOTH + "A->B.replication.policy.class=IdentityReplicationPolicy\n",
            r"Set the same replication\.policy",
        ),
        (BOTH + "B->A.replication.policy.class=IdentityReplicationPolicy\n", r"A->B and B->A would"),
    ],
)
def test_circles_that_nothing_breaks_are_refused(text, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        loaded(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        RING,
        IDENTITY + BOTH,
        IDENTITY + RING + "A->C.enabled=true\nC->B.enabled=true\nB->A.enabled=true\n",
        BLIND + "A->B.enabled=true\nB->C.enabled=true\nA->C.enabled=true\n",
        BLIND + BOTH + "A->B.topics=a-.*\nB->A.topics=b-.*\n",
        BLIND + BOTH + "A->B.topics.exclude=b-.*\nB->A.topics=b-.*,b-orders\n",
        BLIND + BOTH + "A->B.topics=orders.eu\nB->A.topics=orders.us\n",
        BLIND + BOTH + "B->A.enabled=false\n",
        BLIND + RING + "A->B.topics=a,b\nB->C.topics=b,c\nC->A.topics=c,a\n",
        "A->B.replication.policy.class=IdentityReplicationPolicy\ntopics=orders\n" + BOTH,
    ],
)
def test_flows_without_a_circle_start(text, tmp_path):
    assert loaded(text, tmp_path).enabled


def left_out_by(config, flow):
    patterns = left_out(config.flow(flow).connectors["MirrorSourceConnector"])
    return {alias: [t for t in TOPICS if pattern.fullmatch(t)] for alias, pattern in patterns.items()}


TOPICS = ["orders", "orders-eu", "payments", "audit"]


def test_records_with_a_direct_flow_take_no_other(tmp_path):
    direct = "A->C.enabled=true\nA->C.topics=orders.*,audit\nA->C.topics.exclude=.*-eu\n"
    config = loaded(IDENTITY + "A->B.enabled=true\nB->C.enabled=true\n" + direct, tmp_path)
    assert left_out_by(config, "B->C") == {"A": ["orders", "audit"]}
    assert left_out_by(config, "A->B") == left_out_by(config, "A->C") == {}
    # The file's own word counts more
    own = "B->C.mirror.origin.A.topics.exclude=pay.*\n"
    config = loaded(IDENTITY + "A->B.enabled=true\nB->C.enabled=true\n" + direct + own, tmp_path)
    assert left_out_by(config, "B->C") == {"A": ["payments"]}
    # Names that show where records come from are no second copy
    config = loaded("A->B.enabled=true\nB->C.enabled=true\n" + direct, tmp_path)
    assert left_out_by(config, "B->C") == {}


def test_of_two_equal_ways_the_first_is_taken(tmp_path):
    both_ways = "".join(
        f"{a}->{b}.enabled=true\n{b}->{a}.enabled=true\n" for a, b in ("AB", "BC", "CD", "DA")
    )
    path = tmp_path / "mm2.properties"
    clusters = "clusters=A,B,C,D\n" + "".join(f"{c}.bootstrap.servers={c}:1\n" for c in "ABCD")
    path.write_text(clusters + IDENTITY + both_ways + "topics=orders.*\nD->C.topics=.*\nA->D.topics=.*\n")
    config = load(path)
    assert left_out_by(config, "D->C") == {"A": ["orders", "orders-eu"], "B": ["orders", "orders-eu"]}
    assert left_out_by(config, "B->C") == {"D": TOPICS}


def test_a_setting_of_origins_is_checked(tmp_path):
    with pytest.raises(ConfigError, match=r"mirror\.origin\.A\.topics is no setting"):
        left_out({"mirror.origin.A.topics": "x"})
    with pytest.raises(ConfigError, match="Must be a name or a regular expression"):
        left_out({"mirror.origin.A.topics.exclude": "("})


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
