"""Elections, reassignments, the quorum, quotas, SCRAM users, ACLs and tokens: what one node without security answers."""

from __future__ import annotations

import hashlib
import stat

import pytest
from support.broker import new_topic
from support.raw import RawClient

from klamm.testing import EmbeddedBroker
from klamm_broker.log.errors import DirectoryError
from klamm_broker.security.sasl.credentials import Mechanism, derive
from klamm_broker.server.client_quotas import QuotaRefused, changed, check_changes, check_entity, check_filter
from klamm_broker.server.scram_users import ScramUsers
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.messages import alter_client_quotas as set_quotas
from klamm_kafka.wire.messages import alter_partition_reassignments as reassign
from klamm_kafka.wire.messages import alter_user_scram_credentials as set_users
from klamm_kafka.wire.messages import create_acls, delete_acls, describe_acls
from klamm_kafka.wire.messages import create_delegation_token as create_token
from klamm_kafka.wire.messages import describe_client_quotas as get_quotas
from klamm_kafka.wire.messages import describe_quorum as quorum
from klamm_kafka.wire.messages import describe_user_scram_credentials as get_users
from klamm_kafka.wire.messages import elect_leaders as elect
from klamm_kafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from klamm_kafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm_kafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from klamm_kafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm_kafka.wire.messages.unregister_broker import UnregisterBrokerRequest

E = ErrorCode


@pytest.fixture
def client(broker):
    with RawClient(broker.port) as connected:
        yield connected


