"""Quotas of users and clients, set on the wire."""

from __future__ import annotations

from collections.abc import Mapping

from support.raw import RawClient

from klamm_kafka.wire.messages import alter_client_quotas as set_quotas

Entity = Mapping[str, str | None]


def put(client: RawClient, entity: Entity, values: Mapping[str, float | None]) -> tuple[int, str | None]:
    """Sets quotas; None removes one. Returns error and message."""
    parts = [
        set_quotas.AlterClientQuotasRequestEntityData(entity_type=k, entity_name=n) for k, n in entity.items()
    ]
    ops = [set_quotas.OpData(key=k, value=v or 0, remove=v is None) for k, v in values.items()]
    entry = set_quotas.AlterClientQuotasRequestEntryData(entity=parts, ops=ops)
    (answer,) = client.request(set_quotas.AlterClientQuotasRequest(entries=[entry]), 1).entries
    return answer.error_code, answer.error_message
