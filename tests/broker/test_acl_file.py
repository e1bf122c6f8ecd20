"""ACLs on the disk, and the audit log's lines about denials."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat

import pytest

from klamm_base.errors import ConfigError
from klamm_base.files import NotSynced
from klamm_broker.api.api_31_delete_acls import deletion
from klamm_broker.api.registry import RequestContext
from klamm_broker.log.errors import DirectoryError
from klamm_broker.log.steps import finish
from klamm_broker.security.acl import Acl, AclFilter
from klamm_broker.security.authorizer import Denial
from klamm_broker.server import audit
from klamm_broker.server.acl_file import StoredAuthorizer
from klamm_broker.server.authorizer_keys import STANDARD
from klamm_broker.server.config import BrokerConfig
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_kafka.wire.errors import ErrorCode


def acl(name: str = "orders") -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC, resource_name=name, pattern_type=PatternType.LITERAL, principal='User:"ä',
        host="*", operation=AclOperation.READ, permission=AclPermissionType.ALLOW,
    )  # fmt: skip


def opened(path) -> StoredAuthorizer:
    return StoredAuthorizer(path, super_users=frozenset(), allow_without_acls=False, on_denied=print)


def test_what_is_stored_is_there_after_a_restart(tmp_path):
    path = tmp_path / "acls.json"
    first = opened(path)
    first.store(add=[acl("a"), acl("b"), acl("a")])
    first.store(remove=[acl("a")], add=[acl("c")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(opened(path).index) == [acl("b"), acl("c")] == list(first.index)
    before = path.stat().st_mtime_ns
    first.store(add=[acl("c")], remove=[acl("none")])
    assert path.stat().st_mtime_ns == before, "nothing has changed, and nothing is written"
    first.store(remove=[acl("b"), acl("c")])
    assert json.loads(path.read_text()) == {"version": 1, "acls": []}


def test_what_cannot_be_stored_does_not_hold(tmp_path):
    found = opened(tmp_path / "no such folder" / "acls.json")
    with pytest.raises(OSError, match="no such folder"):
        found.store(add=[acl()])
    assert not len(found.index)
    assert found.version == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "no document of version 1"),
        ('{"version": 2}', "no document of version 1"),
        ('{"version": 1, "acls": [{}]}', "missing or bad value"),
        ('{"version": 1, "acls": [{"resourceType": "QUEUE"}]}', "QUEUE"),
    ],
)
def test_a_file_that_cannot_be_read_stops_the_start(tmp_path, text, why):
    path = tmp_path / "acls.json"
    path.write_text(text)
    with pytest.raises(DirectoryError, match=why):
        opened(path)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"authorizer.class.name": "org.example.Mine"}, "must be org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "Kafka 4 has no AclAuthorizer"),
        ({"super.users": "admin"}, "super.users"),
        ({"allow.everyone.if.no.acl.found": "maybe"}, "allow.everyone.if.no.acl.found"),
    ],
)  # fmt: skip
def test_bad_properties_are_errors(tmp_path, properties, why):
    with pytest.raises(ConfigError, match=why):
        BrokerConfig.load({"log.dirs": str(tmp_path), **properties})


def test_good_properties_are_taken_without_a_warning(tmp_path, caplog):
    config = BrokerConfig.load(
        {"log.dirs": str(tmp_path), "authorizer.class.name": STANDARD, "super.users": "User:a;User:b"}
    )
    assert config["authorizer.class.name"] == STANDARD
    assert not caplog.records


def test_a_repeated_denial_is_counted_and_told_once_in_a_while(caplog):
    now = [0.0]
    denials = audit.Denials(lambda: now[0])
    denial = Denial(
        principal="User:ann", host="h", operation=AclOperation.READ, resource_type=ResourceType.TOPIC,
        resource_name="secret", api="FETCH", rule="none",
    )  # fmt: skip
    with caplog.at_level(logging.INFO, "klamm.audit"):
        for now[0] in (0, 1, 9, 10.5, 30):
            denials(denial)
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line.pop("times") for line in lines] == [1, 3, 1]
    assert lines[0] == {
        "event": "denied", "principal": "User:ann", "host": "h", "api": "FETCH", "operation": "READ",
        "resource_type": "TOPIC", "resource": "secret", "rule": "none",
    }  # fmt: skip


class _Timer:
    """A timer that a test lets ring."""

    def __init__(self):
        self.calls = []

    def __call__(self, _seconds, call):
        self.calls.append(call)

    def ring(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def _denial(principal, name="secret"):
    return Denial(
        principal=principal, host="h", operation=AclOperation.READ, resource_type=ResourceType.TOPIC,
        resource_name=name, api="FETCH", rule="none",
    )  # fmt: skip


def _times(caplog):
    return sum(json.loads(record.getMessage()).get("times", 0) for record in caplog.records)


def test_counted_denials_are_told_by_a_timer_though_nobody_comes_back(caplog):
    now, timer = [0.0], _Timer()
    denials = audit.Denials(lambda: now[0], timer)
    with caplog.at_level(logging.INFO, "klamm.audit"):
        for n in range(10_000):
            denials(_denial("User:ann", str(n)))
        for _ in range(50):
            denials(_denial("User:bob"))
        assert _times(caplog) == audit.LINES_MAX + 1
        now[0] = audit.PAUSE_S
        timer.ring()
        assert _times(caplog) == denials.total == 10_050
        assert not timer.calls


def test_no_denial_is_lost_when_others_need_the_room(caplog):
    denials = audit.Denials(lambda: 0.0)
    with caplog.at_level(logging.INFO, "klamm.audit"):
        for _ in range(5_000):
            denials(_denial("User:mallory"))
        for n in range(audit.DENIALS_MAX + 500):
            for i in range(2):
                denials(_denial(f"User:{n}", str(i)))
        denials(_denial("User:mallory"))
        denials.close()
    assert _times(caplog) == denials.total == 5_001 + 2 * (audit.DENIALS_MAX + 500)


def test_denials_of_ever_new_names_are_cut_and_counted(caplog):
    now = [0.0]
    denials = audit.Denials(lambda: now[0])

    def deny(principal, name):
        denials(Denial(
            principal=principal, host="h", operation=AclOperation.READ, resource_type=ResourceType.TOPIC,
            resource_name=name, api="FETCH", rule="none",
        ))  # fmt: skip

    with caplog.at_level(logging.INFO, "klamm.audit"):
        for n in range(500):
            deny("User:ann", f"{n:03}{'x' * 30_000}")
        deny("User:bob", "secret")
        now[0] = audit.PAUSE_S
        deny("User:ann", "secret")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert max(len(line.get("resource", "")) for line in lines) == audit.TEXT_MAX + 1
    assert [line["event"] for line in lines] == [
        *["denied"] * audit.LINES_MAX, "denials are only counted", "denied", "denials left out", "denied",
    ]  # fmt: skip
    assert lines[-2] == {
        "event": "denials left out", "principal": "User:ann", "times": 500 - audit.LINES_MAX,
    }  # fmt: skip


def test_what_the_file_has_holds_even_where_its_name_is_not_on_the_disk_for_sure(tmp_path, monkeypatch):
    found = opened(tmp_path / "acls.json")

    def broken(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("klamm_base.files.sync_directory", broken)
        with pytest.raises(NotSynced, match=r"changed, but a crash of the machine may .*Input/output error"):
            found.store(add=[acl()])
    assert list(found.index) == list(opened(tmp_path / "acls.json").index) == [acl()]


SENDER = RequestContext(
    api_key=31, api_version=3, correlation_id=1, client_id=None, host="h", port=1, listener="L"
)


def test_many_filters_are_used_in_steps_and_each_tells_what_it_selects(tmp_path):
    found = opened(tmp_path / "acls.json")
    found.store(add=[acl(f"t{n}") for n in range(100)])
    filters = [AclFilter(resource_name=f"t{n % 50}") for n in range(100)]
    steps = deletion(found, SENDER, filters)
    for _ in range(100):
        next(steps)
    assert len(found.index) == 100, "one filter in each step"
    results = finish(steps).filter_results
    assert [[a.resource_name for a in r.matching_acls] for r in results] == [
        [f"t{n % 50}"] for n in range(100)
    ]
    assert len(found.index) == 50


def test_filters_that_select_everything_again_and_again_are_refused(tmp_path):
    found = opened(tmp_path / "acls.json")
    found.store(add=[acl(f"t{n}") for n in range(1_000)])
    results = finish(deletion(found, SENDER, [AclFilter()] * 102)).filter_results
    assert {r.error_code for r in results} == {ErrorCode.INVALID_REQUEST}
    assert "the same ACLs more than 100000 times" in results[0].error_message
    assert len(found.index) == 1_000
    assert len(finish(deletion(found, SENDER, [AclFilter()] * 101)).filter_results) == 101
    assert not len(found.index)


def test_refused_logins_of_an_address_are_few_lines_and_a_number(caplog):
    caplog.set_level(logging.INFO, "klamm.audit")
    timers = []
    refused = audit.RefusedLogins(lambda seconds, call: timers.append((seconds, call)))
    for _ in range(audit.LINES_MAX + 5):
        refused("10.0.0.1", "login", why="no such user")
    refused("10.0.0.2", "login", why="no such user")
    ((seconds, tell),) = timers
    assert seconds == audit.PAUSE_S
    tell()
    said = [json.loads(record.getMessage()) for record in caplog.records]
    assert said.pop() == {"event": "refused logins left out", "host": "10.0.0.1", "times": 5}
    assert said == [{"event": "login", "outcome": "refused", "why": "no such user"}] * (audit.LINES_MAX + 1)
    refused("10.0.0.1", "login", why="again")
    assert json.loads(caplog.records[-1].getMessage())["why"] == "again"
    assert len(timers) == 2


def test_refused_logins_of_very_many_addresses_are_few_lines_and_counted(caplog):
    caplog.set_level(logging.INFO, "klamm.audit")
    refused = audit.RefusedLogins(lambda _seconds, _call: None)
    times = 5_000
    for n in range(times):
        refused(f"2001:db8::{n:x}", "login", why="no such user")
    assert len(caplog.records) == audit.REFUSED_MAX
    refused.close()
    said = [json.loads(record.getMessage()) for record in caplog.records]
    left_out = sum(line["times"] for line in said if line["event"] == "refused logins left out")
    assert left_out == times - audit.REFUSED_MAX
    assert len(said) <= audit.REFUSED_MAX + audit.DENIALS_MAX + 1
    refused("2001:db8::1", "login", why="again")
    assert json.loads(caplog.records[-1].getMessage())["why"] == "again"
