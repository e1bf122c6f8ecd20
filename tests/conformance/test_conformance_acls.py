"""Rights: the same requests of the same users to our broker and to Apache Kafka, both with an authorizer and the same ACLs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from support import acl_group_cases, acl_refusals, kafka_oracle
from support.acl_cases import ACLS, ADMIN, GROUPS, TOPICS, USERS, Case, ask, requests_of
from support.broker import wait_until
from support.kafka_broker import KafkaBroker, free_port
from support.secure_broker import LoginClient
from support.secure_kafka import PLAIN, property_

from klamm.testing import EmbeddedBroker
from klamm_kafka.wire.api_keys import ApiKey as K
from klamm_kafka.wire.errors import ErrorCode
from klamm_kafka.wire.struct import Struct

pytestmark = pytest.mark.usefixtures("apache_kafka")

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGINS = f"{PLAIN} required " + " ".join(f'user_{user}="{user}-secret"' for user in USERS) + ";"
CONFIG = {
    "authorizer.class.name": STANDARD,
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "delegation.token.secret.key": "token-secret-key",
    "node.id": "1",
    "log.retention.ms": "-1",  # the records are of 2023: Kafka would delete them at some time within the test
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
} | acl_group_cases.CONFIG
SEEN: Final = ("error_code", "operations", "name", "topic", "key", "topic_id", "group_id", "user", "transactional_id", "resource_name", "owner", "is_internal", "session_id", "status_code", "status_detail")  # fmt: skip
"""Endings of the fields that are compared: errors, rights, and what is told of at all."""


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    port: int
    topic_ids: dict[str, bytes]

    @contextmanager
    def client(self, user: str) -> Iterator[LoginClient]:
        with LoginClient(self.port) as client:
            assert not client.plain(user, f"{user}-secret").error_code
            yield client

    def answer(self, user: str, case: Case) -> Any:
        """Returns what is compared of an answer; a connection that is closed is an answer, too."""
        what, message, version = case
        with self.client(user) as client:
            try:
                answer = client.request(message, version)
            except ConnectionError:
                return "connection closed"
        if what.startswith("METADATA") and "to be created" in what:
            return self._created(answer)
        if what.startswith("CREATE_DELEGATION_TOKEN") and not answer.error_code:
            self._await_token(answer.token_id)
        if what.startswith(
            "SHARE_FETCH"
        ):  # whether a partition without records is told is a matter of the moment
            for topic in answer.responses:
                topic.partitions = [p for p in topic.partitions if p.error_code]
            answer.responses = [topic for topic in answer.responses if topic.partitions]
        return self._seen(what, answer)

    def _await_token(self, token_id: str) -> None:
        """Returns when the broker knows a token: Kafka answers before that."""
        everyone = ask(K.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)[1]
        with self.client(ADMIN) as client:
            wait_until(
                lambda: token_id in {t.token_id for t in client.request(everyone, 3).tokens},
                f"a token at {self.name}",
            )

    def _created(self, answer: Any) -> str:
        """Returns whether a topic may be created: Kafka answers before it exists, ours afterwards."""
        (topic,) = answer.topics
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return "denied"
        find = ask(K.METADATA, 9, topics=[{"name": topic.name}])[1]
        with self.client(ADMIN) as client:
            wait_until(
                lambda: not client.request(find, 9).topics[0].error_code, f"{topic.name} at {self.name}"
            )
        return "allowed"

    def _seen(self, what: str, value: Any) -> Any:
        """Returns the compared fields, as text; lists of structs sorted, as Kafka keeps no order."""
        if not isinstance(value, Struct):
            return value
        seen: dict[str, Any] = {}
        for spec in type(value).FIELDS:
            inner = getattr(value, spec.name)
            if isinstance(inner, list) and inner and isinstance(inner[0], Struct):
                seen[spec.name] = sorted((self._seen(what, item) for item in inner), key=repr)
            elif isinstance(inner, Struct):
                seen[spec.name] = self._seen(what, inner)
            elif spec.name.endswith(SEEN):
                seen[spec.name] = self._plain(what, spec.name, inner)
        return seen

    def _plain(self, what: str, name: str, value: Any) -> Any:
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name.endswith("session_id"):
            return bool(value)
        if isinstance(value, bytes):
            if what.startswith("CREATE_TOPICS"):
                return "an id or none"  # Kafka makes ids also for topics that it only validates
            known = {id_: f"id of {name}" for name, id_ in self.topic_ids.items()}
            return known.get(value, "no id" if not any(value) else "an id")
        return value


def prepared(name: str, port: int) -> Place:
    """Makes topics, groups and ACLs."""
    place = Place(name, port, {})
    with place.client(ADMIN) as client:
        new = [{"name": t, "num_partitions": 1, "replication_factor": 1} for t in TOPICS]
        _, message, version = ask(K.CREATE_TOPICS, 7, topics=new, timeout_ms=30_000)
        place.topic_ids.update({t.name: t.topic_id for t in client.request(message, version).topics})
        listed = [{"name": t, "partitions": [{"partition_index": 0, "timestamp": -1}]} for t in TOPICS]
        _, message, version = ask(K.LIST_OFFSETS, 5, replica_id=-1, topics=listed)
        wait_until(lambda: not any(t.partitions[0].error_code for t in client.request(message, version).topics), "leaders")  # fmt: skip
        for kind in (0, 1):
            _, find, _ = ask(K.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["x"])
            wait_until(lambda f=find: not client.request(f, 4).coordinators[0].error_code, "coordinators")  # type: ignore[misc]
        for group in GROUPS:
            rows = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}]  # fmt: skip
            _, message, version = ask(K.OFFSET_COMMIT, 8, group_id=group, topics=rows)
            wait_until(
                lambda m=message: not client.request(m, 8).topics[0].partitions[0].error_code, "a commit"
            )  # type: ignore[misc]
        init = ask(K.INIT_PRODUCER_ID, 4, transactional_id="t-orders", transaction_timeout_ms=60_000)[1]
        wait_until(lambda: not client.request(init, 4).error_code, "transactions")
        acl_group_cases.prepare(client)
        _, message, version = ask(K.CREATE_ACLS, 3, creations=[])
        message.creations = list(ACLS)
        results = client.request(message, version).results
        assert not any(r.error_code for r in results), results
        listing = ask(K.DESCRIBE_ACLS, 3, resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                      principal_filter=None, host_filter=None, operation=1, permission_type=1)[1]  # fmt: skip
        wait_until(
            lambda: sum(len(r.acls) for r in client.request(listing, 3).resources) == len(ACLS), "ACLs"
        )
    return place


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"
    config = CONFIG | {"listeners": listeners, "plain.sasl.jaas.config": LOGINS}
    with EmbeddedBroker(tmp_path_factory.mktemp("acls-ours") / "data", config=config):
        yield prepared("ours", port)


class SaslKafka(KafkaBroker):
    """Apache Kafka with CONFIG: PLAINTEXT for the tests' start, SASL_PLAINTEXT with PLAIN for users."""

    def __init__(self, work: Path, config: Mapping[str, str]) -> None:
        self.sasl_port, plain, controller = free_port(), free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port},CONTROLLER://127.0.0.1:{controller}"
        super().__init__(
            work,
            {
                **config,
                "listeners": listeners,
                "advertised.listeners": listeners,
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": property_(LOGINS),
            },
        )
        self.port = plain


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    kafka_oracle.require()
    with SaslKafka(tmp_path_factory.mktemp("acls-kafka"), CONFIG) as running:
        yield prepared("Kafka", running.sasl_port)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("requests", "least"),
    [(requests_of, 100), (acl_group_cases.requests_of, 40)],
    ids=["most", "share and Streams"],
)
def test_every_request_of_a_user_has_the_same_answer(
    requests: Callable[[str, Mapping[str, bytes]], Iterator[Case]],
    least: int,
    user: str,
    ours: Place,
    kafka: Place,
) -> None:
    differ, cases = [], 0
    for mine, theirs in zip(requests(user, ours.topic_ids), requests(user, kafka.topic_ids), strict=True):
        cases += 1
        a, b = ours.answer(user, mine), kafka.answer(user, theirs)
        if a != b:
            differ.append(f"{mine[0]}\n    ours:  {a}\n    Kafka: {b}")
    assert not differ, "\n".join(differ)
    assert cases > least


