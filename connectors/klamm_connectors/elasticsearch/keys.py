"""Configuration keys of the Elasticsearch sink, with the names and defaults of Confluent's connector."""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Importance, Type, between, non_empty, one_of

NOT_SUPPORTED: Final = {
    "proxy.host": "requests go straight to connection.url",
    "proxy.username": "requests go straight to connection.url",
    "proxy.password": "requests go straight to connection.url",
    "kerberos.user.principal": "Kerberos is not supported: use connection.username and connection.password",
    "kerberos.keytab.path": "Kerberos is not supported: use connection.username and connection.password",
    "topic.index.map": "use topic.to.external.resource.mapping with external.resource.usage=INDEX",
}
"""Keys that Confluent's connector has, or once had, and why they are refused here."""

WITHOUT_EFFECT: Final = {
    "max.connection.idle.time.ms": "connections that the server closed are replaced when they are next used",
    "auto.create.indices.at.start": "an index is made when its first record comes",
    "log.sensitive.data": "values of documents are never logged",
    "proxy.port": "there is no proxy",
    "type.name": "Elasticsearch 8 and later have no document types",
}
"""Keys that are taken and change nothing; a value that is set is warned about."""

RUNTIMES: Final = re.compile(
    r"name|connector\.(class|plugin\.version)|topics(\.regex)?|tasks\.max(\.enforce)?|config\.action\.reload"
    r"|(key|value|header)\.converter(\..+)?|(transforms|predicates)(\..+)?|(errors|consumer|producer|admin|restart)\..+"
)
"""Keys that are not the connector's but the runtime's."""

_KEYS: Final[list[tuple[str, Type, Any, Importance, str]]] = [
    (
        "connection.url",
        Type.LIST,
        ...,
        Importance.HIGH,
        "URLs of the cluster's nodes, comma separated: http://es1:9200,http://es2:9200.",
    ),
    (
        "connection.username",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "User name; without it requests carry no credentials.",
    ),
    ("connection.password", Type.PASSWORD, None, Importance.MEDIUM, "The user's password."),
    (
        "elastic.security.protocol",
        Type.STRING,
        "PLAINTEXT",
        Importance.MEDIUM,
        "PLAINTEXT, or SSL, which makes the elastic.https.ssl keys count; https URLs need it only for these.",
    ),
    (
        "elastic.https.ssl.truststore.location",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "PEM file with the certificates to trust. Default: those of the system.",
    ),
    (
        "elastic.https.ssl.truststore.type",
        Type.STRING,
        "PEM",
        Importance.LOW,
        "PEM. Java key stores are refused: `keytool` and `openssl` turn them into PEM.",
    ),
    (
        "elastic.https.ssl.keystore.location",
        Type.STRING,
        None,
        Importance.MEDIUM,
        "PEM file with the client's certificate and its key, where the server asks for one.",
    ),
    ("elastic.https.ssl.keystore.type", Type.STRING, "PEM", Importance.LOW, "PEM, as for the truststore."),
    (
        "elastic.https.ssl.key.password",
        Type.PASSWORD,
        None,
        Importance.LOW,
        "Password of the client's key, if it has one.",
    ),
    (
        "elastic.https.ssl.endpoint.identification.algorithm",
        Type.STRING,
        "https",
        Importance.LOW,
        "https checks the host name in the server's certificate; the empty text does not.",
    ),
    (
        "connection.timeout.ms",
        Type.INT,
        1000,
        Importance.LOW,
        "How long a connection may take. While no node can be reached the task waits.",
    ),
    (
        "read.timeout.ms",
        Type.INT,
        3000,
        Importance.LOW,
        "How long an answer may take; each time it takes longer the request is sent again and given twice as long.",
    ),
    ("connection.compression", Type.BOOLEAN, False, Importance.LOW, "Compress requests with gzip."),
    (
        "batch.size",
        Type.INT,
        2000,
        Importance.MEDIUM,
        "Documents of one bulk request at most. Smaller ones are sent while the server is busy.",
    ),
    (
        "bulk.size.bytes",
        Type.LONG,
        5 * 1024 * 1024,
        Importance.LOW,
        "Bytes of one bulk request at most; a larger document is a request of its own.",
    ),
    (
        "max.in.flight.requests",
        Type.INT,
        5,
        Importance.MEDIUM,
        "Requests under way at most. Halved while the server answers 429, and grown again.",
    ),
    (
        "max.buffered.records",
        Type.INT,
        20000,
        Importance.LOW,
        "Records that are taken and not yet acknowledged, about; beyond it the partitions are paused.",
    ),
    (
        "linger.ms",
        Type.LONG,
        1,
        Importance.LOW,
        "How long a batch that is not full waits for more records.",
    ),
    (
        "flush.timeout.ms",
        Type.LONG,
        180000,
        Importance.LOW,
        "What an answer may take at most, after read.timeout.ms was doubled again and again.",
    ),
    (
        "flush.synchronously",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        "Before a commit, wait up to ten seconds for everything that was taken, instead of one.",
    ),
    (
        "max.retries",
        Type.INT,
        5,
        Importance.LOW,
        (
            "How often a document is sent again after an error of the server that may pass; then the task fails. "
            "Neither 429 nor a server that is away counts."
        ),
    ),
    (
        "retry.backoff.ms",
        Type.LONG,
        100,
        Importance.LOW,
        "The first pause before something is sent again; doubled up to ten seconds.",
    ),
    (
        "key.ignore",
        Type.BOOLEAN,
        False,
        Importance.HIGH,
        (
            "false: the record's key is the document's id and its offset the version. true: the id is "
            "topic+partition+offset."
        ),
    ),
    ("topic.key.ignore", Type.LIST, [], Importance.LOW, "Topics for which key.ignore is true."),
    (
        "schema.ignore",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        (
            "false: an index that is made here gets its mapping from the records' schema, where there is one. true: "
            "Elasticsearch finds the mapping itself."
        ),
    ),
    ("topic.schema.ignore", Type.LIST, [], Importance.LOW, "Topics for which schema.ignore is true."),
    (
        "compact.map.entries",
        Type.BOOLEAN,
        True,
        Importance.LOW,
        'Write maps with text keys as {"k": "v"}; false: as [{"key": "k", "value": "v"}].',
    ),
    (
        "write.method",
        Type.STRING,
        "INSERT",
        Importance.LOW,
        "INSERT replaces a document, UPSERT changes the fields that the record has.",
    ),
    (
        "use.autogenerated.ids",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        "Let Elasticsearch make the ids: faster, and a document that is sent again comes twice.",
    ),
    (
        "external.version.header",
        Type.STRING,
        "",
        Importance.LOW,
        "Header with the document's version, a whole number; without it the version is the offset.",
    ),
    (
        "behavior.on.null.values",
        Type.STRING,
        "FAIL",
        Importance.LOW,
        "Records without a value: IGNORE, DELETE (the document of the key), or FAIL.",
    ),
    (
        "behavior.on.malformed.documents",
        Type.STRING,
        "FAIL",
        Importance.LOW,
        (
            "Documents that Elasticsearch refuses: IGNORE, WARN, or FAIL. With a dead letter topic they go there, and the "
            "task fails only when FAIL is written out."
        ),
    ),
    (
        "drop.invalid.message",
        Type.BOOLEAN,
        False,
        Importance.LOW,
        "Leave out records that cannot be made into a document, with a warning.",
    ),
    (
        "data.stream.type",
        Type.STRING,
        "NONE",
        Importance.LOW,
        "LOGS or METRICS: write to data streams, TYPE-DATASET-NAMESPACE.",
    ),
    ("data.stream.dataset", Type.STRING, "", Importance.LOW, "The data stream's dataset."),
    (
        "data.stream.namespace",
        Type.STRING,
        "${topic}",
        Importance.LOW,
        "The data stream's namespace; ${topic} stands for the topic.",
    ),
    (
        "data.stream.timestamp.field",
        Type.LIST,
        [],
        Importance.LOW,
        "Fields that hold the document's @timestamp, the first that is there; default: the record's timestamp.",
    ),
    (
        "external.resource.usage",
        Type.STRING,
        "DISABLED",
        Importance.LOW,
        (
            "INDEX, DATASTREAM, ALIAS_INDEX or ALIAS_DATASTREAM: write to what topic.to.external.resource.mapping names, "
            "which must be there."
        ),
    ),
    (
        "topic.to.external.resource.mapping",
        Type.LIST,
        [],
        Importance.LOW,
        "topic:resource pairs, comma separated, one for each topic.",
    ),
]

