"""The plugins of a worker as the REST API sees them: lists, settings, validation, dry runs, packages.
Answers are Kafka's JSON.

`ConnectService` builds on it. Plugin code runs in children only. References to secrets are resolved
right before a plugin gets a configuration, and their values are never shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from klamm.connect.children.supervisor import PluginCallError
from klamm.connect.config import WORKER_CONFIG
from klamm.connect.errors import BadRequest, NotFound, RequestError
from klamm.connect.events import EventBus
from klamm.connect.model import PluginInfo
from klamm.connect.plugins.catalog import CONNECTOR_TYPES, PluginRegistry
from klamm.connect.plugins.requirements import CONNECTOR_VERSION
from klamm.connect.runtime import Runtime
from klamm.connect.secrets import conceal
from klamm.connect.service.dead_letter_check import DeadLetterCheck, Objection
from klamm.connect.service.redaction import Redaction
from klamm.connect.service.rollout import spread
from klamm.connect.settings.connector_keys import CONNECTOR_CLASS, CONVERTERS, NAME
from klamm.connect.settings.restart_policy import ErrorClass
from klamm.connect.validation.connector import (
    WARNINGS,
    PluginAnswer,
    config_infos,
    count_errors,
    errors_of,
    no_such_version,
    plugin_keys,
    with_warnings,
)
from klamm.environments.versions import BadVersion
from klamm_base.errors import ConfigError
from klamm_base.redaction import HIDDEN

log = logging.getLogger(__name__)

_SEE_VALIDATE: Final = (
    "You can also find the above list of errors at the endpoint "
    "`/connector-plugins/{connectorType}/config/validate`"
)

Config = dict[str, str]
Keys = list[dict[str, Any]]
ConfigWithNulls = Mapping[str, str | None]


class Checked(NamedTuple):
    """A valid configuration, and warnings about it."""

    config: Config
    warnings: list[str]

    def add_to(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Returns an answer with the warnings, if there are any."""
        return answer | {WARNINGS: self.warnings} if self.warnings else answer


