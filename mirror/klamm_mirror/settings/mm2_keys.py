"""The verdict on every key that MirrorMaker 2 reads: honoured, refused, or warned of. Pure, but for reading the table.

The table is `mm2_keys.json`: for each space of keys, Kafka's keys with type, default, verdict, the reason, and the
values that need neither warning nor refusal. `tests/support/mirror_keys.py` makes it from Kafka's jars and keeps the
verdicts.

| space | keys of |
|---|---|
| `file` | `KEY` in mm2.properties: MirrorMakerConfig |
| `connector` | `A->B.KEY` and JSON: the three connectors, their filters, Connect's source connectors |
| `worker` | `A.KEY`: DistributedConfig |
| `common` | all of these: MirrorClientConfig (TLS, SASL, policy) |
| `consumer`, `producer`, `admin` | clients, behind a prefix |

The consumer at the source and the producer at the target carry records, so their settings count in full. The mirror's
other clients have an admin client's settings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from klamm_base.properties import suggestion
from klamm_plugins.original_keys import HONOURED, Ruling, Table, Verdict, read_table

KINDS: Final = ("consumer", "producer", "admin")
SIDES: Final = ("source", "target")
FAMILIES: Final = {
    "transforms.": "transforms",
    "predicates.": "predicates",
    "topic.creation.": "topic.creation.groups",
    "config.providers.": "config.providers",
    **{f"{part}.converter.": f"{part}.converter" for part in ("key", "value", "header")},
}
"""Prefixes of keys that the table cannot list, because they contain names of users. Each has the verdict of a key."""

REGISTRY: Final = frozenset(
    {
        "schema.registry.url",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "bearer.auth.token",
        "schema.registry.ssl.truststore.location",
        "schema.registry.request.timeout.ms",
    }
)
"""Settings of a cluster's schema registry."""

_SCHEMA_IDS: Final = ("sync.schemas.enabled", "sync.schemas.ids")
BYTE_ARRAY: Final = ("org.apache.kafka.connect.converters.ByteArrayConverter", "ByteArrayConverter")

_CLIENT: Final = re.compile(
    r"(?:(?P<side>source|target)\.(?:cluster\.)?)?(?P<kind>consumer|producer|admin)\.(?P<name>.+)"
)
_CLUSTER: Final = re.compile(r"(?P<side>source|target)\.cluster\.(?P<name>.+)")
_OVERRIDE: Final = re.compile(r"(?P<kind>consumer|producer|admin)\.override\.(?P<name>.+)")
_STORAGE: Final = re.compile(r"(config|offset|status)\.storage\..+")
_RECORDS: Final = re.compile(
    r"(transforms|predicates|(key|value|header)\.converter)(\..+)?"
    r"|errors\.(tolerance|retry\..+|log\..+|deadletterqueue\..+)"
)
_OURS: Final = re.compile(r"(task|restart|errors\.deadletterqueue|mirror\.origin)\..+")
"""Prefixes of keys of our own, with names of users in them, or of Klamm's Connect runtime."""


def table() -> Table:
    """Returns the keys by space and name."""
    return read_table("klamm_mirror.settings", "mm2_keys.json")


def rule_connector(name: str, value: str, own: Collection[str] = ()) -> Ruling:
    """Judges a key of a connector. `own` are further keys that connectors define."""
    keys = table()
    if name in keys["connector"]:
        return keys["connector"][name].rule(value)
    if name in own or name in keys["common"]:
        return keys["common"][name].rule(value) if name in keys["common"] else HONOURED
    if match := _OVERRIDE.fullmatch(name):
        return _rule_override(match["kind"], match["name"], value)
    if match := _CLIENT.fullmatch(name):
        sides = [match["side"]] if match["side"] else SIDES
        return _best(_rule_client(side, match["kind"], match["name"], value) for side in sides)
    if match := _CLUSTER.fullmatch(name):
        return _rule_cluster_client(match["side"], match["name"], value)
    if family := _family(name):
        return keys["connector"][family].rule("")
    if _OURS.fullmatch(name):
        return HONOURED
    return _unknown(name, "the mirror's connectors", {*keys["connector"], *keys["common"], *own})


