"""The connector class of the Elasticsearch sink. The task is imported on demand."""

from __future__ import annotations

from collections.abc import Mapping

from klamm_base.configdef import ConfigDef, ConfigValue
from klamm_connectors.bundled import BundledConnector
from klamm_connectors.elasticsearch.config import config_def, parse, risks
from klamm_connectors.elasticsearch.config_checks import cross_errors
from klamm_plugins.connector import SinkConnector, SinkTask
from klamm_plugins.original_keys import KeyTable
from klamm_plugins.records import TopicPartition


class ElasticsearchSinkConnector(BundledConnector, SinkConnector):
    """A connector whose tasks write to one cluster and share nothing."""

    kafka_name = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"
    original_keys = KeyTable("klamm_connectors.elasticsearch")

    @classmethod
    def config(cls) -> ConfigDef:
        return config_def()

    @classmethod
    def validate(cls, props: Mapping[str, str]) -> list[ConfigValue]:
        """Checks each key alone and all keys together. Does not contact the cluster."""
        answers = super().validate(props)
        by_name = {a.name: a for a in answers}
        for name, why in cross_errors(props, {a.name: a.value for a in answers}).items():
            if name not in by_name:
                by_name[name] = ConfigValue(name=name)
                answers.append(by_name[name])
            by_name[name].errors.append(why)
            if name == "connection.url":
                by_name[name].value = None  # it may hold a password
        return answers

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        from klamm_connectors.elasticsearch.task import ElasticsearchSinkTask

        return ElasticsearchSinkTask

    @classmethod
    def check(cls, props: Mapping[str, str]) -> None:
        parse(props)

    @classmethod
    def warnings(cls, props: Mapping[str, str]) -> dict[str, str]:
        return super().warnings(props) | risks(props)

    @classmethod
    def alter_offsets(cls, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts any offset: Elasticsearch stores no offsets."""
        return True
