"""Java's expressions in Python's: what Kafka answers is in the table of the transforms; here is what no topic shows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_plugins.java_regex import compile_java

PARTS = st.sampled_from(
    ["a", "(?i)", "(?-i)", "(?s)", "(?u)", "(?i:", "(", ")", "|", "[", "]", "-", "^", "&", "~", "\\w", "\\p{L}", "\\Q", "\\E", "{2}", "*", "+", "\\"]
)  # fmt: skip


@pytest.mark.parametrize(
    "pattern", ["a{99999999999}", "(" * 5000 + ")" * 5000, "[a-z&&[^q]]", "(?z)a", "a{", "\\x{ffffff}"]
)
def test_what_cannot_be_compiled_is_one_kind_of_error(pattern):
    with pytest.raises(re.error):
        compile_java(pattern)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_any_text_compiles_or_is_refused_without_a_warning(pattern):
    try:
        compile_java(pattern)
    except re.error:
        return


def test_flags_end_with_their_group_and_reach_over_its_branches():
    pattern = compile_java("x(a(?i)b|c)d")
    found = [bool(pattern.fullmatch(t)) for t in ("xabd", "xaBd", "xAbd", "xCd", "xcD")]
    assert found == [True, True, False, True, False]
    assert compile_java("(?i)a|b").fullmatch("B")
    assert compile_java("x|(?i)a|b").fullmatch("B")
    assert not compile_java("X|(?i)a|b").fullmatch("x")
