"""The definitions of the properties of `klamm lag`: of the server, of a cluster, of a notifier. No I/O."""

from __future__ import annotations

import re
from typing import Any, Final

from klamm_base.configdef import ConfigDef, Type, between, invalid, non_empty, one_of

CLASSES: Final = ("http", "email", "command")


def pattern(name: str, value: Any) -> None:
    """Refuses what is no regular expression."""
    try:
        re.compile(value or "")
    except re.error as e:
        raise invalid(name, value, f"not a regular expression: {e}") from None


def server_config() -> ConfigDef:
    """Returns the properties of the server itself."""
    d = ConfigDef()
    d.define(
        "storage.intervals", Type.INT, 10, validator=between(2, 1000),
        documentation="The commits in a partition's window, and the looks at a log's end that are remembered.",
    )  # fmt: skip
    d.define(
        "storage.min-distance", Type.INT, 1, validator=between(0),
        documentation="Seconds between two commits of a window; commits that come faster replace each other. Burrow's default is 0.",
    )  # fmt: skip
    d.define(
        "storage.expire-group", Type.INT, 604_800, validator=between(1),
        documentation="Seconds without a commit after which a group is forgotten.",
    )  # fmt: skip
    d.define(
        "storage.group-allowlist", Type.STRING, "", validator=pattern,
        documentation="A regular expression: only groups in which it is found are watched.",
    )  # fmt: skip
    d.define(
        "storage.group-denylist", Type.STRING, "", validator=pattern,
        documentation="A regular expression: groups in which it is found are not watched.",
    )  # fmt: skip
    d.define(
        "evaluator.minimum-complete", Type.DOUBLE, 0.0, validator=between(0, 1),
        documentation="The part of its window that a partition needs before it can be anything but OK.",
    )  # fmt: skip
    d.define(
        "evaluator.allowed-lag", Type.LONG, 0, validator=between(0),
        documentation="A lag up to this counts as none.",
    )  # fmt: skip
    d.define(
        "evaluator.minimum-stop", Type.DOUBLE, 60.0, validator=between(0),
        documentation="A reader that has committed within so many seconds has not stopped, however short its window is. Burrow "
        "has no such patience.",
    )  # fmt: skip
    d.define(
        "history.dir", Type.STRING, "klamm-lag", validator=non_empty,
        documentation="The folder of the history: windows, so that a restart goes on, and the course of each group.",
    )  # fmt: skip
    d.define(
        "history.retention.ms", Type.LONG, 604_800_000, validator=between(1),
        documentation="How long the course of a group is kept.",
    )  # fmt: skip
    d.define(
        "history.max.rows", Type.LONG, 1_000_000, validator=between(1000),
        documentation="The most rows of all courses together; the oldest go first. A row takes some 60 bytes.",
    )  # fmt: skip
    return d


def cluster_config() -> ConfigDef:
    """Returns the properties of a cluster, without `cluster.NAME.` in front; all others are its clients'."""
    d = ConfigDef()
    d.define(
        "bootstrap.servers", Type.STRING, validator=non_empty, documentation="Brokers, HOST:PORT by commas."
    )
    d.define(
        "offset-refresh",
        Type.DOUBLE,
        10.0,
        validator=between(0.05),
        documentation="Seconds between two looks at the ends of logs.",
    )
    d.define(
        "topic-refresh",
        Type.DOUBLE,
        60.0,
        validator=between(0.05),
        documentation="Seconds between two looks at groups and their members.",
    )
    d.define(
        "start-latest",
        Type.BOOLEAN,
        False,
        documentation="Read commits from now on only, when there is no history.",
    )
    d.define(
        "time-lag",
        Type.BOOLEAN,
        True,
        documentation="Read the time of the next record where a group is behind; otherwise it is estimated.",
    )
    d.define(
        "mirror.topics",
        Type.STRING,
        r"mm2-offsets\..*\.internal",
        validator=pattern,
        documentation="A regular expression for topics with offsets of MirrorSource connectors at this cluster, their target. Empty: none.",
    )
    d.define(
        "spark.metrics",
        Type.LIST,
        [],
        documentation="Addresses of the metrics of Spark jobs that read this cluster, and of Connect workers with SparkSinks.",
    )
    return d  # fmt: skip


