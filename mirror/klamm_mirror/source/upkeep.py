"""The upkeep of a flow: what its first task does beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm_mirror.metrics.tables import figures
from klamm_mirror.principals.quotas import QuotaSync
from klamm_mirror.principals.users import UserCheck
from klamm_mirror.schemas.sync import SchemaSync
from klamm_mirror.source.config import Settings
from klamm_mirror.upkeep import Upkeep
from klamm_plugins.metrics import MetricTable

ABOUT: Final = {
    "schemas_subjects": "Subjects of schemas that the flow copies.",
    "schemas_registered": "Versions of schemas that were registered at the target since the task's start.",
    "schemas_conflicts": "Subjects that cannot be copied; the status says why.",
    "quotas_changed": "Client quotas that were changed at the target since the task's start.",
    "quotas_conflicts": "Clients whose quotas the target refuses.",
    "users_missing": "Users with SCRAM credentials at the source whom the target does not know.",
}
AGE: Final = "Since all of them were last looked at; before the first time, since the task's start, s."


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


def upkeep_figures(upkeep: Sequence[Upkeep], flow: tuple[str, str], now_ms: int) -> list[MetricTable]:
    """Returns a table for each part: its figures and its age."""
    found = []
    for work in upkeep:
        details = work.details()
        about = {name: text for name, text in ABOUT.items() if name.startswith(f"{work.name}_")}
        values = [details[name.removeprefix(f"{work.name}_")] for name in about]
        about[f"{work.name}_age_seconds"] = AGE
        values.append(max(now_ms - (details["synced_ms"] or work.began_ms), 0) / 1000)
        found.append(figures(flow, about, values))
    return found
