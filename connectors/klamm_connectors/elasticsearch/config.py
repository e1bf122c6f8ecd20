"""The Elasticsearch sink's configuration: keys with the names and defaults of Confluent's connector, as typed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Password, Type, Validator, between, non_empty, one_of
from klamm_base.errors import ConfigError
from klamm_connectors.elasticsearch.config_checks import SSL, cross_errors, split_pair

_NAME_MAX: Final = 255
_IN_FLIGHT_MAX: Final = 1000  # as in Confluent's; each is a thread here
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True)
class Ssl:
    """PEM files for https. None stands for the system's defaults."""

    trust: str | None
    certificate: str | None
    key_password: Password | None
    check_host: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """One task's settings. Times are in seconds, sizes in bytes."""

    urls: tuple[str, ...]
    username: str | None
    password: Password | None = field(repr=False)
    ssl: Ssl | None
    connect_timeout_s: float
    read_timeout_s: float
    read_timeout_max_s: float
    compression: bool
    batch_size: int
    bulk_bytes: int
    in_flight: int
    buffered: int
    linger_s: float
    flush_synchronously: bool
    max_retries: int
    backoff_s: float
    key_ignore: bool
    key_ignore_topics: frozenset[str]
    schema_ignore: bool
    schema_ignore_topics: frozenset[str]
    compact_maps: bool
    upsert: bool
    generated_ids: bool
    version_header: str
    null_values: str
    malformed: str
    malformed_given: bool
    drop_invalid: bool
    stream_type: str
    stream_dataset: str
    stream_namespace: str
    timestamp_fields: tuple[str, ...]
    resources: Mapping[str, str]
    resource_usage: str

    @property
    def to_streams(self) -> bool:
        """True when the targets are data streams, which accept only `create`."""
        return bool(self.stream_type) or self.resource_usage.endswith("DATASTREAM")

    def ignores_key(self, topic: str) -> bool:
        return self.key_ignore or topic in self.key_ignore_topics

    def ignores_schema(self, topic: str) -> bool:
        return self.schema_ignore or topic in self.schema_ignore_topics

    def target(self, topic: str) -> str:
        """Returns the index, data stream or alias for a topic. Raises ConfigError when the mapping names none."""
        if self.resources:
            if topic not in self.resources:
                raise ConfigError(
                    f"topic.to.external.resource.mapping names no resource for topic {topic}",
                    key="topic.to.external.resource.mapping",
                )
            return self.resources[topic]
        if self.stream_type:
            names = (n.replace("${topic}", topic) for n in (self.stream_dataset, self.stream_namespace))
            return "-".join([self.stream_type, *(n.lower()[:100] for n in names)])
        return index_name(topic)


def config_def() -> ConfigDef:
    """Returns the keys in the order of the reference page."""
    return _documents(_sending(_connection(ConfigDef())))


def _one_of(*words: str) -> Validator:
    exact = one_of(*words)
    return lambda key, value: exact(key, value.upper() if isinstance(value, str) else value)


def _connection(d: ConfigDef) -> ConfigDef:
    return (
        d.define("connection.url", Type.LIST, validator=non_empty, importance=_HIGH, documentation="URLs of the cluster's nodes, comma separated: http://es1:9200,http://es2:9200.")
        .define("connection.username", Type.STRING, None, importance=_MEDIUM, documentation="User name; without it requests carry no credentials.")
        .define("connection.password", Type.PASSWORD, None, importance=_MEDIUM, documentation="The user's password.")
        .define("elastic.security.protocol", Type.STRING, "PLAINTEXT", validator=_one_of("PLAINTEXT", "SSL"), importance=_MEDIUM, documentation="PLAINTEXT, or SSL, which makes the elastic.https.ssl keys count; https URLs need it only for these.")
        .define("elastic.https.ssl.truststore.location", Type.STRING, None, importance=_MEDIUM, documentation="PEM file with the certificates to trust. Default: those of the system.")
        .define("elastic.https.ssl.truststore.type", Type.STRING, "PEM", importance=_LOW, documentation="PEM. Java key stores are refused: `keytool` and `openssl` turn them into PEM.")
        .define("elastic.https.ssl.keystore.location", Type.STRING, None, importance=_MEDIUM, documentation="PEM file with the client's certificate and its key, where the server asks for one.")
        .define("elastic.https.ssl.keystore.type", Type.STRING, "PEM", importance=_LOW, documentation="PEM, as for the truststore.")
        .define("elastic.https.ssl.key.password", Type.PASSWORD, None, importance=_LOW, documentation="Password of the client's key, if it has one.")
        .define("elastic.https.ssl.endpoint.identification.algorithm", Type.STRING, "https", importance=_LOW, documentation="https checks the host name in the server's certificate; the empty text does not.")
        .define("connection.timeout.ms", Type.INT, 1000, validator=between(1), importance=_LOW, documentation="Timeout of a connection. While no node can be reached, the task waits.")
        .define("read.timeout.ms", Type.INT, 3000, validator=between(1), importance=_LOW, documentation="Timeout of an answer. After each timeout the request is sent again with twice the time.")
        .define("connection.compression", Type.BOOLEAN, False, importance=_LOW, documentation="Compress requests with gzip.")
    )  # fmt: skip


