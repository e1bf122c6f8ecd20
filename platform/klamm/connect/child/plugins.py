"""Instances of plugin classes in a child: the connector's class, its task, and its converters.

A converter setting comes from the connector's config, else from the worker's; the converter's own settings
are those below its prefix. Errors are ConfigError or PluginNotFoundError in Kafka's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from klamm_base.configdef import with_prefix
from klamm_base.errors import ConfigError
from klamm_plugins.connector import Connector, SinkConnector, SourceConnector
from klamm_plugins.converter import Converter, HeaderConverter
from klamm_plugins.discovery import PluginManager, kafka_name, python_name
from klamm_plugins.original_keys import refusals

KEY: Final = "key.converter"
VALUE: Final = "value.converter"
HEADER: Final = "header.converter"
DEFAULT_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@dataclass(frozen=True, slots=True)
class Converters:
    """The three converters of one task."""

    key: Converter
    value: Converter
    header: HeaderConverter

    def class_name(self, stage: str) -> str:
        """Returns Kafka's name of the converter that works in one of Kafka's stages, or Python's if it has
        none.
        """
        by_stage = {"KEY_CONVERTER": self.key, "VALUE_CONVERTER": self.value, "HEADER_CONVERTER": self.header}
        cls = type(by_stage[stage])
        return kafka_name(cls) or python_name(cls)


def connector_class(
    plugins: PluginManager, config: Mapping[str, str]
) -> type[SourceConnector] | type[SinkConnector]:
    """Returns the class of `connector.class`."""
    if not config.get("connector.class"):
        raise ConfigError(
            'Missing required configuration "connector.class" which has no default value.',
            key="connector.class",
        )
    return plugins.find_connector(config["connector.class"])


def check_keys(cls: type[Connector], config: Mapping[str, str]) -> None:
    """Raises ConfigError for a key that would change results here: a configuration may be older than its refusal."""
    for key, sentence in refusals(cls.original_keys, config).items():
        raise ConfigError(sentence, key=key)


def converters(plugins: PluginManager, connector: Mapping[str, str], worker: Mapping[str, str]) -> Converters:
    """Finds, makes and configures all three."""
    key_name, key_props = _setting(KEY, connector, worker)
    value_name, value_props = _setting(VALUE, connector, worker)
    header_name, header_props = _setting(HEADER, connector, worker, default=DEFAULT_HEADER_CONVERTER)
    key = plugins.find_converter(key_name)()
    key.configure(_parsed(key, key_props), is_key=True)
    value = plugins.find_converter(value_name)()
    value.configure(_parsed(value, value_props), is_key=False)
    header = plugins.find_header_converter(header_name)()
    header.configure_header(_parsed(header, header_props))
    return Converters(key, value, header)


def _setting(
    name: str, connector: Mapping[str, str], worker: Mapping[str, str], default: str | None = None
) -> tuple[str, dict[str, str]]:
    """Returns the class and its properties, both from the level that names the class, as Kafka does."""
    for level in (connector, worker):
        if level.get(name):
            own = with_prefix(level, f"{name}.")
            # Connect itself tells a converter whether it is for keys or values; users need not configure it.
            return level[name], {"converter.type": name.removesuffix(".converter"), **own}
    if default is None:
        raise ConfigError(f'Missing required configuration "{name}" which has no default value.', key=name)
    return default, {"converter.type": name.removesuffix(".converter")}


def _parsed(converter: Converter | HeaderConverter, props: dict[str, str]) -> Mapping[str, Any]:
    """Parses properties by the converter's own definition; keys without a definition are passed on unchanged."""
    return cast("dict[str, Any]", props) | converter.config().parse(props)
