"""A check for settings that are to be deleted and are not set. A broker accepts such a deletion, and so a typing error."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.admin.client import Admin
from klamm.admin.config_entities import RESOURCES
from klamm.admin.configs import describe_config
from klamm_base.errors import KlammError
from klamm_base.properties import suggestion


async def not_set(admin: Admin, kind: str, name: str, delete: Sequence[str]) -> list[str]:
    """Return the settings for which the entity has no value of its own.

    Raises KlammError for a setting that no entity of this kind has, and AdminError. Skips quotas, credentials and
    loggers: the broker refuses to delete those that are not set.
    """
    if kind not in RESOURCES or kind == "broker-loggers" or not delete:
        return []
    own = RESOURCES[kind].own_source(name)
    found = {e.name: e.source for e in await describe_config(admin, RESOURCES[kind].resource, name)}
    if name:  # the defaults of all brokers list those that are set, and no others
        for key in delete:
            if key not in found:
                hint = suggestion(key, found)
                raise KlammError(f"{kind} have no setting {key!r}{hint}; nothing was altered")
    return [key for key in delete if found.get(key) != own]
