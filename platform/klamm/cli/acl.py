"""`klamm acl`: who may do what with topics, groups and the cluster, and by which rule."""

from __future__ import annotations

import ipaddress
import itertools
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from klamm.cli.cluster import AdminCluster
from klamm.cli.common import Output, OutputOption, print_record, reported
from klamm.cli.context import Commands
from klamm.cli.output import Format, FormatOption, print_rows
from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm_broker.security.acl import Acl
    from klamm_kafka.wire.acls import AclOperation, PatternType, ResourceType

app = Commands(help="Add, list, remove and check ACLs.", no_args_is_help=True)

_COLUMNS: Final = ("principal", "permission", "operation", "resource_type", "pattern", "resource", "host")
Principal = Annotated[
    str, typer.Argument(metavar="USER", help="The user, NAME or User:NAME; '*' is everyone.")
]
Operations = Annotated[
    list[str], typer.Argument(metavar="OPERATION...", help="read, write, create, describe-configs, all ...")
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="The topic; '*': all.")]
GroupOption = Annotated[str | None, typer.Option("--group", help="The group; '*': all.")]
TransactionOption = Annotated[
    str | None, typer.Option("--transactional-id", help="The transactional id; '*': all.")
]
OfUserOption = Annotated[
    str | None, typer.Option("--user", help="A user whose tokens it is about: User:NAME; '*': all.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster as a whole.")]
PrefixOption = Annotated[bool, typer.Option("--prefix", help="All whose names begin with the given one.")]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny it: that beats whatever allows it.")]
HostOption = Annotated[str, typer.Option("--host", help="Only from this address; '*': from anywhere.")]

Resource = tuple["ResourceType", str, "PatternType"]


@app.command()
def add(
    cluster: AdminCluster, principal: Principal, operations: Operations, topic: TopicOption = None,
    group: GroupOption = None, transactional_id: TransactionOption = None, user: OfUserOption = None,
    of_cluster: ClusterOption = False, prefix: PrefixOption = False, deny: DenyOption = False, host: HostOption = "*",
) -> None:  # fmt: skip
    """Allow (or deny) a user operations on resources.

    For example `klamm acl add ann read describe --topic orders`.
    """
    with reported():
        from klamm.admin.acls import create_acls

        wanted = _resources(topic, group, transactional_id, user, of_cluster=of_cluster, prefix=prefix)
        acls = _acls(principal, operations, wanted, host=host, deny=deny)
        cluster.ask(lambda admin: create_acls(admin, acls))
        for acl in acls:
            typer.echo(str(acl))


