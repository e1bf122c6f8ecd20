"""The keys in a connector's configuration that name the connector and its plugins."""

from typing import Final

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
MIRROR_PLUGINS: Final = (
    "topic.filter.class",
    "group.filter.class",
    "config.property.filter.class",
    "replication.policy.class",
    "forwarding.admin.class",
)
"""The keys that name a mirror connector's plugins."""
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
