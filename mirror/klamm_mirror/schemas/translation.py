"""Finds the target's ids of the schemas in a topic's records.

| the id in a key or value | at the source's registry | fate |
|---|---|---|
| of a subject of the topic, `orders-value` or `orders-com.acme.Order` | | translated |
| of another subject | `orders-value` exists, or `sync.schemas.records` names it | translated |
| unknown | the same | refused, or passed (`sync.schemas.unknown.ids`) |
| of other topics' subjects, or unknown | no subject of this name | passed: the bytes are no id |
| of a record's subject, `com.acme.Order` | the same | refused: nobody can tell; settings say what it is |

Only translations are remembered. Everything else may be another tomorrow, and is asked again with the next records. A registry
that follows another one may be behind: a topic's first id without a translation waits for some seconds, and the log tells what passes.
`find` blocks, and serves one thread at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from klamm_mirror.schemas.config import RECORDS, UNKNOWN, SchemaSettings
from klamm_mirror.schemas.copier import ConflictError, SchemaCopier
from klamm_mirror.schemas.names import PARTS, topic_of
from klamm_mirror.schemas.prefix import SchemaId
from klamm_plugins.converters.registry import RegistryError
from klamm_plugins.converters.registry_admin import NOT_US
from klamm_plugins.errors import RetriableError

log = logging.getLogger(__name__)

BEHIND_S: Final = 5.0
"""For so long a registry may know less than the one that gave an id."""


class RefusedError(Exception):
    """A record's schema has no translation, and nobody said that it may pass."""


class Translation:
    """The ids of one task."""

    def __init__(self, settings: SchemaSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._source, target = settings.registries()
        self._copier = SchemaCopier(self._source, target, settings.names, settings.ids)
        self._known: dict[tuple[str, SchemaId], int | str] = {}
        self._clock = clock
        self._decide_at: dict[str, float] = {}
        """When the first id without a translation is taken for one, by topic and part."""
        self._passing: set[str] = set()

    def close(self) -> None:
        """Closes the plugins of the settings."""
        self._settings.plugins.close()

    def known(self, topic: str, schema: SchemaId) -> int | str | None:
        """Returns the translation that has been found before; the id itself where the flow leaves this part alone."""
        found = self._known.get((topic, schema))
        if found is None and not self._settings.names.wants(f"{topic}-{schema.part}"):
            return schema.name
        return found

    def find(self, topic: str, schema: SchemaId) -> int | str:
        """Returns the target's id for one of the source; the same one for bytes that are none.

        Raises RefusedError, RetriableError (a registry is away, lets nobody in, or may not know the id yet).
        """
        try:
            return self._find(topic, schema)
        except ConflictError as e:
            raise RefusedError(str(e)) from e
        except RegistryError as e:
            if e.code in NOT_US:
                raise RetriableError(str(e)) from e
            raise RefusedError(str(e)) from e

    def _find(self, topic: str, schema: SchemaId) -> int | str:
        places = self._places(schema)
        live = bool(places)
        if not live and (schema.sure or self._has_schemas(topic, schema.part)):
            places = self._places(schema, deleted=True)
        own = [place for place in places if _is_of(place[0], topic, schema.part)]
        if own or (places and (schema.sure or self._has_schemas(topic, schema.part))):
            found = self._known[topic, schema] = self._translated(own or places, schema, live=live)
            return found
        self._wait(topic, schema)
        if not schema.sure and not self._has_schemas(topic, schema.part):
            if all(topic_of(subject)[1] in PARTS for subject, _ in places):
                return self._passed(topic, schema)
            raise RefusedError(
                f"{schema} may be {places[0][0]}, or bytes that look like an id. If this topic has schemas, set {RECORDS}="
                f"{topic}-{schema.part}; if not, schemas.exclude={topic}-{schema.part}"
            )
        if self._settings.passes_unknown:
            return schema.name
        raise RefusedError(
            f"{schema} is not at the registry of the source. {UNKNOWN}=pass copies such records as they are"
        )

    def _wait(self, topic: str, schema: SchemaId) -> None:
        """Raises RetriableError while the source's registry may be behind."""
        name, now = f"{topic}-{schema.part}", self._clock()
        if now < self._decide_at.setdefault(name, now + BEHIND_S):
            raise RetriableError(f"{topic}: the source's registry does not know yet what {schema} is")

    def _passed(self, topic: str, schema: SchemaId) -> int | str:
        """Returns the id itself, of bytes that are none."""
        name = f"{topic}-{schema.part}"
        if name not in self._passing:
            self._passing.add(name)
            log.warning(
                "%s: bytes that look like %s pass as they are, for the source's registry has no subject of this name. If "
                "these are ids, set %s=%s; if not, schemas.exclude=%s", name, schema, RECORDS, name, name,
            )  # fmt: skip
        return schema.name

    def _places(self, schema: SchemaId, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Returns the subjects and versions that are this schema. `deleted`: also deleted ones."""
        ids = [schema.id] if schema.guid is None else self._source.ids_of_guid(schema.guid)
        return [p for id_ in ids if id_ is not None for p in self._source.places_of(id_, deleted=deleted)]

    def _has_schemas(self, topic: str, part: str) -> bool:
        name = f"{topic}-{part}"
        return bool(self._settings.records.fullmatch(name)) or bool(self._source.versions(name))

    def _translated(self, places: list[tuple[str, int]], schema: SchemaId, *, live: bool) -> int | str:
        wanted = next((p for p in places if self._settings.names.selects(p[0])), None)
        if wanted is None:
            raise RefusedError(
                f"{schema} is {places[0][0]}, which the flow does not copy (schemas, schemas.exclude)"
            )
        if live:
            self._copier.copy(wanted[0])
        else:
            self._copier.copy_deleted(*wanted)
        copied = self._copier.copied.get(wanted)
        if copied is None:
            raise RefusedError(f"{schema}: version {wanted[1]} of {wanted[0]} is gone")
        found = copied.target.schema.id if schema.guid is None else copied.target.guid
        if found is None:
            raise RefusedError(f"{schema}: the registry of the target knows no GUIDs")
        return found


def _is_of(subject: str, topic: str, part: str) -> bool:
    """Returns True for a subject of this part of a topic's records, or of records of the topic."""
    named, rest = topic_of(subject)
    return named == topic and (rest == part or rest not in PARTS)
