"""`kafka-acls`: add, remove and list ACLs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from klamm.admin.acls import create_acls, delete_acls, describe_acls
from klamm.admin.errors import AdminError
from klamm.kafka_tools.failures import with_class
from klamm.kafka_tools.options import COMMAND_CONFIG, Option, Options, UsageError
from klamm.kafka_tools.run import with_admin
from klamm_broker.security.acl import WILDCARD, Acl, AclFilter
from klamm_kafka.wire.acls import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType

SUMMARY = "manage ACLs."
OPTIONS = (
    Option("bootstrap-server", "REQUIRED: The brokers to connect to.", "HOST:PORT,..."),
    Option("bootstrap-controller", "Kafka's: a controller to connect to.", "HOST:PORT,..."),
    replace(COMMAND_CONFIG, optional=True),
    Option("add", "Add ACLs."),
    Option("remove", "Remove ACLs."),
    Option("list", "List ACLs, of the given resources or all."),
    Option("topic", "A topic; '*' means all.", "TOPIC"),
    Option("cluster", "The cluster."),
    Option("group", "A consumer group; '*' means all.", "GROUP"),
    Option("transactional-id", "A transactional id; '*' means all.", "ID"),
    Option("delegation-token", "A delegation token; '*' means all.", "ID"),
    Option("user-principal", "A user, for CreateTokens and DescribeTokens.", "TYPE:NAME"),
    Option("idempotent", "With --producer: the right to IdempotentWrite, too."),
    Option(
        "resource-pattern-type",
        "literal or prefixed; to list and remove also any (both, the very name) and match (all that concern the name).",
        "TYPE",
        default="literal",
    ),
    Option(
        "operation", "An operation, such as Read; may be given several times.", "OPERATION", default="All"
    ),
    Option("allow-principal", "Who is allowed, such as User:ann or User:*.", "TYPE:NAME"),
    Option("deny-principal", "Who is denied; a denial beats what is allowed.", "TYPE:NAME"),
    Option("principal", "With --list: only ACLs of this principal.", "TYPE:NAME", optional=True),
    Option("allow-host", "From where --allow-principal is allowed; all hosts without it.", "HOST"),
    Option("deny-host", "From where --deny-principal is denied; all hosts without it.", "HOST"),
    Option(
        "producer", "For --topic: Write, Describe and Create; for --transactional-id: Write and Describe."
    ),
    Option("consumer", "For --topic: Read and Describe; for --group: Read."),
    Option("force", "Ask nothing."),
)
_O = AclOperation
_DESCRIBED = frozenset({_O.DESCRIBE})
SUPPORTED: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset({
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    }),
    ResourceType.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset({
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    }),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: _DESCRIBED,
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}  # fmt: skip
_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
_ACTIONS: Final = ("list", "add", "remove")
_RIGHTS: Final = ("allow-host", "allow-principal", "deny-host", "deny-principal")

Resource = tuple[ResourceType, str, PatternType]
Entry = tuple[str, str, AclOperation, AclPermissionType]
"""Principal, host, operation, permission."""
Wanted = dict[Resource, set[Entry]]


def operation_of(text: str) -> AclOperation:
    """Returns an operation by Kafka's name, `DescribeConfigs`, in any case; UNKNOWN for another word."""
    wanted = text.strip().lower()
    names = {item.name.replace("_", "").lower(): item for item in AclOperation}
    return names.get(wanted, AclOperation.UNKNOWN)


