"""The names of endpoints in `rate.limit.costs`, which are Confluent's. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from klamm_base.configdef import invalid

COSTS: Final = "rate.limit.costs"
_FORM: Final = re.compile(r"vnd\.kafka\.(binary|json|avro|jsonschema|protobuf)\.v2")
_V2: Final = {
    "topics": {"list_names": "list", "get_topic_v2": "get"},
    "partitions": {"list_partitions_v2": "list", "get_partition_v2": "get", "get_offsets": "get-offsets"},
    "produce-to-topic": {"produce": ""},
    "produce-to-partition": {"produce_to_partition": ""},
    "consumers": {
        "create_consumer": "create", "delete_consumer": "delete", "subscribe": "subscribe", "get_subscription": "get-subscription",
        "unsubscribe": "unsubscribe", "assign": "assign", "get_assignments": "get-assignments", "seek": "seek-to-offset",
        "seek_to_beginning": "seek-to-beginning", "seek_to_end": "seek-to-end", "commit_offsets": "commit-offsets",
        "get_committed": "get-committed-offsets", "read_records": "consume-",
    },
}  # fmt: skip
_V3: Final = {
    "clusters": {"list_clusters": "list", "get_cluster": "get"},
    "brokers": {"list_brokers": "list", "get_broker": "get"},
    "cluster-configs": {
        "list_cluster_configs": "list", "alter_cluster_configs": "alter", "get_cluster_config": "get",
        "put_cluster_config": "update", "delete_cluster_config": "delete",
    },
    "brokers-configs": {"list_all_brokers_configs": "list"},
    "broker-configs": {
        "list_broker_configs": "list", "alter_broker_configs": "alter", "get_broker_config": "get",
        "put_broker_config": "update", "delete_broker_config": "delete",
    },
    "topics": {
        "list_topics_v3": "list", "create_topic_v3": "create", "get_topic": "get", "update_topic": "partitions",
        "delete_topic": "delete",
    },
    "topic-configs": {
        "list_configs": "list", "list_all_topics_configs": "list", "alter_configs": "alter", "alter_topics_configs": "alter-multi",
        "get_config": "get", "put_config": "update", "delete_config": "delete",
    },
    "produce": {"produce_v3": "produce-to-topic"},
    "batch-produce": {"produce_batch": "produce-to-topic"},
    "partitions": {"list_partitions": "list", "get_partition": "get"},
    "partition-offsets": {"get_partition_offsets": "list.offsets"},
    "partition-reassignments": {
        "list_reassignments": "list", "list_reassignments_of_topic": "search-by-topic", "get_reassignment": "get",
    },
    "replicas": {"list_replicas": "list", "get_replica": "get", "list_replicas_of_broker": "search-by-broker"},
    "consumer-groups": {"list_consumer_groups": "list", "get_consumer_group": "get"},
    "consumers": {"list_consumers": "list", "get_consumer": "get"},
    "consumer-assignments": {"list_assignments": "list", "get_assignment": "get"},
    "consumer-lags": {"list_lags": "list", "get_lag": "get"},
    "consumer-group-lag-summary": {"get_lag_summary": "get"},
    "acls": {"list_acls": "list", "create_acl": "create", "create_acl_batch": "batch-create", "delete_acls_v3": "delete"},
}  # fmt: skip
_FORMS: Final = ("binary", "json", "avro", "json-schema", "protobuf")
_ELSEWHERE: Final = (
    "api.v2.root.*",
    "api.v2.root.get",
    "api.v2.root.post",
    "api.v2.brokers.*",
    "api.v2.brokers.list",
)
"""Names of endpoints that are not limited, or not here; files may have them."""


def _names() -> dict[str, tuple[str, str]]:
    """Returns the own name and the group's name of each handler; those that end in a format have one that is not whole."""
    found = {}
    for version, groups in (("v2", _V2), ("v3", _V3)):
        for group, handlers in groups.items():
            for handler, word in handlers.items():
                first = "partitions" if group == "partition-offsets" else group
                found[handler] = (f"api.{version}.{first}.{word}", f"api.{version}.{group}.*")
    return found


NAMES: Final[Mapping[str, tuple[str, str]]] = _names()
"""Both names by the handler's."""


def _known() -> frozenset[str]:
    names = {*_ELSEWHERE}
    for own, group in NAMES.values():
        names |= {group, *((own + form for form in _FORMS) if own.endswith((".", "-")) else (own,))}
    return frozenset(names)


def parse_costs(text: str) -> dict[str, int]:
    """Returns costs by name. Raises ConfigError."""
    known, found = _known(), {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, cost = (part.strip() for part in entry.partition("="))
        if not cost.isdecimal() or len(cost) > 9:
            raise invalid(COSTS, text, f"{entry} must be NAME=COST, such as api.v3.brokers.list=2")
        if name not in known:
            raise invalid(COSTS, text, f"there is no endpoint {name}")
        found[name] = int(cost)
    return found


def check_costs(_name: str, value: Any) -> None:
    parse_costs(value)


def cost_of(costs: Mapping[str, int], default: int) -> Callable[[str, Mapping[str, str]], int]:
    """Returns a function that tells the cost of a request by its handler's name and headers: its own, its group's, or the default."""

    def cost(handler: str, headers: Mapping[str, str]) -> int:
        if not costs or handler not in NAMES:
            return default
        own, group = NAMES[handler]
        if own.endswith((".", "-")):
            form = _FORM.search(headers.get("Accept" if own.endswith("-") else "Content-Type", ""))
            own += "binary" if form is None else form[1].replace("jsonschema", "json-schema")
        return costs.get(own, costs.get(group, default))

    return cost