@app.command("list")
def list_acls(
    cluster: AdminCluster,
    principal: Annotated[str | None, typer.Option("--principal", help="Only those of this user.")] = None,
    topic: TopicOption = None, group: GroupOption = None, transactional_id: TransactionOption = None, user: OfUserOption = None,
    of_cluster: ClusterOption = False, output: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """List ACLs: all, or those of a resource.

    Those with prefixes and '*' that concern the resource are among them.
    """
    with reported():
        found = _matching(cluster, principal, (topic, group, transactional_id, user), of_cluster=of_cluster)
        print_rows([_row(acl) for acl in found], list(_COLUMNS), output)


@app.command()
def remove(
    cluster: AdminCluster, principal: Principal,
    operations: Annotated[list[str] | None, typer.Argument(metavar="[OPERATION...]", help="Without one: all that is written down.")] = None,
    topic: TopicOption = None, group: GroupOption = None, transactional_id: TransactionOption = None, user: OfUserOption = None,
    of_cluster: ClusterOption = False, prefix: PrefixOption = False,
) -> None:  # fmt: skip
    """Remove a user's ACLs of a resource.

    Removes both those that allow and those that deny.
    """
    with reported():
        from klamm.admin.acls import delete_acls
        from klamm_broker.security.acl import AclFilter

        wanted = _resources(topic, group, transactional_id, user, of_cluster=of_cluster, prefix=prefix)
        who, which = _principal(principal), [_operation(word) for word in operations or ("any",)]
        filters = [
            AclFilter(resource_type=kind, resource_name=name, pattern_type=pattern, principal=who, operation=op)
            for (kind, name, pattern), op in itertools.product(wanted, which)
        ]  # fmt: skip
        gone = cluster.ask(lambda admin: delete_acls(admin, filters))
        if not gone:
            raise KlammError(f"{who} has no such ACL; `klamm acl list --principal {who}` shows all")
        for acl in gone:
            typer.echo(f"removed: {acl}")


@app.command()
def check(
    cluster: AdminCluster, principal: Principal,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="read, write, create ...")],
    topic: TopicOption = None, group: GroupOption = None, transactional_id: TransactionOption = None, user: OfUserOption = None,
    of_cluster: ClusterOption = False,
    host: Annotated[str, typer.Option("--host", help="The address of the user's machine.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:  # fmt: skip
    """Say whether a user may do an operation, and by which rule. Exit code 0: yes, 1: no."""
    with reported():
        from klamm.admin.acls import describe_acls, describe_rules
        from klamm_broker.security.acl import AclFilter
        from klamm_broker.security.authorizer import Authorizer
        from klamm_kafka.wire.acls import PatternType

        ((kind, name, _),) = _resources(topic, group, transactional_id, user, of_cluster=of_cluster)
        who, what = _principal(principal), _operation(operation)
        _check_operation(kind, what)
        if host:
            _check_host(host)
        concerned = AclFilter(resource_type=kind, resource_name=name, pattern_type=PatternType.MATCH)
        rules = cluster.ask(describe_rules)
        acls = cluster.ask(lambda admin: describe_acls(admin, concerned))
        authorizer = Authorizer(
            super_users=rules.super_users or frozenset(),
            allow_without_acls=rules.allow_without_acls,
            on_denied=lambda _: None,
        )
        authorizer.change(add=acls)
        decision = authorizer.decide(who, host, what, kind, name)
        why = _why(who, decision.rule)
        if output.structured:
            print_record({"allowed": decision.allowed, "rule": why}, output)
        else:
            typer.echo(f"{'yes' if decision.allowed else 'no'}: {why}")
        if rules.super_users is None and not decision.allowed:
            typer.echo("(the broker does not tell its super.users: whoever is one of them may)", err=True)
        raise typer.Exit(0 if decision.allowed else 1)


def _why(who: str, rule: Acl | str) -> str:
    return f"{who} is one of super.users" if rule == "super.users" else str(rule)


def _matching(
    cluster: AdminCluster, principal: str | None, names: tuple[str | None, ...], *, of_cluster: bool
) -> list[Acl]:
    from dataclasses import replace

    from klamm.admin.acls import describe_acls
    from klamm_broker.security.acl import AclFilter
    from klamm_kafka.wire.acls import PatternType

    wanted = AclFilter(principal=None if principal is None else _principal(principal))
    if of_cluster or any(name is not None for name in names):
        ((kind, name, _),) = _resources(*names, of_cluster=of_cluster)
        wanted = replace(wanted, resource_type=kind, resource_name=name, pattern_type=PatternType.MATCH)
    found = cluster.ask(lambda admin: describe_acls(admin, wanted))
    return sorted(found, key=lambda a: (a.resource_type, a.resource_name, a.principal, a.operation))


def _acls(
    principal: str, operations: list[str], resources: list[Resource], *, host: str, deny: bool
) -> list[Acl]:
    from klamm_broker.security.acl import Acl
    from klamm_kafka.wire.acls import AclOperation, AclPermissionType

    who, which = _principal(principal), [_operation(word) for word in operations]
    if AclOperation.ANY in which:
        raise ConfigError("the operation `any` is for `remove`; `all` allows every operation")
    for (kind, _, _), operation in itertools.product(resources, which):
        _check_operation(kind, operation)
    _check_host(host)
    return [
        Acl(
            resource_type=kind, resource_name=name, pattern_type=pattern, principal=who, host=host, operation=operation,
            permission=AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
        )
        for (kind, name, pattern), operation in itertools.product(resources, which)
    ]  # fmt: skip


def _resources(
    topic: str | None, group: str | None, transactional_id: str | None, user: str | None, *, of_cluster: bool,
    prefix: bool = False,
) -> list[Resource]:  # fmt: skip
    """Returns the one resource that options name. Raises ConfigError."""
    from klamm_kafka.wire.acls import CLUSTER_NAME, PatternType, ResourceType

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.USER: user,
        ResourceType.CLUSTER: CLUSTER_NAME if of_cluster else None,
    }
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise ConfigError("name one resource: --topic, --group, --transactional-id, --user or --cluster")
    ((kind, name),) = given
    if prefix and kind is ResourceType.CLUSTER:
        raise ConfigError("--prefix goes with a name; there is one cluster")
    return [(kind, name, PatternType.PREFIXED if prefix else PatternType.LITERAL)]


def _principal(word: str) -> str:
    kind, colon, name = word.partition(":")
    if not colon:
        kind, name = "User", word
    if not (kind and name):
        raise ConfigError(f"{word!r} is no user: write NAME or User:NAME")
    return f"{kind}:{name}"


def _operation(word: str) -> AclOperation:
    from klamm_kafka.wire.acls import AclOperation

    found = AclOperation.__members__.get(word.upper().replace("-", "_"), AclOperation.UNKNOWN)
    if found is AclOperation.UNKNOWN:
        known = ", ".join(_word(op) for op in AclOperation if op > AclOperation.ANY)
        raise ConfigError(f"{word!r} is no operation; there are {known}")
    return found


def _check_operation(kind: ResourceType, operation: AclOperation) -> None:
    """Raises ConfigError for an operation that nobody can do on a resource of this type: it would allow nothing."""
    from klamm.kafka_tools.acls import SUPPORTED
    from klamm_kafka.wire.acls import AclOperation

    known = SUPPORTED[kind] | {AclOperation.ALL}
    if operation not in known:
        names = ", ".join(map(_word, sorted(known)))
        raise ConfigError(f"{_word(operation)} is no operation of a {_word(kind)}; there are {names}")


def _word(value: AclOperation | ResourceType) -> str:
    """Returns an operation or a type of resource as a command line has it."""
    return value.name.lower().replace("_", "-")


def _check_host(host: str) -> None:
    """Raises ConfigError for a host that no client has: the broker compares addresses, and looks up no names."""
    if host == "*":
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(f"--host {host!r} is no address; give one as 10.0.0.1, or '*' for all") from None


def _row(acl: Acl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": _word(acl.operation),
        "resource_type": acl.resource_type.name.lower(),
        "pattern": acl.pattern_type.name.lower(),
        "resource": acl.resource_name,
        "host": acl.host,
    }