def test_no_election_is_ever_needed(broker, client):
    topic = new_topic(broker)
    asked = [
        elect.TopicPartitions(topic=topic, partitions=[0, 9]),
        elect.TopicPartitions(topic="no", partitions=[0]),
    ]
    answer = client.request(elect.ElectLeadersRequest(topic_partitions=asked), 2)
    found = {
        (t.topic, p.partition_id): p.error_code
        for t in answer.replica_election_results
        for p in t.partition_result
    }
    assert found == {
        (topic, 0): E.ELECTION_NOT_NEEDED,
        (topic, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    everything = client.request(elect.ElectLeadersRequest(topic_partitions=None), 2)
    assert topic in {t.topic for t in everything.replica_election_results}
    assert not any(t.partition_result for t in everything.replica_election_results)
    odd = client.request(elect.ElectLeadersRequest(election_type=7, topic_partitions=asked), 2)
    assert odd.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([1], E.NONE),
        (None, E.NO_REASSIGNMENT_IN_PROGRESS),
        ([], E.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], E.INVALID_REPLICA_ASSIGNMENT),
        ([2], E.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_partition_can_only_be_where_it_is(broker, client, replicas, code):
    topic = new_topic(broker)

    def ask(name, index):
        asked = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [reassign.ReassignableTopic(name=name, partitions=[asked])]
        answer = client.request(reassign.AlterPartitionReassignmentsRequest(topics=topics), 1)
        return answer.responses[0].partitions[0].error_code

    assert ask(topic, 0) == code
    assert ask(topic, 5) == ask("no", 0) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert client.request(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_the_quorum_is_this_node(broker, client):
    def ask(topic, index, version=2):
        asked = [quorum.DescribeQuorumRequestPartitionData(partition_index=index)]
        topics = [quorum.DescribeQuorumRequestTopicData(topic_name=topic, partitions=asked)]
        return client.request(quorum.DescribeQuorumRequest(topics=topics), version)

    answer = ask("__cluster_metadata", 0)
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert (partition.leader_id, voter.replica_id, partition.error_code) == (1, 1, 0)
    assert voter.replica_directory_id != bytes(16)
    assert voter.log_end_offset == partition.high_watermark > 0
    assert [(n.node_id, n.listeners[0].port) for n in answer.nodes] == [(1, broker.port)]
    for version in (0, 1):
        older = ask("__cluster_metadata", 0, version)
        assert (older.topics[0].partitions[0].leader_id, older.nodes) == (1, [])
    for topic, index in (("__cluster_metadata", 1), ("other", 0)):
        assert ask(topic, index).topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_the_only_broker_cannot_be_unregistered(client):
    def ask(broker_id):
        return client.request(UnregisterBrokerRequest(broker_id=broker_id), 0).error_code

    assert ask(7) == E.BROKER_ID_NOT_REGISTERED
    assert ask(1) == E.INVALID_REQUEST


def test_without_an_authorizer_there_are_no_acls(client):
    described = client.request(
        describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), 3
    )
    assert described.error_code == E.SECURITY_DISABLED
    acl = create_acls.AclCreation(
        resource_type=2, resource_name="a", principal="User:x", host="*", operation=2, permission_type=3
    )
    created = client.request(create_acls.CreateAclsRequest(creations=[acl, acl]), 3)
    assert [r.error_code for r in created.results] == [E.SECURITY_DISABLED] * 2
    which = delete_acls.DeleteAclsFilter(resource_type_filter=2, operation=2, permission_type=3)
    deleted = client.request(delete_acls.DeleteAclsRequest(filters=[which]), 3)
    assert [r.error_code for r in deleted.filter_results] == [E.SECURITY_DISABLED]


def test_without_authentication_there_are_no_tokens(client):
    asked = create_token.CreateDelegationTokenRequest(max_lifetime_ms=1000)
    created = client.request(asked, 3)
    assert created.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (created.principal_type, created.principal_name) == ("User", "ANONYMOUS")
    assert client.request(asked, 1).error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for request, version in (
        (RenewDelegationTokenRequest(hmac=b"x"), 2),
        (ExpireDelegationTokenRequest(hmac=b"x"), 2),
        (DescribeDelegationTokenRequest(owners=None), 3),
    ):
        assert client.request(request, version).error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# ---- quotas


@pytest.mark.parametrize(
    ("entity", "changes", "says"),
    [
        ({}, [("producer_byte_rate", 1.0)], "Invalid empty client quota entity"),
        ({"foo": "x"}, [("producer_byte_rate", 1.0)], "Unhandled client quota entity type: foo"),
        ({"user": ""}, [("producer_byte_rate", 1.0)], "Empty user not supported"),
        ({"user": "u", "ip": "::1"}, [("producer_byte_rate", 1.0)], "Invalid quota entity combination"),
        ({"user": "u"}, [("nope", 1.0)], "Invalid configuration key nope"),
        ({"ip": None}, [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        ({"user": "u"}, [("producer_byte_rate", -1.0)], "must be greater than 0"),
        ({"user": "u"}, [("producer_byte_rate", float("nan"))], "must be greater than 0"),
        ({"user": "u"}, [("producer_byte_rate", float("inf"))], "too large for a LONG"),
        ({"ip": "::1"}, [("connection_creation_rate", 3e9)], "too large for an INT"),
        ({"user": "u"}, [("producer_byte_rate", 1.5)], "cannot be a fractional value"),
        (
            {"user": None},
            [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)],
            "Ignoring duplicate entity",
        ),
    ],
)
def test_a_quota_is_refused_with_the_reason(entity, changes, says):
    with pytest.raises(QuotaRefused, match=says):
        check_changes(check_entity(list(entity.items())), changes)


def test_what_is_not_there_can_be_removed():
    changes = [("producer_byte_rate", None), ("request_percentage", 1.5)]
    check_changes(check_entity([("user", "u"), ("client-id", None)]), changes)
    assert changed({"producer_byte_rate": 1.0}, changes) == {"request_percentage": 1.5}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], E.INVALID_REQUEST),
        ([("foo", 2, None)], E.UNSUPPORTED_VERSION),
        ([("user", 9, None)], E.INVALID_REQUEST),
        ([("user", 0, None)], E.INVALID_REQUEST),
        ([("user", 1, "x")], E.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], E.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], E.INVALID_REQUEST),
    ],
)
def test_a_filter_of_quotas_is_checked(components, code):
    with pytest.raises(QuotaRefused) as refused:
        check_filter(components)
    assert refused.value.code is code


def test_quotas_over_the_wire(client):
    user = set_quotas.AlterClientQuotasRequestEntityData(entity_type="user", entity_name="u")
    ops = [set_quotas.OpData(key="producer_byte_rate", value=1e12)]
    entry = set_quotas.AlterClientQuotasRequestEntryData(entity=[user], ops=ops)
    for version in (0, 1):
        for dry, stored in ((True, []), (False, [1e12])):
            request = set_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=dry)
            (answer,) = client.request(request, version).entries
            assert (answer.error_code, answer.error_message) == (0, None)
            told = client.request(get_quotas.DescribeClientQuotasRequest(), version).entries
            assert [value.value for found in told for value in found.values] == stored
        gone = set_quotas.OpData(key="producer_byte_rate", remove=True)
        removal = set_quotas.AlterClientQuotasRequestEntryData(entity=[user], ops=[gone])
        for _ in range(2):
            (answer,) = client.request(
                set_quotas.AlterClientQuotasRequest(entries=[removal]), version
            ).entries
            assert (answer.error_code, answer.error_message) == (0, None), "what is not there can be removed"
        assert client.request(get_quotas.DescribeClientQuotasRequest(), version).entries == []
    twice = set_quotas.AlterClientQuotasRequest(entries=[entry, entry], validate_only=True)
    (answer,) = client.request(twice, 1).entries
    assert answer.error_message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    component = get_quotas.ComponentData(entity_type="foo", match_type=2, match=None)
    refused = client.request(get_quotas.DescribeClientQuotasRequest(components=[component]), 1)
    assert (refused.error_code, refused.entries) == (E.UNSUPPORTED_VERSION, None)


