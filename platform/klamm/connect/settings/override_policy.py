"""The client settings that a connector may override (KIP-458, KIP-1188), and the check of its overrides.

`connector.client.config.override.policy` of the worker names a policy: All, None, Principal or
Allowlist, by Kafka's class names or short. Pure, but for the key stores that settings name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from klamm_base.clientconfig import LOADS_CODE, NO_CODE, Kind, refusal, translate, warn_once
from klamm_base.configdef import ConfigDef, Importance, Type, invalid, with_prefix
from klamm_base.errors import ConfigError
from klamm_base.redaction import HIDDEN, is_secret_name

POLICY: Final = "connector.client.config.override.policy"
ALLOWLIST: Final = "connector.client.config.override.allowlist"
KINDS: Final[tuple[Kind, ...]] = ("producer", "consumer", "admin")
_PACKAGE: Final = "org.apache.kafka.connect.connector.policy."
_SUFFIX: Final = "ConnectorClientConfigOverridePolicy"
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """A policy with the `allowed` settings; None allows every setting."""

    name: str
    allowed: frozenset[str] | None

    @classmethod
    def of(cls, worker: Mapping[str, str]) -> OverridePolicy:
        """Returns the worker's policy. Raises ConfigError for an unknown policy."""
        given = worker.get(POLICY, "All").strip()
        short = given.removeprefix(_PACKAGE).removesuffix(_SUFFIX)
        match short.lower():
            case "all":
                return cls("All", None)
            case "none":
                return cls("None", frozenset())
            case "principal":
                return cls("Principal", _PRINCIPAL)
            case "allowlist":
                names = [n.strip() for n in worker.get(ALLOWLIST, "").split(",")]
                return cls("Allowlist", frozenset(n for n in names if n))
        raise invalid(POLICY, given, "use All, None, Principal or Allowlist; other policies are Java classes")

    def objection(self, name: str) -> str | None:
        """Returns Kafka's sentence when `name` may not be overridden, otherwise None. No policy allows settings that
        load native code.
        """
        if name in LOADS_CODE:
            return f"'{name}' must not be overridden in the connector configuration: {NO_CODE}."
        if self.allowed is None or name in self.allowed:
            return None
        return f"The '{self.name}' policy does not allow '{name}' to be overridden in the connector configuration."


def _known(name: str, value: Any) -> None:
    OverridePolicy.of({POLICY: value or "All"})


OVERRIDE_CONFIG: Final = (
    ConfigDef()
    .define(
        POLICY,
        Type.STRING,
        "All",
        validator=_known,
        importance=Importance.MEDIUM,
        documentation="The client settings that connectors may override (producer.override., consumer.override., "
        "admin.override.): All, None, Principal (security.protocol, sasl.mechanism and sasl.jaas.config) or Allowlist.",
    )
    .define(
        ALLOWLIST,
        Type.LIST,
        [],
        importance=Importance.MEDIUM,
        documentation="The client settings that connectors may override when the policy is Allowlist, separated by commas.",
    )
)


def overrides(config: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """Returns a connector's overrides for this kind of client, without the prefix."""
    return with_prefix(config, f"{kind}.override.")


def override_rows(config: Mapping[str, str], worker: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a row of the validate answer for each override, with its errors."""
    policy = OverridePolicy.of(worker)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        given = overrides(config, kind)
        unusable = unusable_overrides(given, worker, kind)
        for name in sorted(given):
            said = [policy.objection(name), unusable.get(name)]
            full = f"{kind}.override.{name}"
            value = HIDDEN if is_secret_name(name) else given[name]
            rows.append(
                {
                    "definition": None,
                    "value": {
                        "name": full,
                        "value": value,
                        "recommended_values": [],
                        "errors": [s for s in said if s is not None],
                        "visible": True,
                    },
                }
            )
    return rows


def unusable_overrides(given: Mapping[str, str], worker: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """Returns the first setting that librdkafka or its translation refuses, with the reason; empty if they
    accept all.
    """
    literal = {name: value for name, value in given.items() if "${" not in value and name not in LOADS_CODE}
    if not literal:
        return {}
    try:
        config = translate({**client_settings(worker, kind), **literal}, kind, lenient=True).config
    except ConfigError as e:
        return {e.key: str(e)} if e.key in literal else {}
    own = {name: config[name] for name in literal if isinstance(config.get(name), str)}
    found = refusal(own)
    return (
        {}
        if found is None
        else {found[0]: f"Invalid value {literal[found[0]]} for configuration {found[0]}: {found[1]}"}
    )


def client_settings(worker: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """Returns the worker's settings for a kind of client of its tasks: the connection settings, overridden by the
    settings with the kind's prefix.
    """
    connection = {
        k: v
        for k, v in worker.items()
        if k.startswith(("security.", "sasl.", "ssl."))
        or k in {"bootstrap.servers", "client.dns.lookup", "client.rack"}
    }
    prefix = f"{kind}."
    given = {k for k in worker if k.startswith(prefix) and not k.startswith("admin.listeners")}  # REST's
    return connection | {k[len(prefix) :]: worker[k] for k in worker if k in given}


def ignored_overrides(config: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """Returns, by key, a sentence about each override of a connector that has no effect, because librdkafka has no such setting."""
    found = {}
    for kind in KINDS:
        given = overrides(config, kind)
        if not given:
            continue
        try:
            ignored = translate({**client_settings(worker, kind), **given}, kind, lenient=True).ignored
        except ConfigError:
            continue  # its tasks fail with this sentence
        for name, why in ignored:
            if name in given:
                found[f"{kind}.override.{name}"] = f"{kind}.override.{name} has no effect: {why}"
    return found


def warn_of_worker(worker: Mapping[str, str]) -> None:
    """Warns likewise of the worker's own `producer.`, `consumer.` and `admin.` settings. Raises ConfigError."""
    for kind in KINDS:
        settings = client_settings(worker, kind)
        prefixed = {k for k in settings if f"{kind}.{k}" in worker}
        try:
            ignored = translate(settings, kind, lenient=True).ignored
        except ConfigError as e:
            if e.key not in prefixed:
                raise
            raise ConfigError(f"{kind}.{e}", key=f"{kind}.{e.key}") from None
        warn_once([i for i in ignored if i[0] in prefixed], prefix=f"{kind}.")
        warn_once([i for i in ignored if i[0] not in prefixed])
