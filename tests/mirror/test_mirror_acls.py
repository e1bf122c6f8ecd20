"""ACLs of mirrored topics: which bindings go to the target, and what a cluster without an authorizer causes."""

from __future__ import annotations

import logging

import pytest
from support.broker import new_topic
from support.mirroring import Running, props

from klamm_mirror.topics.acls import mirrored
from klamm_plugins.mirror import AclBinding

ALLOW, DENY = "ALLOW", "DENY"
ALL, READ, WRITE, DESCRIBE = "ALL", "READ", "WRITE", "DESCRIBE"


def binding(topic: str, operation: str, permission: str = ALLOW) -> AclBinding:
    return AclBinding(topic=topic, principal="User:ann", host="*", operation=operation, permission=permission)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([(READ, ALLOW), (DESCRIBE, ALLOW)], [(READ, ALLOW), (DESCRIBE, ALLOW)]),
        ([(ALL, ALLOW)], [(READ, ALLOW)]),
        ([(WRITE, ALLOW)], []),
        ([(ALL, DENY), (WRITE, DENY)], [(ALL, DENY), (WRITE, DENY)]),
    ],
)
def test_allow_write_stays_behind_and_allow_all_becomes_read(given, wanted):
    found = mirrored([binding("orders", o, p) for o, p in given], lambda _: True, "A.{}".format)
    assert found == [binding("A.orders", o, p) for o, p in wanted]


def test_only_mirrored_topics_have_their_acls_mirrored():
    given = [binding("orders", READ), binding("secret", READ)]
    assert mirrored(given, "orders".__eq__, "A.{}".format) == [binding("A.orders", READ)]


def test_a_source_without_authorizer_is_said_once_and_quietly(source, target, caplog):
    caplog.set_level(logging.DEBUG, "klamm_mirror.topics.acls")
    config = props(
        source.bootstrap, target.bootstrap, topics=new_topic(source),
        sync__topic__acls__enabled="true", sync__topic__acls__interval__seconds="1",
    )  # fmt: skip
    with Running(config) as mirror:
        mirror.until(lambda: len(said(caplog)) > 1, "two passes")
    first, *later = said(caplog)
    assert first.levelno == logging.INFO
    assert {r.levelno for r in later} == {logging.DEBUG}
    assert not mirror.context.errors


def said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if "the source has no authorizer" in r.getMessage()]
