"""Users with SCRAM credentials. Brokers tell their mechanisms and iterations, never their passwords (KIP-554).

So no mirror can copy users. It names those whom the target does not know, and somebody creates them there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from klamm_kafka.client import Cluster, UnsupportedApi, broker_error
from klamm_kafka.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from klamm_mirror.principals.config import PrincipalSettings
from klamm_mirror.target_admin import ask_controller, name_of
from klamm_mirror.upkeep import Upkeep, shown

log = logging.getLogger(__name__)


class Mechanism(IntEnum):
    """The wire's codes of SCRAM mechanisms."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


@dataclass(frozen=True, slots=True, order=True)
class Credential:
    """The part of a user's credential that brokers tell."""

    user: str
    mechanism: str
    iterations: int


def missing(ours: Iterable[Credential], theirs: Iterable[Credential]) -> list[Credential]:
    """Returns the source's credentials of users who cannot log in to the target by the same mechanism."""
    known = {(c.user, c.mechanism) for c in theirs}
    return sorted(c for c in ours if (c.user, c.mechanism) not in known)


async def list_credentials(cluster: Cluster) -> list[Credential]:
    """Returns all users with their mechanisms; none of a cluster that knows no such users. Raises ClientError."""
    try:
        answer: DescribeUserScramCredentialsResponse = await ask_controller(
            cluster, DescribeUserScramCredentialsRequest(users=None)
        )
    except UnsupportedApi:
        return []
    if answer.error_code:
        said = f" ({answer.error_message})" if answer.error_message else ""
        raise broker_error(answer.error_code, f"reading users{said}")
    return [
        Credential(result.user, name_of(Mechanism, info.mechanism).replace("_", "-"), info.iterations)
        for result in answer.results
        if not result.error_code
        for info in result.credential_infos
    ]


class UserCheck(Upkeep):
    """The users of one flow whom the target lacks."""

    def __init__(self, settings: PrincipalSettings) -> None:
        assert settings.users_s is not None, "enabled"
        super().__init__("users", settings.users_s)
        self._settings = settings
        self._missing: list[Credential] = []

    def figures(self) -> Mapping[str, Any]:
        words = {c.user: f"{c.mechanism}, {c.iterations} iterations" for c in self._missing}
        examples = [f"{user} ({how})" for user, how in shown(words).items()]
        return {"missing": len(self._missing), "examples": examples}

    def look(self) -> None:
        found = asyncio.run(self._look())
        new = [c.user for c in found if c not in self._missing]
        if new:
            log.warning(
                "%d users of the source cannot log in to the target, such as %s: create them there",
                len(found),
                new[0],
            )
        self._missing = found

    async def _look(self) -> list[Credential]:
        source, target = self._settings.clients
        async with source.cluster() as ours, target.cluster() as theirs:
            return missing(await list_credentials(ours), await list_credentials(theirs))