class PluginService:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.redaction = Redaction(runtime.children, enabled=runtime.config["rest.hide.secrets"])
        self._converter_keys: dict[tuple[str, str | None], Keys] = {}
        self._keys_from: PluginRegistry | None = None
        self._dead_letters = DeadLetterCheck(lambda: runtime.admin)

    @property
    def runtime(self) -> Runtime:
        """The runtime, for those who read figures."""
        return self._runtime

    @property
    def events(self) -> EventBus:
        return self._runtime.events

    @property
    def _plugins(self) -> PluginRegistry:
        return self._runtime.plugins

    def _type(self, config: Mapping[str, str]) -> str:
        plugin = self._plugins.connector(config.get(CONNECTOR_CLASS, ""))
        return plugin.type if plugin else "unknown"

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        """Returns the rows of GET /connector-plugins, with packages that were installed since the worker started."""
        await self._runtime.plugin_listing.refresh()
        found = self._plugins.connectors if connectors_only else self._plugins.all
        return [
            {"class": p.plugin_class, "type": p.type, "version": p.version}
            | ({"package": p.package} if p.package else {})
            for p in found
        ]

    async def plugin_config(self, name: str, version: str | None = None) -> list[dict[str, Any]]:
        """Returns every key that a plugin takes, in the newest version or in `version` (KIP-891)."""
        await self._runtime.plugin_admin.look()
        try:
            why = self._plugins.version_error(name, (), version)
        except BadVersion as e:
            raise BadRequest(f"version: {e}") from None
        if why is not None:
            raise BadRequest(why)
        try:
            own = await self._runtime.children.call("plugin_config", {"plugin": name, "version": version})
        except PluginCallError as e:
            if e.kind == ErrorClass.CONFIG:
                raise NotFound(f"Unknown plugin {name}.") from None
            raise RequestError(f"Plugin {name} did not tell its settings: {e}") from None
        return plugin_keys(own, self._plugins.connector(name, version), self._plugins)

    async def install_plugin(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Installs a package on the workers of the group; returns the package and the workers that have it."""
        await self._runtime.cluster.require_leader()
        done = await self._runtime.plugin_admin.install(spec)
        self.events.publish("plugin.installed", {"name": done.name, "version": done.version})
        found = await spread(done, self._runtime.url, self._runtime.cluster.ask_others)
        workers = [each.to_json() for each in found]
        return done.to_json() | {"warnings": list(done.warnings), "workers": workers}

    async def remove_plugin(self, name: str, version: str | None, *, force: bool) -> dict[str, Any]:
        """Removes a package and returns its description."""
        await self._runtime.cluster.require_leader()
        gone = (await self._runtime.plugin_admin.remove(name, version, force=force)).to_json()
        self.events.publish("plugin.removed", {"name": gone["name"], "version": gone["version"]})
        return gone

    async def dry_run(self, name: str, config: Config, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Sends sample records through the converters and transforms of a config, in a child."""
        self._connector_plugin(config, None)
        secrets = self._runtime.config.secrets
        try:
            resolved = (await secrets.resolve_soon({NAME: name, **config})).config
        except ConfigError as e:
            raise BadRequest(str(e)) from None
        params = {"config": resolved, "worker": self._runtime.config.for_tasks(), "records": records}
        try:
            results = await self._runtime.children.call("dry_run", params)
        except PluginCallError as e:
            refused = e.kind in {ErrorClass.CONFIG, ErrorClass.DATA}
            raise (BadRequest if refused else RequestError)(str(e)) from None
        results = _without_secrets(results, secrets.redact)
        return {"connector": name, "type": self._type(config), "results": results}

    async def validate(self, config: ConfigWithNulls, *, plugin: str | None = None) -> dict[str, Any]:
        """Returns Kafka's validate answer; `plugin` is the class that the URL names.

        References are replaced by their values for the checks, and shown as references.
        """
        secrets = self._runtime.config.secrets
        try:
            resolved = await secrets.resolve_soon({k: v for k, v in config.items() if v is not None})
        except ConfigError as e:
            raise BadRequest(str(e)) from None
        given = resolved.config
        config = {**config, **given}
        await self._runtime.plugin_admin.look()
        found = self._connector_plugin(config, plugin)
        worker = self._runtime.config.for_tasks()
        try:
            why = self._plugins.version_error(
                given[CONNECTOR_CLASS], CONNECTOR_TYPES, given.get(CONNECTOR_VERSION)
            )
        except BadVersion as e:
            raise BadRequest(f"{CONNECTOR_VERSION}: {e}") from None
        if why is not None and found is not None:
            infos = no_such_version(why, config=config, plugin=found, worker=worker, registry=self._plugins)
            conceal(infos["configs"], resolved, secrets)
            return infos
        answer, converter_keys, objection = await self._ask(given)
        if found is None:
            self._plugins.learn(given[CONNECTOR_CLASS], answer.plugin)
        infos = config_infos(
            config=config,
            answer=answer,
            worker=worker,
            registry=self._plugins,
            converter_keys=converter_keys,
        )
        if objection is not None:
            objection.add_to({row["value"]["name"]: row for row in infos["configs"]})
        infos["error_count"] = count_errors(infos["configs"])
        infos = with_warnings(infos, config, answer, worker=worker, worker_keys=WORKER_CONFIG.names)
        conceal(infos["configs"], resolved, secrets)
        return infos

    async def _ask(self, given: Config) -> tuple[PluginAnswer, dict[str, Keys], Objection | None]:
        """Asks the connector, its converters and the cluster about a configuration.

        All at once: a validation takes as long as the slowest answer, not as long as all of them.
        """
        try:
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(self._answer_of(given))
                keys = group.create_task(self._keys_of_converters(given))
                objection = group.create_task(self._dead_letters.objection(given))
        except ExceptionGroup as e:
            raise e.exceptions[0] from None
        return answer.result(), keys.result(), objection.result()

    async def _answer_of(self, given: Config) -> PluginAnswer:
        """Returns the connector's own answer."""
        try:
            return PluginAnswer.from_json(await self._runtime.validate(given))
        except PluginCallError as e:
            if e.kind == ErrorClass.CONFIG:
                said = self._plugins.unknown_connector(given[CONNECTOR_CLASS], str(e))
                raise BadRequest(self._runtime.config.secrets.redact(said)) from None
            raise RequestError(f"Plugin {given[CONNECTOR_CLASS]} did not validate its config: {e}") from None

    def _connector_plugin(self, config: ConfigWithNulls, plugin: str | None) -> PluginInfo | None:
        """Returns the config's plugin, None if only a child can find it. Raises BadRequest if the config names none."""
        wanted = config.get(CONNECTOR_CLASS)
        if not wanted:
            # The message names no values: without a class nobody knows which of them are secrets.
            raise BadRequest(f"Connector config {{{', '.join(config)}}} contains no connector type")
        found = self._plugins.connector(wanted)
        if plugin is not None and plugin != wanted and self._plugins.connector(plugin) != found:
            raise BadRequest(f"Included connector type {wanted} does not match request type {plugin}")
        return found

    async def _keys_of_converters(self, given: Config) -> dict[str, Keys]:
        """Returns the keys that the converters of a configuration take, each under the key that names the converter.

        Asks a child once for each converter, until plugins come or go.
        """
        if self._keys_from is not self._plugins:
            self._converter_keys.clear()
            self._keys_from = self._plugins
        named = {k: (given[k], given.get(f"{k}.plugin.version")) for k in CONVERTERS if given.get(k)}
        each = list(dict.fromkeys(named.values()))
        keys = dict(zip(each, await asyncio.gather(*(self._keys_of(*one) for one in each)), strict=True))
        return {key: keys[one] for key, one in named.items()}

    async def _keys_of(self, converter: str, version: str | None) -> Keys:
        asked = (converter, version)
        if asked not in self._converter_keys:
            try:
                found = await self._runtime.children.call(
                    "plugin_config", {"plugin": converter, "version": version}
                )
            except PluginCallError as e:
                # Validation reports a missing class or version as an error of the key itself.
                if e.kind != ErrorClass.CONFIG:
                    raise RequestError(f"Converter {converter} did not tell its settings: {e}") from None
                return []
            self._converter_keys[asked] = found
        return self._converter_keys[asked]

    async def checked(self, name: str, config: ConfigWithNulls) -> Checked:
        """Returns the valid config with its name, and warnings. Raises BadRequest with every error."""
        named = dict(config)
        if named.setdefault(NAME, name) != name:
            raise BadRequest(
                f"Connector name configuration ({named[NAME]}) doesn't match connector name in the URL ({name})"
            )
        answer = await self.validate(named)
        self.redaction.learn({k: v for k, v in named.items() if v is not None}, answer["configs"])
        warnings = answer.get(WARNINGS, [])
        for sentence in warnings:
            log.warning("connector %s: %s", name, sentence)
        errors = errors_of(answer)
        if errors:
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            refusal = BadRequest("\n".join([head, *errors, _SEE_VALIDATE]))
            refusal.warnings = warnings
            raise refusal
        return Checked({k: v for k, v in named.items() if v is not None}, warnings)


def _without_secrets(value: Any, redact: Callable[[str], str]) -> Any:
    """Redacts every text in a JSON value, and every number that is a secret's value."""
    match value:
        case str():
            return redact(value)
        case int() | float() if not isinstance(value, bool):
            return value if redact(str(value)) == str(value) else HIDDEN
        case list():
            return [_without_secrets(item, redact) for item in value]
        case dict():
            return {redact(key): _without_secrets(item, redact) for key, item in value.items()}
    return value
