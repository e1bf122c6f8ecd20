"""Settings that are to be deleted and are not there: a broker takes that without a word, and a typing error with it."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.admin.client import Admin
from klamm.admin.config_entities import RESOURCES
from klamm.admin.configs import describe_config
from klamm_base.errors import KlammError
from klamm_base.properties import suggestion


async def not_set(admin: Admin, kind: str, name: str, delete: Sequence[str]) -> list[str]:
    """Those of the settings that the entity has no value of its own for.

    Raises KlammError for one that such an entity does not have at all, and AdminError. Quotas, credentials and loggers
    that are not there are refused when they are deleted.
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