_ALLOWED: Final = {
    "elastic.security.protocol": ("PLAINTEXT", "SSL"),
    "write.method": ("INSERT", "UPSERT"),
    "behavior.on.null.values": ("IGNORE", "DELETE", "FAIL"),
    "behavior.on.malformed.documents": ("IGNORE", "WARN", "FAIL"),
    "data.stream.type": ("NONE", "LOGS", "METRICS"),
    "external.resource.usage": ("DISABLED", "INDEX", "DATASTREAM", "ALIAS_INDEX", "ALIAS_DATASTREAM"),
}
_LOWEST: Final = {
    "connection.timeout.ms": 1,
    "read.timeout.ms": 1,
    "batch.size": 1,
    "bulk.size.bytes": 1,
    "max.in.flight.requests": 1,
    "max.buffered.records": 1,
    "linger.ms": 0,
    "flush.timeout.ms": 1,
    "max.retries": 0,
    "retry.backoff.ms": 0,
}
_IN_FLIGHT_MAX: Final = 1000  # as in Confluent's; each is a thread here


def _validator(name: str) -> Any:
    if name in _ALLOWED:
        exact = one_of(*_ALLOWED[name])
        return lambda key, value: exact(key, value.upper() if isinstance(value, str) else value)
    if name in _LOWEST:
        return between(_LOWEST[name], _IN_FLIGHT_MAX if name == "max.in.flight.requests" else None)
    return non_empty if name == "connection.url" else None


def config_def() -> ConfigDef:
    """The keys, in the order of the reference page. Those of WITHOUT_EFFECT come last."""
    definition = ConfigDef()
    for name, type_, default, importance, text in _KEYS:
        more: dict[str, Any] = {} if default is ... else {"default": default}
        definition.define(
            name, type_, importance=importance, documentation=text, validator=_validator(name), **more
        )
    for name, why in WITHOUT_EFFECT.items():
        definition.define(
            name, Type.STRING, None, importance=Importance.LOW, documentation=f"Has no effect: {why}."
        )
    return definition
