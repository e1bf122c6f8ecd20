"""The walk over referenced schemas: each once, inner ones first, with a bound."""

from __future__ import annotations

import pytest

from klamm_plugins.converters.references import Reference, referred_texts
from klamm_plugins.errors import DataError


def walk(graph, first, limit=1000):
    asked = []

    def ask(reference):
        asked.append(reference.subject)
        return f"text of {reference.subject}", [Reference(n, n, 1) for n in graph[reference.subject]]

    return referred_texts([Reference(n, n, 1) for n in first], ask, limit=limit), asked


def test_inner_ones_come_first():
    found, _ = walk({"a": ["b"], "b": ["c"], "c": [], "d": ["c"]}, ["a", "d"])
    assert list(found) == ["c", "b", "a", "d"]
    assert found["b"] == "text of b"


def test_a_version_is_asked_for_once_however_many_ways_lead_to_it():
    """A ladder of 40 rungs has 2**40 ways through it."""
    graph = {f"{side}{n}": [f"l{n + 1}", f"r{n + 1}"] if n < 40 else [] for n in range(41) for side in "lr"}
    found, asked = walk(graph, ["l0"])
    assert len(asked) == len(set(asked)) == len(found) == 81


def test_a_long_chain_is_no_circle():
    graph = {f"s{n}": [f"s{n + 1}"] if n < 900 else [] for n in range(901)}
    assert len(walk(graph, ["s0"])[0]) == 901


def test_one_version_may_have_two_names():
    asked = []

    def ask(reference):
        asked.append(reference)
        return "text", []

    names = [Reference("x", "s", 1), Reference("y", "s", 1)]
    assert referred_texts(names, ask) == {"x": "text", "y": "text"}
    assert len(asked) == 1


def test_a_circle_is_an_error():
    with pytest.raises(DataError, match="form a circle: a version 1 refers to itself"):
        walk({"a": ["b"], "b": ["a"]}, ["a"])


def test_there_is_a_bound():
    graph = {f"s{n}": [] for n in range(11)}
    assert len(walk(graph, list(graph)[:10], limit=10)[0]) == 10
    with pytest.raises(DataError, match="more than 10 others; s10 version 1 is one too many"):
        walk(graph, list(graph), limit=10)
