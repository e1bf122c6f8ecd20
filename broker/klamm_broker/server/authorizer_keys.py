"""The broker's properties of its authorizer."""

from __future__ import annotations

from typing import Any, Final

from klamm_base.configdef import Type, invalid

CLASS: Final = "authorizer.class.name"
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_FORMER: Final = "kafka.security.authorizer.AclAuthorizer"


def _known(name: str, value: Any) -> None:
    if value in ("", STANDARD):
        return
    gone = "; Kafka 4 has no AclAuthorizer" if value == _FORMER else ""
    raise invalid(name, value, f"must be {STANDARD}, or empty for no authorizer{gone}")


def _principals(name: str, value: Any) -> None:
    if not value:
        return
    from klamm_broker.security.authorizer import super_users

    try:
        super_users(value)
    except ValueError as e:
        raise invalid(name, value, f"must be principals with `;` between them, such as User:admin;User:CN=ops ({e})") from None  # fmt: skip


def define(key: Any) -> None:
    """Define the properties with `key(name, type, default, validator, documentation)`."""
    key(
        CLASS, Type.STRING, "", _known,
        f"`{STANDARD}`: clients may do what ACLs allow. Empty: everybody may do everything.",
    )  # fmt: skip
    key(
        "super.users", Type.STRING, None, _principals,
        "Principals that may do everything, whatever ACLs say: `User:admin;User:CN=ops,O=Acme`.",
    )  # fmt: skip
    key(
        "allow.everyone.if.no.acl.found", Type.BOOLEAN, False, None,
        "Whether everybody may do everything with a resource for which there is no ACL.",
    )  # fmt: skip
