"""The upkeep of a flow: what its first task does beside its records."""

from __future__ import annotations

from klamm_mirror.principals.quotas import QuotaSync
from klamm_mirror.principals.users import UserCheck
from klamm_mirror.schemas.sync import SchemaSync
from klamm_mirror.source.config import Settings
from klamm_mirror.upkeep import Upkeep


def upkeep_of(settings: Settings) -> list[Upkeep]:
    """Returns the work of a task: none for all but the first."""
    if settings.index != 0:
        return []
    found: list[Upkeep] = []
    if settings.schemas is not None:
        found.append(SchemaSync(settings.schemas))
    principals = settings.principals
    if principals is not None and principals.quotas_s is not None:
        found.append(QuotaSync(principals))
    if principals is not None and principals.users_s is not None:
        found.append(UserCheck(principals))
    return found