def _sending(d: ConfigDef) -> ConfigDef:
    return (
        d.define("batch.size", Type.INT, 2000, validator=between(1), importance=_MEDIUM, documentation="Documents of one bulk request at most. Smaller ones are sent while the server is busy.")
        .define("bulk.size.bytes", Type.LONG, 5 * 1024 * 1024, validator=between(1), importance=_LOW, documentation="Bytes of one bulk request at most; a larger document is a request of its own.")
        .define("max.in.flight.requests", Type.INT, 5, validator=between(1, _IN_FLIGHT_MAX), importance=_MEDIUM, documentation="Requests under way at most. Halved while the server answers 429, and grown again.")
        .define("max.buffered.records", Type.INT, 20000, validator=between(1), importance=_LOW, documentation="The approximate number of records that are taken and not yet acknowledged; beyond it the partitions are paused.")
        .define("linger.ms", Type.LONG, 1, validator=between(0), importance=_LOW, documentation="The time for which a batch that is not full waits for more records.")
        .define("flush.timeout.ms", Type.LONG, 180000, validator=between(1), importance=_LOW, documentation="The longest timeout of an answer, after read.timeout.ms was doubled repeatedly.")
        .define("flush.synchronously", Type.BOOLEAN, False, importance=_LOW, documentation="Before a commit, wait up to ten seconds for everything that was taken. false: a commit covers what is acknowledged; it waits a second before partitions go to another task, and where less than a request is left.")
        .define("max.retries", Type.INT, 5, validator=between(0), importance=_LOW, documentation="Retries of a document after a temporary error of the server; then the task fails. A 429 and an absent server do not count.")
        .define("retry.backoff.ms", Type.LONG, 100, validator=between(0), importance=_LOW, documentation="The first pause before a retry; it doubles up to ten seconds.")
    )  # fmt: skip


def _documents(d: ConfigDef) -> ConfigDef:
    return (
        d.define("key.ignore", Type.BOOLEAN, False, importance=_HIGH, documentation="false: the record's key is the document's id and its offset the version. true: the id is topic+partition+offset.")
        .define("topic.key.ignore", Type.LIST, [], importance=_LOW, documentation="Topics for which key.ignore is true.")
        .define("schema.ignore", Type.BOOLEAN, False, importance=_LOW, documentation="false: an index that the sink creates gets its mapping from the records' schema, where there is one. true: Elasticsearch finds the mapping itself.")
        .define("topic.schema.ignore", Type.LIST, [], importance=_LOW, documentation="Topics for which schema.ignore is true.")
        .define("compact.map.entries", Type.BOOLEAN, True, importance=_LOW, documentation='Write maps with text keys as {"k": "v"}; false: as [{"key": "k", "value": "v"}].')
        .define("write.method", Type.STRING, "INSERT", validator=_one_of("INSERT", "UPSERT"), importance=_LOW, documentation="INSERT replaces a document, UPSERT changes the fields that the record has.")
        .define("use.autogenerated.ids", Type.BOOLEAN, False, importance=_LOW, documentation="Let Elasticsearch make the ids: faster, and a document that is sent again comes twice.")
        .define("external.version.header", Type.STRING, "", importance=_LOW, documentation="Header with the document's version, a whole number; without it the version is the offset.")
        .define("behavior.on.null.values", Type.STRING, "FAIL", validator=_one_of("IGNORE", "DELETE", "FAIL"), importance=_LOW, documentation="Records without a value: IGNORE, DELETE (the document of the key), or FAIL.")
        .define("behavior.on.malformed.documents", Type.STRING, "FAIL", validator=_one_of("IGNORE", "WARN", "FAIL"), importance=_LOW, documentation="Documents that Elasticsearch refuses: IGNORE, WARN, or FAIL. With a dead letter topic they go there, and the task fails only when FAIL is written out.")
        .define("drop.invalid.message", Type.BOOLEAN, False, importance=_LOW, documentation="Leave out records that cannot be made into a document, with a warning.")
        .define("data.stream.type", Type.STRING, "NONE", validator=_one_of("NONE", "LOGS", "METRICS"), importance=_LOW, documentation="LOGS or METRICS: write to data streams, TYPE-DATASET-NAMESPACE.")
        .define("data.stream.dataset", Type.STRING, "", importance=_LOW, documentation="The data stream's dataset.")
        .define("data.stream.namespace", Type.STRING, "${topic}", importance=_LOW, documentation="The data stream's namespace; ${topic} stands for the topic.")
        .define("data.stream.timestamp.field", Type.LIST, [], importance=_LOW, documentation="Fields that hold the document's @timestamp, the first that is there; default: the record's timestamp.")
        .define("external.resource.usage", Type.STRING, "DISABLED", validator=_one_of("DISABLED", "INDEX", "DATASTREAM", "ALIAS_INDEX", "ALIAS_DATASTREAM"), importance=_LOW, documentation="INDEX, DATASTREAM, ALIAS_INDEX or ALIAS_DATASTREAM: write to what topic.to.external.resource.mapping names, which must be there.")
        .define("topic.to.external.resource.mapping", Type.LIST, [], importance=_LOW, documentation="topic:resource pairs, comma separated, one for each topic.")
    )  # fmt: skip


