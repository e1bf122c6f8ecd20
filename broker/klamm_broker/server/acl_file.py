"""The ACLs on the disk: `klamm-acls.json` in the first log directory, readable by its owner only.

A change is on the disk when the method returns; a method that raises has changed nothing, except with NotSynced.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_base.files import write_and_take
from klamm_broker.log.errors import DirectoryError
from klamm_broker.security.acl import Acl
from klamm_broker.security.authorizer import Authorizer, super_users
from klamm_broker.server.audit import Denials
from klamm_kafka.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from klamm_broker.server.config import BrokerConfig

FILE_NAME: Final = "klamm-acls.json"
VERSION: Final = 1
_HEAD: Final = f'{{"version": {VERSION}, "acls": ['


class StoredAuthorizer(Authorizer):
    """An authorizer whose ACLs are those of the file."""

    def __init__(self, path: Path, **rules: Any) -> None:
        """Reads the file; without a file there are no ACLs. Raises DirectoryError."""
        super().__init__(**rules)
        self._path = path
        self._lines = {acl: _line(acl) for acl in _read(path)}
        self.change(add=self._lines)

    def store(self, *, add: Collection[Acl] = (), remove: Collection[Acl] = ()) -> None:
        """Changes ACLs. Raises OSError."""
        lines = dict(self._lines)
        for acl in remove:
            lines.pop(acl, None)
        for acl in add:
            if acl not in lines:
                lines[acl] = _line(acl)
        if lines.keys() == self._lines.keys():
            return
        text = ",\n".join(lines.values())

        def take() -> None:
            self._lines = lines
            self.change(add=add, remove=remove)

        write_and_take(self._path, f"{_HEAD}\n{text}\n]}}\n".encode(), take)


def open_authorizer(config: BrokerConfig, denials: Denials) -> StoredAuthorizer:
    """Returns the authorizer that a configuration asks for. Raises KlammError."""
    return StoredAuthorizer(
        config.log_dir / FILE_NAME,
        super_users=super_users(config["super.users"] or ""),
        allow_without_acls=config["allow.everyone.if.no.acl.found"],
        on_denied=denials,
    )


def _line(acl: Acl) -> str:
    return json.dumps({
        "resourceType": acl.resource_type.name, "resourceName": acl.resource_name, "patternType": acl.pattern_type.name,
        "principal": acl.principal, "host": acl.host, "operation": acl.operation.name,
        "permission": acl.permission.name,
    })  # fmt: skip


def _read(path: Path) -> list[Acl]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as e:
        raise DirectoryError(f"{path}: not JSON: {e}. Restore it from a backup") from e
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise DirectoryError(f"{path}: no document of version {VERSION}")
    try:
        return [_acl(entry) for entry in document["acls"]]
    except (KeyError, TypeError, ValueError) as e:
        raise DirectoryError(f"{path}: missing or bad value: {e!r}. Restore it from a backup") from e


def _acl(entry: Any) -> Acl:
    return Acl(
        resource_type=ResourceType[entry["resourceType"]],
        resource_name=str(entry["resourceName"]),
        pattern_type=PatternType[entry["patternType"]],
        principal=str(entry["principal"]),
        host=str(entry["host"]),
        operation=AclOperation[entry["operation"]],
        permission=AclPermissionType[entry["permission"]],
    )
