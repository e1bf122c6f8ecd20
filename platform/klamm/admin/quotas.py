"""Quotas of users, clients and addresses (48, 49), and users' SCRAM credentials (50, 51)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.admin.client import Admin
from klamm.admin.errors import AdminError
from klamm_kafka.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from klamm_kafka.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm_kafka.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from klamm_kafka.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_ITERATIONS: Final = 4096  # Kafka's default and its minimum
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
Entity = tuple[tuple[str, str | None], ...]
"""(`user` | `client-id` | `ip`, name) pairs; a name of None is the default of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits of one entity by key, in the order that the broker told."""

    entity: Entity
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A user's SCRAM credentials: iterations by mechanism, or the reason why they are unknown."""

    user: str
    iterations: Mapping[str, int]
    error: AdminError | None = None


async def describe_quotas(admin: Admin, kinds: Mapping[str, str | None]) -> list[Quotas]:
    """Return quotas of exactly these kinds of entity. A name of None means every entity, "" the default."""
    components = [
        ComponentData(
            entity_type=kind,
            match_type=_ANY if name is None else _EXACT if name else _DEFAULT,
            match=name or None,
        )
        for kind, name in kinds.items()
    ]
    return await _described(admin, DescribeClientQuotasRequest(components=components, strict=True))


async def all_quotas(admin: Admin) -> list[Quotas]:
    """Return the quotas of all entities, sorted by entity."""
    return await _described(admin, DescribeClientQuotasRequest(components=[], strict=False))


async def _described(admin: Admin, request: DescribeClientQuotasRequest) -> list[Quotas]:
    async def attempt() -> list[Quotas]:
        answer = await admin.ask(request)
        if answer.error_code:
            raise AdminError(answer.error_code, "cannot describe quotas", answer.error_message)
        found = [
            Quotas(
                entity=tuple((e.entity_type, e.entity_name) for e in entry.entity),
                values={v.key: v.value for v in entry.values},
            )
            for entry in answer.entries or []
        ]
        return sorted(found, key=lambda q: [(k, n or "") for k, n in q.entity])

    return await admin.patiently(attempt)


async def alter_quotas(
    admin: Admin, entity: Entity, *, put: Mapping[str, float], delete: Sequence[str]
) -> None:
    """Set and remove limits of one entity. Raises AdminError."""
    ops = [OpData(key=k, value=v, remove=False) for k, v in put.items()]
    ops += [OpData(key=k, value=0.0, remove=True) for k in delete]
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=k, entity_name=n) for k, n in entity], ops=ops
    )

    async def attempt() -> None:
        answer = await admin.ask(AlterClientQuotasRequest(entries=[entry]))
        found = answer.entries[0]
        if found.error_code:
            raise AdminError(found.error_code, "cannot alter quotas", found.error_message)

    await admin.patiently(attempt)


async def describe_credentials(admin: Admin, users: Sequence[str]) -> list[Credential]:
    """Return SCRAM credentials of these users, or of all users where none is given."""

    async def attempt() -> list[Credential]:
        asked = [UserName(name=u) for u in users] or None
        answer = await admin.ask(DescribeUserScramCredentialsRequest(users=asked))
        if answer.error_code:
            raise AdminError(answer.error_code, "cannot describe SCRAM credentials", answer.error_message)
        names = {number: name for name, number in MECHANISMS.items()}
        return [
            Credential(
                user=r.user,
                iterations={
                    names.get(c.mechanism, str(c.mechanism)): c.iterations for c in r.credential_infos
                },
                error=AdminError(r.error_code, f"user {r.user!r}", r.error_message) if r.error_code else None,
            )
            for r in answer.results
        ]

    return await admin.patiently(attempt)


async def alter_credentials(
    admin: Admin, user: str, *, put: Mapping[str, tuple[int, str]], delete: Sequence[str]
) -> None:
    """Set (iterations, password) by mechanism, and delete. The password is salted and hashed here. Raises AdminError."""
    upsertions = []
    for mechanism, (iterations, password) in put.items():
        salt = os.urandom(24)
        salted = hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=MECHANISMS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted,
            )
        )
    deletions = [ScramCredentialDeletion(name=user, mechanism=MECHANISMS[m]) for m in delete]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)

    async def attempt() -> None:
        found = (await admin.ask(request)).results[0]
        if found.error_code:
            raise AdminError(found.error_code, f"cannot alter credentials of {user!r}", found.error_message)

    await admin.patiently(attempt)