# ---- SCRAM users


def upsert(name, mechanism=1, iterations=4096, salted_password=b"p" * 32):
    return set_users.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted_password,
    )


def delete(name, mechanism=1):
    return set_users.ScramCredentialDeletion(name=name, mechanism=mechanism)


def change(client, *, deletions=(), upsertions=()):
    request = set_users.AlterUserScramCredentialsRequest(
        deletions=list(deletions), upsertions=list(upsertions)
    )
    return {r.user: E(r.error_code) for r in client.request(request, 0).results}


def known(client, *names):
    users = [get_users.UserName(name=name) for name in names] or None
    answer = client.request(get_users.DescribeUserScramCredentialsRequest(users=users), 0)
    return {
        r.user: E(r.error_code) if r.error_code else [(c.mechanism, c.iterations) for c in r.credential_infos]
        for r in answer.results
    }


@pytest.mark.usefixtures("processes")
def test_users_are_kept_and_told(tmp_path):
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert change(client, upsertions=[upsert("bob"), upsert("al", 2, 8192)]) == {"bob": 0, "al": 0}
        assert change(client, upsertions=[upsert("bob", 2)]) == {"bob": 0}
        assert change(client, upsertions=[upsert("bad", 9), upsert("ok")]) == {
            "bad": E.UNSUPPORTED_SASL_MECHANISM,
            "ok": E.NONE,
        }
    path = tmp_path / "data" / "klamm-users.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "pppp" not in path.read_text()
    with EmbeddedBroker(tmp_path / "data") as broker, RawClient(broker.port) as client:
        assert known(client) == {"al": [(2, 8192)], "bob": [(1, 4096), (2, 4096)], "ok": [(1, 4096)]}
        assert known(client, "ok", "no", "al", "al") == {
            "ok": [(1, 4096)],
            "no": E.RESOURCE_NOT_FOUND,
            "al": E.DUPLICATE_RESOURCE,
        }
        assert change(client, deletions=[delete("ok"), delete("bob")]) == {"ok": 0, "bob": 0}
        assert known(client) == {"al": [(2, 8192)], "bob": [(2, 4096)]}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"upsertions": [upsert("")]}, E.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert("u", 0)]}, E.UNSUPPORTED_SASL_MECHANISM),
        ({"upsertions": [upsert("u", 1, 4095)]}, E.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert("u", 1, 16385)]}, E.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert("u", salted_password=b"")]}, E.UNACCEPTABLE_CREDENTIAL),
        ({"upsertions": [upsert("u"), upsert("u", 2)]}, E.DUPLICATE_RESOURCE),
        ({"upsertions": [upsert("u")], "deletions": [delete("u")]}, E.DUPLICATE_RESOURCE),
        ({"deletions": [delete("u")]}, E.RESOURCE_NOT_FOUND),
        ({"deletions": [delete("u", 9)]}, E.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_users_that_cannot_be(client, changes, code):
    assert set(change(client, **changes).values()) == {code}
    assert known(client) == {}


def test_keys_are_those_of_rfc_7677():
    """The example of the RFC: user `user`, password `pencil`."""
    import base64

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    found = derive(Mechanism.SHA256, salt=salt, salted_password=salted, iterations=4096)
    assert base64.b64encode(found.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(found.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    assert "WG5d" not in repr(found)


@pytest.mark.parametrize("content", ["{", '{"version": 2}', '{"version": 1, "users": {"u": {"MD5": {}}}}'])
def test_a_damaged_file_of_users_stops_the_start(tmp_path, content):
    path = tmp_path / "klamm-users.json"
    path.write_text(content)
    with pytest.raises(DirectoryError, match=r"klamm-users\.json"):
        ScramUsers.load(path)