def rule_cluster(name: str, value: str, sides: Collection[str], own: Collection[str] = ()) -> Ruling:
    """Judges `A.NAME` in a file. `sides`: A is the `source` or the `target` of enabled flows, or has a `worker` of any.
    `own`: a worker's further keys.
    """
    keys = table()
    if not sides:
        return Ruling(Verdict.WARNED, "no flow that runs has this cluster")
    if name in REGISTRY:
        return HONOURED
    clients = [side for side in SIDES if side in sides] or ["target"]
    if match := _CLIENT.fullmatch(name):
        if match["side"] is None:
            return _best(_rule_client(side, match["kind"], match["name"], value) for side in clients)
    elif name not in keys["worker"] and (family := _family(name)):
        if family in keys["worker"]:
            return _rule_worker(keys["worker"][family].rule(""), sides)
    elif name in keys["common"]:
        return keys["common"][name].rule(value)
    rulings = [_rule_cluster_client(side, name, value) for side in clients if _of_clients(name)]
    if name in keys["worker"]:
        rulings.append(_rule_worker(keys["worker"][name].rule(value), sides))
    elif name in own or _STORAGE.fullmatch(name):
        rulings.append(_rule_worker(HONOURED, sides))
    if rulings:
        return _best(rulings)
    if name in keys["connector"]:
        return Ruling(Verdict.WARNED, f"it is a setting of flows: write SOURCE->TARGET.{name}")
    return _unknown(name, "clusters", {*keys["worker"], *keys["common"], *own, *_client_names()})


def rule_file(name: str, value: str, own: Collection[str] = (), worker: Collection[str] = ()) -> Ruling:
    """Judges a key without a cluster or a flow. `own` are further keys of connectors, `worker` of workers."""
    keys = table()
    if name in keys["file"]:
        return keys["file"][name].rule(value)
    if name in keys["common"]:
        return keys["common"][name].rule(value)
    if name in keys["connector"] or name in own or _family(name):
        return rule_connector(name, value, own)
    if _STORAGE.fullmatch(name) or (
        name.startswith(("task", "worker")) and name in {*worker, *keys["worker"]}
    ):
        return keys["worker"][name].rule(value) if name in keys["worker"] else HONOURED
    if _CLIENT.fullmatch(name) or _CLUSTER.fullmatch(name):
        ruling = rule_connector(name, value, own)
        if ruling.verdict is Verdict.HONOURED:
            return Ruling(Verdict.WARNED, f"it needs a flow or a cluster: write SOURCE->TARGET.{name}")
        return ruling
    if name in REGISTRY:
        return Ruling(
            Verdict.WARNED, f"each cluster has its own registry: write SOURCE.{name} and TARGET.{name}"
        )
    if name in keys["worker"] or name in worker:
        return Ruling(Verdict.WARNED, f"it is a worker's setting: write TARGET.{name}")
    if _of_clients(name):
        return Ruling(Verdict.WARNED, f"it is a client's setting: write SOURCE.consumer.{name} and so on")
    return _unknown(name, "the mirror", {*keys["file"], *keys["connector"], *keys["common"], *own})


def is_of_worker(name: str, own: Collection[str] = ()) -> bool:
    """Returns True for a key that a worker takes, among the settings of its cluster."""
    keys = table()
    return (
        name in keys["worker"] or name in keys["common"] or name in own
        or name.split(".", maxsplit=1)[0] in KINDS or bool(_family(name)) or bool(_STORAGE.fullmatch(name))
    )  # fmt: skip


def is_of_records(name: str) -> bool:
    """Returns True for a setting of what happens to records on their way: only MirrorSourceConnector has such records."""
    return bool(_RECORDS.fullmatch(name))


def changing_keys(config: Mapping[str, str]) -> list[str]:
    """Returns the keys of a source connector by which its records differ from their sources: transforms, converters, ids of
    schemas.
    """
    converters = (f"{part}.converter" for part in ("key", "value", "header"))
    found = [key for key in converters if config.get(key, "").strip() not in {"", *BYTE_ARRAY}]
    if [config.get(key, "").strip().lower() for key in _SCHEMA_IDS] == ["true", "translate"]:
        found.append("sync.schemas.ids")
    return (["transforms"] if config.get("transforms", "").strip() else []) + found