def parse(props: Mapping[str, str]) -> Settings:
    """Returns typed settings. Raises ConfigError for the first key that cannot be used, and names it."""
    values = config_def().parse(props)
    if errors := cross_errors(props, values):
        name, why = next(iter(errors.items()))
        raise ConfigError(why, key=name)
    return Settings(
        urls=tuple(url.rstrip("/") for url in values["connection.url"]),
        username=values["connection.username"] or None,
        password=values["connection.password"],
        ssl=_ssl(values),
        connect_timeout_s=values["connection.timeout.ms"] / 1000,
        read_timeout_s=values["read.timeout.ms"] / 1000,
        read_timeout_max_s=max(values["flush.timeout.ms"], values["read.timeout.ms"]) / 1000,
        compression=values["connection.compression"],
        batch_size=values["batch.size"],
        bulk_bytes=values["bulk.size.bytes"],
        in_flight=values["max.in.flight.requests"],
        buffered=values["max.buffered.records"],
        linger_s=values["linger.ms"] / 1000,
        flush_synchronously=values["flush.synchronously"],
        max_retries=values["max.retries"],
        backoff_s=values["retry.backoff.ms"] / 1000,
        key_ignore=values["key.ignore"],
        key_ignore_topics=frozenset(values["topic.key.ignore"]),
        schema_ignore=values["schema.ignore"],
        schema_ignore_topics=frozenset(values["topic.schema.ignore"]),
        compact_maps=values["compact.map.entries"],
        upsert=values["write.method"].upper() == "UPSERT",
        generated_ids=values["use.autogenerated.ids"],
        version_header=values["external.version.header"] or "",
        null_values=values["behavior.on.null.values"].upper(),
        malformed=values["behavior.on.malformed.documents"].upper(),
        malformed_given="behavior.on.malformed.documents" in props,
        drop_invalid=values["drop.invalid.message"],
        stream_type=values["data.stream.type"].lower().replace("none", ""),
        stream_dataset=values["data.stream.dataset"] or "",
        stream_namespace=values["data.stream.namespace"] or "",
        timestamp_fields=tuple(values["data.stream.timestamp.field"]),
        resources=dict(split_pair(p) for p in values["topic.to.external.resource.mapping"]),
        resource_usage=values["external.resource.usage"].upper(),
    )


def _ssl(values: Mapping[str, Any]) -> Ssl | None:
    if (values["elastic.security.protocol"] or "").upper() != "SSL":
        return None
    return Ssl(
        trust=values[f"{SSL}truststore.location"],
        certificate=values[f"{SSL}keystore.location"],
        key_password=values[f"{SSL}key.password"],
        check_host=bool(values[f"{SSL}endpoint.identification.algorithm"]),
    )


def risks(props: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence about a combination of keys that loses records, under the key to change. Wrong values are no matter."""
    values = {value.name: value.value for value in config_def().validate(props)}
    streams = (values["data.stream.type"] or "").upper() not in {"", "NONE"}
    streams = streams or (values["external.resource.usage"] or "").upper().endswith("DATASTREAM")
    keeps_all = values["key.ignore"] or values["topic.key.ignore"] or values["use.autogenerated.ids"]
    if not streams or keeps_all:
        return {}
    return {
        "key.ignore": "key.ignore=false: a data stream takes an id once, so only the first record of a key is kept; write true"
    }


def index_name(topic: str) -> str:
    """Returns a topic's index, named as Confluent's connector does: lower case, no leading - or _, 255 characters."""
    name = topic.lower()[:_NAME_MAX]
    if name.startswith(("-", "_")):
        name = name[1:]
    return {".": "dot", "..": "dotdot"}.get(name, name)
