"""The authorizer against a naive one that reads every ACL; filters; decisions that are remembered."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm_broker.security.acl import Acl, AclFilter
from klamm_broker.security.authorizer import Authorizer, Denial, super_users
from klamm_broker.security.principal import KafkaPrincipal
from klamm_kafka.wire.acls import AclOperation as O
from klamm_kafka.wire.acls import AclPermissionType as P
from klamm_kafka.wire.acls import PatternType, ResourceType

L, PRE = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NAMES = ("a", "ab", "abc", "b", "*")
USERS = ("User:ann", "User:bob", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
OPERATIONS = (O.ALL, O.READ, O.WRITE, O.DELETE, O.ALTER, O.DESCRIBE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS)
IMPLIED = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER, O.DESCRIBE},
    O.DESCRIBE_CONFIGS: {O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS},
}
ANN = KafkaPrincipal("User", "ann")


def acl(name="a", **more):
    usual = {
        "resource_type": TOPIC, "pattern_type": L, "principal": "User:ann", "host": "*", "operation": O.READ,
        "permission": P.ALLOW,
    }  # fmt: skip
    return Acl(resource_name=name, **{**usual, **more})


ACLS = st.builds(
    acl,
    name=st.sampled_from(NAMES),
    resource_type=st.sampled_from((TOPIC, GROUP)),
    pattern_type=st.sampled_from((L, PRE)),
    principal=st.sampled_from(USERS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from((P.ALLOW, P.DENY)),
)
QUESTIONS = list(itertools.product(USERS[:2], HOSTS[1:], OPERATIONS[1:], (TOPIC, GROUP), NAMES[:4]))


def authorizer(*acls, supers="", without=False):
    denied: list[Denial] = []
    found = Authorizer(super_users=super_users(supers), allow_without_acls=without, on_denied=denied.append)
    found.change(add=acls)
    return found, denied


def naive(acls, user, host, operation, kind, name, *, without):
    """Decides by all rules, read one by one."""

    def fits_name(a):
        if a.pattern_type is L:
            return a.resource_name in (name, "*")
        return name.startswith(a.resource_name)

    of_resource = [a for a in acls if a.resource_type is kind and fits_name(a)]
    mine = [a for a in of_resource if a.principal in (user, "User:*") and a.host in ("*", host)]
    if any(a.permission is P.DENY and a.operation in (operation, O.ALL) for a in mine):
        return False
    enough = IMPLIED.get(operation, {operation}) | {O.ALL}
    if any(a.permission is P.ALLOW and a.operation in enough for a in mine):
        return True
    return without and not of_resource


@settings(max_examples=150)
@given(acls=st.lists(ACLS, max_size=12), gone=st.lists(st.integers(0, 11), max_size=6), without=st.booleans())
def test_it_decides_as_all_rules_read_one_by_one(acls, gone, without):
    """With some of the ACLs removed again, so that the index is taken down as well as built up."""
    found, _ = authorizer(*acls, without=without)
    removed = [acls[n] for n in gone if n < len(acls)]
    found.change(remove=removed)
    left = [a for a in dict.fromkeys(acls) if a not in removed]
    assert list(found.index) == left
    for user, host, operation, kind, name in QUESTIONS:
        asked = (user, host, operation, kind, name)
        assert found.decide(*asked).allowed == naive(left, *asked, without=without), asked


@settings(max_examples=150)
@given(acls=st.lists(ACLS, max_size=12))
def test_some_topic_may_be_written_as_kafka_defines_it(acls):
    """An ACL must allow a pattern that no denial of the same or a shorter pattern covers."""
    found, _ = authorizer(*acls)
    for user, host in itertools.product(USERS[:2], HOSTS[1:]):
        mine = [
            a for a in acls
            if a.resource_type is TOPIC and a.operation in (O.WRITE, O.ALL)
            and a.principal in (user, "User:*") and a.host in ("*", host)
        ]  # fmt: skip
        denied = {(a.pattern_type, a.resource_name) for a in mine if a.permission is P.DENY}

        def open_(a, denied=denied):
            if any((PRE, a.resource_name[:n]) in denied for n in range(1, len(a.resource_name) + 1)):
                return (a.pattern_type, a.resource_name) == (L, "*")
            return a.pattern_type is PRE or (L, a.resource_name) not in denied

        wanted = (L, "*") not in denied and any(open_(a) for a in mine if a.permission is P.ALLOW)
        usual = naive(acls, user, host, O.WRITE, TOPIC, "hardcode", without=False)
        assert found.decide_any(user, host, O.WRITE, TOPIC) == (wanted or usual)


def test_a_super_user_is_denied_nothing():
    found, denied = authorizer(
        acl("*", operation=O.ALL, permission=P.DENY), supers=" User:ann ; User:CN=x,O=y"
    )
    assert found.decide("User:ann", "h", O.WRITE, TOPIC, "a").allowed
    assert found.access(ANN, "h").may_any(O.WRITE, TOPIC)
    assert not found.decide("User:bob", "h", O.WRITE, TOPIC, "a").allowed
    assert not denied


@pytest.mark.parametrize("text", ["ann", ":ann", "User:", "User:a;bob"])
def test_super_users_are_principals(text):
    with pytest.raises(ValueError, match="principalType:principalName"):
        super_users(text)


def test_a_decision_is_remembered_until_acls_change():
    found, denied = authorizer()
    access = found.access(ANN, "h")
    assert access is found.access(KafkaPrincipal("User", "ann"), "h")
    assert not access.may(O.WRITE, TOPIC, "a", "PRODUCE")
    assert [d.rule for d in denied] == ["the resource has no ACL, and allow.everyone.if.no.acl.found=false"]
    may_write = acl("a", operation=O.WRITE)
    found.change(add=[may_write])
    assert access.may(O.WRITE, TOPIC, "a", "PRODUCE")
    assert access.writable == {"a"}
    assert access.readable == set()
    version = access.version
    found.change(remove=[may_write])
    assert access.version == version + 1
    assert access.writable == set()
    assert not access.may(O.WRITE, TOPIC, "a", "PRODUCE", tell=False)
    assert len(denied) == 1


def test_what_is_remembered_has_a_bound(monkeypatch):
    monkeypatch.setattr("klamm_broker.security.authorizer.REMEMBERED_MAX", 3)
    found, _ = authorizer(acl("*", operation=O.ALL))
    access = found.access(ANN, "h")
    for n in range(10):
        assert access.may(O.READ, TOPIC, f"t{n}", "FETCH")
        assert f"t{n}" in access.readable
        assert len(access.readable) <= 3


def test_long_names_are_not_remembered():
    found, _ = authorizer(acl("*", operation=O.ALL))
    access = found.access(ANN, "h")
    for size in (249, 250):
        assert access.may(O.READ, TOPIC, "x" * size, "FETCH")
    assert {len(name) for *_, name in access._known} == {249}
    assert {len(name) for name in access.readable} == {249}


def test_the_rule_is_named():
    deny = acl("ab", pattern_type=PRE, permission=P.DENY)
    found, _ = authorizer(acl("*"), deny)
    assert found.decide("User:ann", "h", O.READ, TOPIC, "abc").rule is deny
    assert str(deny) == "User:ann is denied READ on TOPIC PREFIXED ab from host *"
    assert found.decide("User:ann", "h", O.READ, TOPIC, "x").rule == acl("*")
    assert "none allows it" in str(found.decide("User:ann", "h", O.WRITE, TOPIC, "x").rule)


FILTERS = st.builds(
    AclFilter,
    resource_type=st.sampled_from((TOPIC, GROUP, ResourceType.ANY)),
    resource_name=st.sampled_from((*NAMES, "abcd", None)),
    pattern_type=st.sampled_from((L, PRE, PatternType.ANY, PatternType.MATCH)),
    principal=st.sampled_from((*USERS, None)),
    operation=st.sampled_from((O.READ, O.ANY)),
)


@given(st.lists(ACLS, max_size=12), FILTERS)
def test_a_filter_selects_as_if_all_acls_were_read(acls, wanted):
    found, _ = authorizer(*acls)
    told = found.select(wanted)
    assert len(told) == len(set(told))
    assert set(told) == {acl for acl in acls if wanted.matches(acl)}


@pytest.mark.parametrize("named", [{"resource_name": "t7"}, {"principal": "User:7"}])
def test_a_filter_that_names_something_reads_few_acls(named):
    found, _ = authorizer(*(acl(f"t{n}", principal=f"User:{n}") for n in range(1_000)))
    assert len(list(found.index.candidates(AclFilter(**named)))) == 1


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["a L", "ab L", "* L", "a P", "b P"]),
        ({"resource_name": "ab"}, ["ab L"]),
        ({"resource_name": "ab", "pattern_type": PatternType.MATCH}, ["ab L", "* L", "a P"]),
        ({"resource_name": "a"}, ["a L", "a P"]),
        ({"resource_name": "a", "pattern_type": PRE}, ["a P"]),
        ({"pattern_type": L}, ["a L", "ab L", "* L"]),
        ({"resource_type": GROUP}, []),
        ({"principal": "User:bob"}, []),
        ({"operation": O.WRITE}, []),
        ({"permission": P.DENY}, []),
        ({"host": "10.0.0.1"}, []),
    ],
)
def test_filters_select_by_kafkas_rules(wanted, names):
    acls = [acl("a"), acl("ab"), acl("*"), acl("a", pattern_type=PRE), acl("b", pattern_type=PRE)]
    found, _ = authorizer(*acls)
    told = [f"{a.resource_name} {a.pattern_type.name[0]}" for a in found.select(AclFilter(**wanted))]
    assert told == names
    if not names:  # each of these fields is compared
        fitting = replace(acls[0], **wanted)
        assert AclFilter(**wanted).matches(fitting)