def passes_to_connector(name: str, value: str) -> bool:
    """Returns True for a cluster's setting, with its prefix, that a connector gets. As in MirrorMaker, it gets the
    connection settings of all clients, also of those that it does not open.
    """
    if rule_connector(name, value).verdict is Verdict.HONOURED:
        return True
    match = _CLIENT.fullmatch(name)
    return match is not None and match["name"] in table()["common"]


def is_of_family(name: str) -> bool:
    """Returns True for a setting of a transform, predicate, converter, topic creation group or config provider."""
    return _family(name) is not None


def _rule_worker(ruling: Ruling, sides: Collection[str]) -> Ruling:
    if "worker" in sides or ruling.verdict is Verdict.WARNED:
        return ruling
    return Ruling(
        Verdict.WARNED, "the worker of a flow runs at its target, and this cluster is only a source"
    )


def _rule_client(side: str, kind: str, name: str, value: str) -> Ruling:
    """Judges a setting of one of the mirror's clients."""
    keys = table()
    if name in keys["common"]:
        if (side, kind) == ("target", "consumer"):
            return Ruling(
                Verdict.WARNED, f"the mirror reads at the target as its admin client does: {_see(name)}"
            )
        return keys["common"][name].rule(value)
    if name not in keys[kind]:
        return (
            _unknown(name, f"a {kind}", {*keys[kind], *keys["common"]})
            if name not in _client_names()
            else (Ruling(Verdict.WARNED, f"it is no setting of a {kind}"))
        )
    own = keys[kind][name].rule(value)
    if kind == "admin" or (side, kind) in {("source", "consumer"), ("target", "producer")}:
        return own
    if own.verdict is Verdict.HONOURED and side == "source" and name in keys["admin"]:
        return keys["admin"][name].rule(value)
    if own.verdict is Verdict.HONOURED and value.strip() not in keys[kind][name].fine:
        return Ruling(Verdict.WARNED, f"no records pass the {kind} at the {side}")
    return own if own.verdict is not Verdict.REFUSED else Ruling(Verdict.WARNED, own.why)


def _see(name: str) -> str:
    return f"write target.admin.{name}, or for a cluster admin.{name}"


def _rule_override(kind: str, name: str, value: str) -> Ruling:
    if kind == "producer":
        return _rule_client("target", "producer", name, value)
    why = (
        "the mirror's consumer is source.consumer"
        if kind == "consumer"
        else "the mirror's are source.admin and target.admin"
    )
    return Ruling(Verdict.WARNED, why)


def _rule_cluster_client(side: str, name: str, value: str) -> Ruling:
    """Judges a setting for all clients of a cluster."""
    keys = table()
    if name == "alias" or name in REGISTRY:
        return HONOURED
    if name in keys["common"]:
        return keys["common"][name].rule(value)
    found = [_rule_client(side, kind, name, value) for kind in KINDS if name in keys[kind]]
    return (
        _best(found) if found else _unknown(name, "a cluster's clients", {*keys["common"], *_client_names()})
    )


def _of_clients(name: str) -> bool:
    return any(name in table()[kind] for kind in KINDS)


def _client_names() -> set[str]:
    return {name for kind in KINDS for name in table()[kind]}


def _family(name: str) -> str | None:
    return next((key for prefix, key in FAMILIES.items() if name.startswith(prefix)), None)


def _best(rulings: Iterable[Ruling]) -> Ruling:
    return min(rulings, key=lambda ruling: list(Verdict).index(ruling.verdict))


RETIRED: Final = {
    f"{what}.blacklist": f"{what}.exclude" for what in ("topics", "groups", "config.properties")
}
"""Names that MirrorMaker's keys had up to Kafka 3, and those that they have now."""


def _unknown(name: str, of: str, known: Collection[str]) -> Ruling:
    if name in RETIRED:
        return Ruling(
            Verdict.WARNED, f"Kafka 4.0 has removed it. What it names is not left out: write {RETIRED[name]}"
        )
    return Ruling(Verdict.WARNED, f"it is no setting of {of}{suggestion(name, sorted(known))}", unknown=True)
