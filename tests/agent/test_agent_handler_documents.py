"""Log records as documents: what is written piece by piece is what a dictionary would give."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from klamm.logging.documents import Documents


def record(message="hello %s", args=("you",), *, extra=None, exc_info=None, sinfo=None, name="app"):
    logger = logging.getLogger(name)
    return logger.makeRecord(
        name, logging.WARNING, '/srv/a"b.py', 7, message, args, exc_info, "f", extra, sinfo
    )


@pytest.fixture
def failed():
    try:
        raise ValueError("no")
    except ValueError:
        return sys.exc_info()


def cases(failed):
    return [
        record(),
        record('ümläut " \\ \n \x00 %d', (7,)),
        record(extra={"user": 5, "nested": {"a": [1, None]}}),
        record(exc_info=failed),
        record(exc_info=failed, extra={"host": "not the host"}),
        record(sinfo="Stack"),
        record("lone \udce4", ()),
        record(extra={"odd": {(1, 2): 1 << 70}}),
    ]


@pytest.mark.parametrize("fields", [{}, {"service": {"name": "shop"}}])
def test_pieces_are_the_whole(failed, fields):
    documents = Documents("web-1", fields)
    for each in cases(failed):
        for _ in range(2):  # the second time from what is remembered
            assert json.loads(documents.of(each)) == json.loads(documents._whole(each))


def test_a_record_says_where_it_came_from():
    found = json.loads(Documents("web-1", {"service": {"name": "shop"}}).of(record()))
    stamp = found.pop("@timestamp")
    assert (len(stamp), stamp[-1]) == (24, "Z")
    assert found.pop("process")["thread"] == {"name": "MainThread"}
    assert found == {
        "message": "hello you",
        "log": {
            "level": "warning",
            "logger": "app",
            "origin": {"file": {"name": '/srv/a"b.py', "line": 7}, "function": "f"},
        },
        "host": {"name": "web-1"},
        "service": {"name": "shop"},
    }


def test_fields_of_ones_own_win_over_ours():
    found = json.loads(Documents("web-1", {"host": {"name": "other"}, "log": {"file": "x"}}).of(record()))
    assert (found["host"], found["log"]) == ({"name": "other"}, {"file": "x"})
