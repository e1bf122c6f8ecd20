"""A Kafka cluster as commands address it: `--bootstrap-server`, `--command-config`, and the clients made from both."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from klamm_base.errors import ConfigError, KlammError

if TYPE_CHECKING:
    from klamm.admin.client import Admin

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
ANSWER_S: Final = 5.0  # for a first sign of life from a broker
TIMEOUT_S: Final = 30.0


_refusals: Final[list[str]] = []
"""The reasons why this command's connections were refused."""
_losses: Final[set[int]] = set()
"""The other errors that its connections had, by librdkafka's codes."""


def _note_refusal(error: Any) -> None:
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):  # noqa: SLF001 - librdkafka's local codes are spelled so
        _refusals.append(error.str())
    else:
        _losses.add(error.code())


def _were_closed() -> bool:
    """Tell whether brokers took connections and closed them without a word, which librdkafka does not tell by itself."""
    from confluent_kafka import KafkaError

    return _losses == {KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001


def _bootstrap(value: str) -> str:
    """Refuse an impossible address as a usage error, before the command does anything."""
    from klamm_base.addresses import parse_addresses

    try:
        parse_addresses(value)
    except ConfigError as e:
        raise typer.BadParameter(str(e)) from None
    return value


BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KLAMM_BOOTSTRAP_SERVER",
        callback=_bootstrap,
        help="HOST:PORT of a broker, several by commas.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="KLAMM_COMMAND_CONFIG",
        readable=False,  # who reads it says what to do
        help="A .properties file with client settings (Java's names).",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.001, help="Seconds to wait for the cluster, retries included.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster of a command that works through librdkafka."""

    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP
    command_config: CommandConfigOption = None

    def config(self, kind: str) -> dict[str, Any]:
        """Return librdkafka's settings for a client of this kind (producer, consumer or admin)."""
        from klamm_base.clientconfig import translate
        from klamm_base.properties import load_properties

        props = dict(load_properties(self.command_config)) if self.command_config else {}
        translated = translate(props, kind)  # type: ignore[arg-type]
        for name, why in translated.ignored:
            typer.echo(f"klamm: {self.command_config}: {name} has no effect: {why}", err=True)
        # librdkafka prints connection errors by itself; the command says them once, in its own words
        own = {"log_level": 2, "socket.timeout.ms": 10_000, "error_cb": _note_refusal}
        return own | translated.config | {"bootstrap.servers": self.bootstrap}

    def open(self, client: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
        """Open a librdkafka client. Raises ConfigError for a setting that it refuses, with the file that holds it."""
        from confluent_kafka import KafkaException

        from klamm_base.properties import load_properties

        try:
            return client(config)
        except KafkaException as e:
            said = str(kafka_error(e, "client settings"))
            names = load_properties(self.command_config) if self.command_config else {}
            theirs = any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said) for name in names)
            raise ConfigError(f"{self.command_config}: {said}" if theirs else said) from None

    def metadata(self, client: Any) -> Any:
        """Return the cluster's metadata; a command learns here within ANSWER_S that no broker answers.

        The request names no topic: a broker would create it.
        """
        from confluent_kafka import KafkaException

        try:
            return client.list_topics(timeout=ANSWER_S)
        except KafkaException as e:
            client.poll(0)  # calls `error_cb` with what the brokers said
            raise self.no_answer(e) from None

    def no_answer(self, error: Any) -> KlammError:
        """Return the sentence for a request that librdkafka gave up. A login or handshake that failed is the reason."""
        if _refusals:
            which = f" (settings of {self.command_config})" if self.command_config else ""
            return KlammError(f"{_refusals[-1]}{which}")
        said = kafka_error(error, f"no answer from a broker at {self.bootstrap}")
        if not _were_closed():
            return said
        return KlammError(f"{said}; does it want TLS or a login (--command-config: security.protocol)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCluster(Cluster):
    """The cluster of an administrative command, which works through our own asyncio client."""

    timeout: TimeoutOption = TIMEOUT_S

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run asynchronous work against the cluster; `reported()` around it says what goes wrong."""
        import asyncio

        from klamm.admin.settings import client_settings

        settings = client_settings(self.bootstrap, self.command_config, timeout_s=self.timeout)
        for key in settings.unused:
            typer.echo(f"klamm: {self.command_config}: {key} has no effect here", err=True)

        async def run() -> T:
            async with settings.open() as admin:
                return await work(admin)

        return asyncio.run(run())


def kafka_error(error: Any, doing: str) -> KlammError:
    """Return librdkafka's error as a sentence that says what was being done."""
    inner = error.args[0] if getattr(error, "args", None) else error
    text = inner.str() if hasattr(inner, "str") else str(inner)
    return KlammError(f"{doing}: {text}")
