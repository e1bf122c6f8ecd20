"""v3's resources: every answer is a resource or a list of them, with links to itself and to others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from klamm.admin.configs import Entry
from klamm.admin.groups import Group, Member
from klamm.admin.nodes import Broker, ClusterFacts
from klamm.admin.topics import Partition, Topic
from klamm_broker.security.acl import Acl

Json = dict[str, Any]


class Links:
    """The addresses below /v3/clusters/ID."""

    def __init__(self, base: str, cluster: str) -> None:
        self._base = f"{base}/v3/clusters"
        self.cluster = cluster

    def to(self, *parts: object) -> str:
        return "/".join(
            [self._base, quote(self.cluster, safe=""), *(quote(str(p), safe=":-") for p in parts)]
        )

    def related(self, *parts: object) -> Json:
        return {"related": self.to(*parts)}

    def listed(self, kind: str, found: Iterable[Json], *parts: object, above: bool = False) -> Json:
        """Returns a list; `above`: the list of clusters itself."""
        here = self._base if above else self.to(*parts)
        return {"kind": f"{kind}List", "metadata": {"self": here, "next": None}, "data": list(found)}

    def resource(
        self, kind: str, names: Mapping[str, object], path: tuple[object, ...], fields: Json
    ) -> Json:
        """Returns a resource; `names` are the parts of its resource name below the cluster."""
        named = "".join(f"/{key}={value}" for key, value in names.items())
        metadata = {"self": self.to(*path), "resource_name": f"crn:///kafka={self.cluster}{named}"}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster, **fields}


def cluster(links: Links, facts: ClusterFacts) -> Json:
    fields = {
        "controller": links.related("brokers", facts.controller),
        "acls": links.related("acls"),
        "brokers": links.related("brokers"),
        "broker_configs": links.related("broker-configs"),
        "consumer_groups": links.related("consumer-groups"),
        "topics": links.related("topics"),
        "partition_reassignments": links.related("topics", "-", "partitions", "-", "reassignment"),
    }
    return links.resource("KafkaCluster", {}, (), fields)


def broker(links: Links, node: Broker) -> Json:
    path = ("brokers", node.id)
    fields = {
        "broker_id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "configs": links.related(*path, "configs"),
        "partition_replicas": links.related(*path, "partition-replicas"),
    }
    return links.resource("KafkaBroker", {"broker": node.id}, path, fields)


def topic(links: Links, found: Topic) -> Json:
    path = ("topics", found.name)
    fields = {
        "topic_name": found.name,
        "is_internal": found.internal,
        "replication_factor": found.partitions[0].replication_factor if found.partitions else 0,
        "partitions_count": len(found.partitions),
        "partitions": links.related(*path, "partitions"),
        "configs": links.related(*path, "configs"),
        "partition_reassignments": links.related(*path, "partitions", "-", "reassignment"),
        "authorized_operations": [],
    }
    return links.resource("KafkaTopic", {"topic": found.name}, path, fields)


def partition(links: Links, name: str, found: Partition) -> Json:
    path = ("topics", name, "partitions", found.number)
    fields = {
        "topic_name": name,
        "partition_id": found.number,
        "leader": None if found.leader is None else links.related(*path, "replicas", found.leader),
        "replicas": links.related(*path, "replicas"),
        "reassignment": links.related(*path, "reassignment"),
    }
    return links.resource("KafkaPartition", {"topic": name, "partition": found.number}, path, fields)


def replica(links: Links, name: str, found: Partition, broker_id: int) -> Json:
    path = ("topics", name, "partitions", found.number, "replicas", broker_id)
    fields = {
        "topic_name": name,
        "partition_id": found.number,
        "broker_id": broker_id,
        "is_leader": broker_id == found.leader,
        "is_in_sync": broker_id in found.isr,
        "broker": links.related("brokers", broker_id),
    }
    names = {"topic": name, "partition": found.number, "replica": broker_id}
    return links.resource("KafkaReplica", names, path, fields)


class ConfigPlace(NamedTuple):
    """The thing that a setting is of: its kind of resource, path, the names in the resource's name, and its own field."""

    kind: str
    path: tuple[object, ...]
    names: Mapping[str, object]
    field: Json


