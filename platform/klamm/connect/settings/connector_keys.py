"""The keys in a connector's configuration that name the connector and its plugins."""

from typing import Final

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
