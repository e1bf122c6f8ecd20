"""Settings of the Spark connectors with which a stranger could make Spark run code. Pure.

Spark takes the name of a Java class for a format and in many options: it hands the options of file formats to Hadoop, of `jdbc`
to a driver, and of its own Kafka connector to Java's client. So an option is refused unless this module lists it.
"""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = frozenset({"query.function", "query.options", "query.sql"})
_CODE_BELOW: Final = ("query.view.", "spark.")
"""Settings that hold SQL, or name functions, jars, programs or another machine's master."""

_FORMATS: Final = frozenset({"source.format", "output.format"})
_OPTIONS: Final = ("source.options.", "output.options.")
_SQLALCHEMY: Final = re.compile(r"\s*(sqlite|mysql|mariadb)[+:]", re.IGNORECASE)
"""URLs of our format `sql`. The URL of `jdbc` names a driver, and may name classes to that."""

_CLIENT: Final = (
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.key.password", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
PLAIN: Final = frozenset(
    {
        # files of all formats
        "path", "encoding", "charset", "linesep", "multiline", "mode", "locale", "wholetext", "rowtag", "mergeschema",
        "header", "sep", "delimiter", "quote", "escape", "comment", "nullvalue", "emptyvalue",
        "dateformat", "timestampformat", "timestampntzformat",
        "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter",
        "maxfilespertrigger", "maxbytespertrigger", "maxfileage", "latestfirst",
        # rate
        "rowspersecond", "rowsperbatch", "rampuptime", "numpartitions",
        # klamm
        "subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp",
        "startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "failondataloss",
        "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "minpartitions", "maxrecordsperpartition", "minrecordsperpartition",
        "groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms", "includeheaders",
        "agentlines", "agentlines.id",
        "kafkaconsumer.polltimeoutms", "refresheachbatch",
        "topic", "deliveryguarantee", "transactionalidprefix", "markertopic", "txnappid", "txnversion",
        *(f"kafka.{name}" for name in _CLIENT),
        # elasticsearch
        "hosts", "index", "data_stream", "id", "document", "op", "template", "template.patterns", "template.body", "user",
        "password", "api_key", "ca_file", "verify", "batch.size", "batch.bytes", "max.in.flight", "timeout.ms",
        "refresh", "retry.timeout.ms", "dead_letter.topic", *(f"dead_letter.kafka.{name}" for name in _CLIENT),
        # sql
        "table", "keys", "create",
    }
)  # fmt: skip
"""Options in small letters, as Spark compares them, in which nothing looks for the name of a class."""


def danger(key: str, value: str) -> str | None:
    """Returns a sentence on a setting that may run code; None when it cannot."""
    if key in _CODE or key.startswith(_CODE_BELOW):
        return f"{key} may name code to run"
    if key in _FORMATS and ("." in value or ":" in value):
        return f"{key}={value} may name a Java class"
    if key == "source.connector" and value.strip() != "klamm":
        return f"{key}={value} may run Java classes that its client's settings name"
    if key.startswith(_OPTIONS) and not _plain(key.split(".", 2)[2].lower(), value):
        return f"{key} may name a Java class"
    return None


def _plain(option: str, value: str) -> bool:
    return option in PLAIN or (option == "url" and _SQLALCHEMY.match(value) is not None)