def notifier_config() -> ConfigDef:
    """Returns the properties of a notifier, without `notifier.NAME.` in front, and without `extras.*`."""
    d = ConfigDef()
    d.define("class-name", Type.STRING, validator=one_of(*CLASSES), documentation="http, email or command.")
    d.define(
        "group-allowlist",
        Type.STRING,
        "",
        validator=pattern,
        documentation="Only groups in which this regular expression is found.",
    )
    d.define(
        "group-denylist",
        Type.STRING,
        "",
        validator=pattern,
        documentation="Not the groups in which this regular expression is found.",
    )
    d.define(
        "threshold",
        Type.INT,
        2,
        validator=between(1, 3),
        documentation="The least bad status to tell: 2 WARN, 3 ERR.",
    )
    d.define(
        "send-interval",
        Type.DOUBLE,
        0.0,
        validator=between(0),
        documentation="Seconds after which an open incident is told again; 0: it is told once. Burrow's default is 60.",
    )
    d.define(
        "send-close",
        Type.BOOLEAN,
        True,
        documentation="Tell the end of an incident whose beginning was told. Burrow's default is false.",
    )
    d.define("timeout", Type.DOUBLE, 5.0, validator=between(0.1), documentation="Seconds for one attempt.")
    d.define(
        "template-open",
        Type.STRING,
        default="",
        documentation="A file with the text for the beginning. Without it: JSON, or a plain letter.",
    )
    d.define("template-close", Type.STRING, default="", documentation="A file with the text for the end.")
    _define_http(d)
    _define_others(d)
    return d


def _define_http(d: ConfigDef) -> None:
    """Defines how a request is sent."""
    d.define("url-open", Type.STRING, default="", documentation="http: the address for beginnings.")
    d.define(
        "url-close",
        Type.STRING,
        default="",
        documentation="http: the address for ends. Without it: url-open.",
    )
    d.define("method-open", Type.STRING, "POST", documentation="http: the method for beginnings.")
    d.define("method-close", Type.STRING, "POST", documentation="http: the method for ends.")
    d.define(
        "content-type",
        Type.STRING,
        "application/json",
        documentation="http: of the body. Values in a template for JSON are escaped for it.",
    )
    d.define("authorization", Type.PASSWORD, None, documentation="http: the header Authorization.")
    d.define(
        "extra-ca",
        Type.STRING,
        default="",
        documentation="http, email: a PEM file with an authority to trust beside the system's.",
    )
    d.define("noverify", Type.BOOLEAN, False, documentation="http, email: do not check certificates.")


def _define_others(d: ConfigDef) -> None:
    """Defines how a letter is sent, and which command is run."""
    d.define("server", Type.STRING, default="", documentation="email: the SMTP server.")
    d.define(
        "port",
        Type.INT,
        25,
        validator=between(1, 65535),
        documentation="email: its port. 465 speaks TLS from the start; others use STARTTLS where it is offered.",
    )
    d.define("username", Type.STRING, default="", documentation="email: for a login.")
    d.define(
        "password", Type.PASSWORD, None, documentation="email: for a login, which is made over TLS only."
    )
    d.define("from", Type.STRING, default="", documentation="email: the sender.")
    d.define("to", Type.LIST, [], documentation="email: the receivers.")
    d.define(
        "command-open", Type.STRING, default="", documentation="command: run at beginnings, by the shell."
    )
    d.define(
        "command-close",
        Type.STRING,
        default="",
        documentation="command: run at ends. Without it: command-open.",
    )