def kafka_name(operation: AclOperation) -> str:
    """Returns Kafka's name of an operation: `DescribeConfigs`."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def run(options: Options) -> int:
    _check(options)
    try:
        if options.has("add"):
            _add(options)
        elif options.has("remove"):
            _remove(options)
        else:
            _list(options)
    except AdminError as e:
        sys.stdout.write(f"Error while executing ACL command: {with_class(e)}\n")
        return 1
    return 0


def _check(options: Options) -> None:
    if options.has("bootstrap-controller"):
        raise UsageError("--bootstrap-controller: a broker's --bootstrap-server is needed")
    if not options.has("bootstrap-server"):
        raise UsageError("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(options.has(action) for action in _ACTIONS) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    options.exclude("list", ["producer", "consumer", *_RIGHTS])
    for role in ("producer", "consumer"):
        options.exclude(role, ["operation", "deny-principal", "deny-host"])
    if options.has("principal") and not options.has("list"):
        raise UsageError("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        raise UsageError("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        raise UsageError("The --idempotent option is only available if --producer is set")
    others = options.has("cluster") or options.has("transactional-id")
    if options.has("consumer") and (
        not options.has("topic") or not options.has("group") or (others and not options.has("producer"))
    ):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be specified."
        )


def _add(options: Options) -> None:
    pattern = _pattern_type(options)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError(
            f"A '--resource-pattern-type' value of '{pattern.name}' is not valid when adding acls."
        )
    wanted = _wanted(options)
    if not all(wanted.values()):
        raise UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    for resource, entries in wanted.items():
        there = _described(options, _filter(resource))
        new = []
        for entry in sorted(entries):
            if (acl := _acl(resource, entry)) in there:
                sys.stdout.write(f"Acl (pattern={_shown(resource)}, entry={_entry(entry)}) already exists.\n")
            else:
                new.append(acl)
        if new:
            rows = _rows(entry for entry in entries if _acl(resource, entry) in new)
            sys.stdout.write(f"Adding ACLs for resource `{_shown(resource)}`: \n {rows}\n")
            _create(options, new)


def _remove(options: Options) -> None:
    for resource, entries in _wanted(options).items():
        shown = _shown(resource)
        question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
        if entries:
            question = f"Are you sure you want to remove ACLs: \n {_rows(entries)} from resource filter `{shown}`? (y/n)"
        if not options.has("force"):
            sys.stdout.write(question + "\n")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() != "y":
                continue
        filters = [_filter(resource, entry) for entry in entries] or [_filter(resource)]
        _delete(options, filters)


def _list(options: Options) -> None:
    filters = [_filter(resource) for resource in _resources(options)] or [AclFilter()]
    found: dict[Acl, None] = {}
    for wanted in filters:
        found |= dict.fromkeys(_described(options, wanted))
    principals = options.all("principal")
    if not principals:
        _print(found)
    for principal in principals:
        sys.stdout.write(f"ACLs for principal `{_principal(principal)}`\n")
        _print([acl for acl in found if acl.principal == principal.strip()])


def _described(options: Options, wanted: AclFilter) -> list[Acl]:
    return with_admin(options, lambda admin: describe_acls(admin, wanted))


def _create(options: Options, acls: Sequence[Acl]) -> None:
    with_admin(options, lambda admin: create_acls(admin, acls))


def _delete(options: Options, filters: Sequence[AclFilter]) -> None:
    with_admin(options, lambda admin: delete_acls(admin, filters))


def _print(acls: Iterable[Acl]) -> None:
    by_resource: Wanted = {}
    for acl in acls:
        resource = (acl.resource_type, acl.resource_name, acl.pattern_type)
        by_resource.setdefault(resource, set()).add((acl.principal, acl.host, acl.operation, acl.permission))
    for resource, entries in by_resource.items():
        sys.stdout.write(f"Current ACLs for resource `{_shown(resource)}`:\n{_rows(entries)}\n")


def _wanted(options: Options) -> Wanted:
    """Returns the ACLs that the command line describes, by resource."""
    wanted: Wanted = {}
    if options.has("producer"):
        for resource in _resources(options):
            if resource[0] is ResourceType.TOPIC:
                wanted[resource] = _entries(options, (_O.WRITE, _O.DESCRIBE, _O.CREATE))
            elif resource[0] is ResourceType.TRANSACTIONAL_ID:
                wanted[resource] = _entries(options, (_O.WRITE, _O.DESCRIBE))
        if options.has("idempotent"):
            wanted[_cluster()] = _entries(options, (_O.IDEMPOTENT_WRITE,))
    if options.has("consumer"):
        for resource in _resources(options):
            if resource[0] is ResourceType.TOPIC:
                wanted.setdefault(resource, set()).update(_entries(options, (_O.READ, _O.DESCRIBE)))
            elif resource[0] is ResourceType.GROUP:
                wanted.setdefault(resource, set()).update(_entries(options, (_O.READ,)))
    if not options.has("producer") and not options.has("consumer"):
        operations = [operation_of(text) for text in options.all("operation")]
        wanted = {resource: _entries(options, operations) for resource in _resources(options)}
    if not wanted:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token <Delegation Token ID>"
        )
    for (kind, _, _), entries in wanted.items():
        supported = SUPPORTED[kind] | {_O.ALL}
        if not {entry[2] for entry in entries} <= supported:
            names = ", ".join(map(kafka_name, sorted(supported)))
            raise UsageError(f"ResourceType {kind.name} only supports operations {names}")
    return wanted


def _entries(options: Options, operations: Sequence[AclOperation]) -> set[Entry]:
    entries: set[Entry] = set()
    for word, permission in (("allow", AclPermissionType.ALLOW), ("deny", AclPermissionType.DENY)):
        principals = [_principal(text) for text in options.all(f"{word}-principal")]
        hosts = [text.strip() for text in options.all(f"{word}-host")] or [WILDCARD]
        entries.update(
            (principal, host, operation, permission)
            for principal, operation, host in itertools.product(principals, operations, hosts)
        )
    return entries


def _resources(options: Options) -> list[Resource]:
    pattern = _pattern_type(options)
    found: dict[Resource, None] = {}
    for option, kind in _KINDS.items():
        for name in options.all(option):
            found[kind, name if option == "transactional-id" else name.strip(), pattern] = None
    if pattern is PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        found[_cluster()] = None
    return list(found)


def _cluster() -> Resource:
    return ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL


def _pattern_type(options: Options) -> PatternType:
    text = options.text("resource-pattern-type")
    found = PatternType.__members__.get(text.upper(), PatternType.UNKNOWN)
    if found is PatternType.UNKNOWN:
        raise UsageError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return found


def _principal(text: str) -> str:
    kind, colon, name = text.strip().partition(":")
    if not (kind and colon and name):
        raise UsageError(f"expected a string in format principalType:principalName but got {text}")
    return f"{kind}:{name}"


def _acl(resource: Resource, entry: Entry) -> Acl:
    kind, name, pattern = resource
    principal, host, operation, permission = entry
    return Acl(
        resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal, host=host,
        operation=operation, permission=permission,
    )  # fmt: skip


def _filter(resource: Resource, entry: Entry | None = None) -> AclFilter:
    kind, name, pattern = resource
    if entry is None:
        return AclFilter(resource_type=kind, resource_name=name, pattern_type=pattern)
    principal, host, operation, permission = entry
    return AclFilter(
        resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal, host=host,
        operation=operation, permission=permission,
    )  # fmt: skip


def _shown(resource: Resource) -> str:
    kind, name, pattern = resource
    return f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern.name})"


def _entry(entry: Entry) -> str:
    principal, host, operation, permission = entry
    return (
        f"(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"
    )


def _rows(entries: Iterable[Entry]) -> str:
    return "".join(f"\t{_entry(entry)}\n" for entry in sorted(entries))