def test_a_share_fetch_of_an_unknown_topic_is_told(ours: Place, kafka: Place) -> None:
    """Kafka's answer is a defect of its authorizer: it asks for the right to a topic without a name."""
    case = acl_group_cases.unknown_share_fetch()
    assert kafka.answer(ADMIN, case) == {"error_code": "UNKNOWN_SERVER_ERROR"}
    (topic,) = ours.answer(ADMIN, case)["responses"]
    assert [p["error_code"] for p in topic["partitions"]] == ["UNKNOWN_TOPIC_ID"]


def test_what_can_be_an_acl_and_a_filter(ours: Place, kafka: Place) -> None:
    """In full, but for the words of errors: whether there are some counts, and codes."""
    differ = []
    for case in acl_refusals.requests():
        a, b = (told(place, case) for place in (ours, kafka))
        if a != b:
            differ.append(f"{case[0]}\n    ours:  {a}\n    Kafka: {b}")
        if not case[0].startswith("DESCRIBE"):  # Kafka answers before its broker knows of the change
            wait_until(lambda: acls_of(ours) == acls_of(kafka), f"the ACLs of both after {case[0]}")
    assert not differ, "\n".join(differ)


def acls_of(place: Place) -> Any:
    listing = ask(K.DESCRIBE_ACLS, 3, resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                  principal_filter=None, host_filter=None, operation=1, permission_type=1)[1]  # fmt: skip
    with place.client(ADMIN) as client:
        return everything(client.request(listing, 3).resources)


def test_codes_of_filters_make_no_acl(ours: Place, kafka: Place) -> None:
    """Kafka's answer is a defect: it has made nothing, and says that it does not know why."""
    for case in acl_refusals.with_any():
        assert [r["error_code"] for r in told(kafka, case)["results"]] == [-1, -1]
        assert [r["error_code"] for r in told(ours, case)["results"]] == [0, ErrorCode.INVALID_REQUEST]


def told(place: Place, case: Case) -> Any:
    _, message, version = case
    with place.client(ADMIN) as client:
        try:
            answer = client.request(message, version)
        except ConnectionError:
            return "connection closed"
    return everything(answer)


def everything(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((everything(item) for item in value), key=repr)
    if not isinstance(value, Struct):
        return value
    found = {spec.name: getattr(value, spec.name) for spec in type(value).FIELDS}
    return {name: bool(v) if name == "error_message" else everything(v) for name, v in found.items()}
