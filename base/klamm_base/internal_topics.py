"""Names of the topics that Kafka's brokers make for themselves."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_GROUPS_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC})
"""Topics that a consumer's pattern leaves out, and that clients may not write to."""