def config_place(of: str, name: object) -> ConfigPlace:
    """Returns the place of settings of a topic or a broker (`of`)."""
    field = "topic_name" if of == "topic" else "broker_id"
    return ConfigPlace(f"Kafka{of.title()}Config", (f"{of}s", name, "configs"), {of: name}, {field: name})


ALL_BROKERS: Final = ConfigPlace("KafkaClusterConfig", ("broker-configs",), {}, {"config_type": "BROKER"})


def config(links: Links, place: ConfigPlace, entry: Entry) -> Json:
    """Returns a setting."""
    fields = {
        **place.field,
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.source == "DEFAULT_CONFIG",
        "is_read_only": entry.read_only,
        "is_sensitive": entry.sensitive,
        "source": entry.source,
        "synonyms": [{"name": s.name, "value": s.value, "source": s.source} for s in entry.synonyms],
    }
    key = "broker-config" if place is ALL_BROKERS else "config"
    return links.resource(place.kind, {**place.names, key: entry.name}, (*place.path, entry.name), fields)


def offsets(links: Links, name: str, number: int, wanted: str, found: Mapping[str, int]) -> Json:
    path = ("topics", name, "partitions", number, "offset")
    fields = {
        "topic_name": name,
        "partition_id": number,
        **{f"{each}_offset": offset for each, offset in found.items()},
    }
    names = {"topic": name, "partition": number, "offset_type": wanted}
    return links.resource("KafkaPartition", names, path, fields)


def reassignment(links: Links, name: str, number: int, adding: list[int], removing: list[int]) -> Json:
    path = ("topics", name, "partitions", number)
    fields = {
        "topic_name": name,
        "partition_id": number,
        "adding_replicas": adding,
        "removing_replicas": removing,
        "replicas": links.related(*path, "replicas"),
    }
    names = {"topic": name, "partition": number, "reassignment": ""}
    return links.resource("KafkaReassignment", names, (*path, "reassignment"), fields)


def group(links: Links, found: Group) -> Json:
    path = ("consumer-groups", found.group)
    fields = {
        "consumer_group_id": found.group,
        "is_simple": not found.assignor and not found.members,
        "partition_assignor": found.assignor,
        "state": found.state.upper().replace(" ", "_"),
        "type": found.type.upper(),
        "coordinator": links.related("brokers", found.coordinator.id),
        "consumers": links.related(*path, "consumers"),
        "lag_summary": links.related(*path, "lag-summary"),
    }
    return links.resource("KafkaConsumerGroup", {"consumer-group": found.group}, path, fields)


def consumer(links: Links, name: str, found: Member) -> Json:
    path = ("consumer-groups", name, "consumers", found.id)
    fields = {
        "consumer_group_id": name,
        "consumer_id": found.id,
        "instance_id": found.instance_id,
        "client_id": found.client_id,
        "assignments": links.related(*path, "assignments"),
    }
    return links.resource("KafkaConsumer", {"consumer-group": name, "consumer": found.id}, path, fields)


def assignment(links: Links, name: str, member: str, topic_name: str, number: int) -> Json:
    path = ("consumer-groups", name, "consumers", member, "assignments", topic_name, "partitions", number)
    fields = {
        "consumer_group_id": name,
        "consumer_id": member,
        "topic_name": topic_name,
        "partition_id": number,
        "partition": links.related("topics", topic_name, "partitions", number),
        "lag": links.related("topics", topic_name, "partitions", number, "lags", name),
    }
    names = {"consumer-group": name, "consumer": member, "assignment": topic_name, "partition": number}
    return links.resource("KafkaConsumerAssignment", names, path, fields)


def acl(links: Links, found: Acl) -> Json:
    words = {
        "resource_type": found.resource_type.name,
        "resource_name": found.resource_name,
        "pattern_type": found.pattern_type.name,
        "principal": found.principal,
        "host": found.host,
        "operation": found.operation.name,
        "permission": found.permission.name,
    }
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in words.items())
    made = links.resource("KafkaAcl", {}, ("acls",), words)
    made["metadata"]["self"] += f"?{query}"
    return made
