"""Finds the installed plugins, and the class for a configured name.

`PluginManager.load()` imports the modules that the entry points of group `klamm` name, so it runs where plugin
code may run: in children, not in the worker. A package that cannot be imported or whose hook raises hides no
other package: it stands in `broken`. No I/O but imports.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import threading
import traceback
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar, cast

import pluggy

from klamm_base.properties import suggestion
from klamm_plugins import hookspecs
from klamm_plugins.connector import Plugin, SinkConnector, SourceConnector
from klamm_plugins.converter import Converter, HeaderConverter
from klamm_plugins.errors import ConnectError, PluginBrokenError, PluginNotFoundError
from klamm_plugins.mirror import MirrorPlugin
from klamm_plugins.transform import Predicate, Transformation

log = logging.getLogger(__name__)

GROUP: Final = "klamm"

_HOOKS: Final = (
    "register_connectors",
    "register_converters",
    "register_transforms",
    "register_predicates",
    "register_mirror_plugins",
)


M = TypeVar("M", bound=MirrorPlugin)


class PluginType(StrEnum):
    """The kinds of plugin, as GET /connector-plugins names them."""

    SOURCE = "source"
    SINK = "sink"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    MIRROR = "mirror"


_BASES: Final[dict[PluginType, type[Plugin]]] = {
    PluginType.SINK: SinkConnector,
    PluginType.SOURCE: SourceConnector,
    PluginType.CONVERTER: Converter,
    PluginType.HEADER_CONVERTER: HeaderConverter,
    PluginType.PREDICATE: Predicate,
    PluginType.TRANSFORMATION: Transformation,
    PluginType.MIRROR: MirrorPlugin,
}
_SUFFIX: Final = {
    PluginType.SOURCE: "Connector",
    PluginType.SINK: "Connector",
    PluginType.CONVERTER: "Converter",
    PluginType.HEADER_CONVERTER: "HeaderConverter",
    PluginType.PREDICATE: "Predicate",
    PluginType.TRANSFORMATION: "Transformation",
    PluginType.MIRROR: "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDesc:
    """One plugin class in one of its kinds. `location` is the entry point that brought it, `module` the entry point's
    module.
    """

    cls: type[Plugin]
    type: PluginType
    version: str
    location: str
    module: str = ""

    @property
    def class_name(self) -> str:
        """The name that REST shows: Kafka's where the plugin stands for a class of Kafka's, else its Python path."""
        return kafka_name(self.cls) or python_name(self.cls)

    @property
    def names(self) -> list[str]:
        """Every name of the plugin, as long as no other plugin of its kind has the name too. The first is the full name."""
        own = self.cls.__name__
        short = own.removesuffix(_SUFFIX[self.type]) or own  # SqlSink, whose Kafka name is JdbcSinkConnector
        kafkas = () if vars(self.cls).get("full_name_only") else (self.simple_name, self.alias)
        return list(dict.fromkeys((*self._full_names, *kafkas[:1], own, *kafkas[1:], short)))

    @property
    def simple_name(self) -> str:
        return self.class_name.rpartition(".")[2]

    @property
    def alias(self) -> str:
        """The simple name without its kind: `FileStreamSource`."""
        return self.simple_name.removesuffix(_SUFFIX[self.type]) or self.simple_name

    def answers_to(self, name: str) -> bool:
        """Returns whether `name` is one of the full names, which are never ambiguous by mistake."""
        return name in self._full_names

    @property
    def _full_names(self) -> list[str]:
        former: tuple[str, ...] = vars(self.cls).get("former_names", ())  # a subclass is another plugin
        own = (self.class_name, python_name(self.cls), python_name(self.cls, sep=":"))
        return [*own, *former, *(":".join(path.rsplit(".", 1)) for path in former)]

    def __str__(self) -> str:
        # Kafka's words: they stand in REST errors.
        return (
            f"PluginDesc{{klass=class {self.class_name}, name='{self.class_name}', version='{self.version}', "
            f"encodedVersion={self.version}, type={self.type}, typeName='{self.type}', location='{self.location}'}}"
        )


class BrokenPlugin(NamedTuple):
    """A plugin package that could not be used: its entry point, what went wrong, and where (a traceback)."""

    name: str
    error: str
    trace: str = ""


def kafka_name(cls: type) -> str | None:
    """Returns the Java class that this very class stands for: a subclass of it is another plugin."""
    name: str | None = vars(cls).get("kafka_name")
    return name


def python_name(cls: type, sep: str = ".") -> str:
    return f"{cls.__module__}{sep}{cls.__qualname__}"


class PluginManager:
    """The plugins of this process. `load` makes it once per process."""

    def __init__(self) -> None:
        self._all = True  # False: there may be more, which are loaded when a name is not found
        self._needed: list[str] = []  # entry points that are known to have what is asked for
        self.errors: dict[str, BaseException] = {}
        """The errors of broken packages by entry point."""
        self._loaded: set[tuple[str, str]] = set()
        self._pluggy = pluggy.PluginManager(hookspecs.PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._plugins: list[PluginDesc] = []
        self._answers: dict[tuple[str, tuple[PluginType, ...]], list[PluginDesc]] = {}
        self._loading = threading.RLock()
        self.broken: list[BrokenPlugin] = []

    @classmethod
    def load(cls, first: Sequence[Sequence[str]] | None = None) -> PluginManager:
        """Loads everything that is installed now, including packages that were installed a moment ago.

        `first` are entry points (name, module) that are known to be enough: the others wait until a name is not found.
        """
        importlib.invalidate_caches()
        manager = cls()
        if first is None:
            manager._load_all()
            return manager
        manager._all = False
        manager._needed = [name for name, _ in first]
        for name, value in first:
            manager._load_entry_point(EntryPoint(name, value, GROUP))
        return manager

    @classmethod
    def of(cls, found: Iterable[EntryPoint]) -> PluginManager:
        """Loads the plugins of these entry points alone."""
        manager = cls()
        for entry_point in sorted(_unique(found), key=_order):
            manager._load_entry_point(entry_point)
        return manager

    def _load_all(self) -> None:
        self._all = True
        for entry_point in sorted(_unique(entry_points(group=GROUP)), key=_order):
            if (entry_point.name, entry_point.value) not in self._loaded:
                self._load_entry_point(entry_point)

    def register(self, module: ModuleType | Any, name: str, value: str = "") -> None:
        """Adds one module's plugins; faults of the module go to `broken`."""
        try:
            self._pluggy.register(module, name)
            found = [
                desc
                for hook in _HOOKS
                for cls in self._call(hook, name)
                for desc in _describe(cls, name, value)
            ]
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            self._break(name, e)
            return
        known = {(d.cls, d.type) for d in self._plugins}
        new = [d for d in found if (d.cls, d.type) not in known]
        taken = {(d.class_name, d.type): d for d in self._plugins}
        clash = next((d for d in new if (d.class_name, d.type) in taken), None)
        if clash is not None:
            owner = taken[clash.class_name, clash.type].location
            self._break(name, ConnectError(f"{clash.class_name} is a plugin of {owner} already"))
            return
        self._plugins += new
        self._answers.clear()

    def plugins(self, *types: PluginType) -> list[PluginDesc]:
        """Returns all plugins, or those of these kinds, ordered by kind and name."""
        order = list(_BASES)
        return sorted(
            (d for d in self._plugins if not types or d.type in types),
            key=lambda d: (order.index(d.type) > 1, d.type if order.index(d.type) > 1 else "", d.class_name),
        )

    def connectors(self) -> list[PluginDesc]:
        """Returns source and sink connectors, by name."""
        return self.plugins(PluginType.SOURCE, PluginType.SINK)

    def find_connector(self, name: str) -> type[SourceConnector] | type[SinkConnector]:
        """Returns the connector class that `connector.class` names.

        Raises PluginNotFoundError, which begins with Kafka's words, when there is none or more than one, PluginBrokenError
        when its package cannot be imported.
        """
        found = self._called(name, PluginType.SOURCE, PluginType.SINK)
        if not found:
            aliases = {d.alias for d in self.connectors()}
            raise PluginNotFoundError(unknown_connector(name, aliases) + self._hint())
        if len(found) > 1:
            raise PluginNotFoundError(
                f"More than one connector matches alias {name}. Please use full package and class name "
                f"instead. Classes found: {_listed(found)}"
            )
        return cast("type[SourceConnector] | type[SinkConnector]", found[0].cls)

    def find_converter(self, name: str) -> type[Converter]:
        """Returns the class that `key.converter` or `value.converter` names. Raises PluginNotFoundError as above."""
        return cast("type[Converter]", self._find_one(name, PluginType.CONVERTER))

    def find_header_converter(self, name: str) -> type[HeaderConverter]:
        """Returns the class that `header.converter` names. Raises PluginNotFoundError as above."""
        return cast("type[HeaderConverter]", self._find_one(name, PluginType.HEADER_CONVERTER))

    def find_transformation(self, name: str) -> type[Transformation]:
        """Returns the class that `transforms.NAME.type` names. Raises PluginNotFoundError as above."""
        return cast("type[Transformation]", self._find_one(name, PluginType.TRANSFORMATION))

    def find_predicate(self, name: str) -> type[Predicate]:
        """Returns the class that `predicates.NAME.type` names. Raises PluginNotFoundError as above."""
        return cast("type[Predicate]", self._find_one(name, PluginType.PREDICATE))

    def find_mirror_plugin(self, name: str, base: type[M]) -> type[M]:
        """Returns the subclass of `base` that a key of the mirror names. Raises PluginNotFoundError as above."""
        return cast("type[M]", self._find_one(name, PluginType.MIRROR, base))

    def find_plugin(self, name: str) -> PluginDesc:
        """Returns a plugin of any kind, for GET /connector-plugins/{name}/config. Raises PluginNotFoundError."""
        found = self._called(name)
        if not found:
            raise PluginNotFoundError(f"Unknown plugin {name}{self._hint()}")
        if len(found) > 1:
            raise PluginNotFoundError(f"More than one plugin is called {name}: {_listed(found)}")
        return found[0]

    def _find_one(self, name: str, type: PluginType, base: type[Plugin] = Plugin) -> type[Plugin]:
        found = [d for d in self._called(name, type) if issubclass(d.cls, base)]
        if len(found) == 1:
            return found[0].cls
        if found:
            classes = " or ".join(d.class_name for d in found)
            raise PluginNotFoundError(f"Class {name} is ambiguous: use a full name, {classes}")
        names = {each for d in self.plugins(type) if issubclass(d.cls, base) for each in d.names}
        raise PluginNotFoundError(unknown_class(name, names) + self._hint())

    def called(self, name: str, *types: PluginType) -> list[PluginDesc]:
        """Returns the plugins of these kinds that are called `name`, of those that are loaded. An answer is kept: to look
        again would touch every class, and its memory, which processes share.
        """
        answer = self._answers.get((name, types))
        if answer is None:
            answer = _match(name, self.plugins(*types))
            if answer:
                self._answers[name, types] = answer
        return answer

    def _called(self, name: str, *types: PluginType) -> list[PluginDesc]:
        """Returns the same, of all plugins if need be. Raises PluginBrokenError."""
        found = self.called(name, *types)
        if not found:
            with self._loading:
                if not self._all:
                    self._load_all()
            found = self.called(name, *types)
        if not found:
            self._raise_broken(name)
        return found

    def _raise_broken(self, name: str) -> None:
        """Raises PluginBrokenError if the package of this name is broken: it is needed, or the name is a path below it."""
        for broken in self.broken:
            module = self._modules.get(broken.name, "")
            below = bool(module) and name.partition(":")[0].partition(".")[0] == module.partition(".")[0]
            if broken.name in self._needed or below:
                raise PluginBrokenError(
                    f"{name} cannot be used, because its plugin package {broken.name} is broken: {broken.error}"
                ) from self.errors.get(broken.name)

    def _hint(self) -> str:
        if not self.broken:
            return ""
        return "; these plugin packages could not be loaded: " + ", ".join(
            f"{b.name} ({b.error})" for b in self.broken
        )

    @property
    def _modules(self) -> dict[str, str]:
        """The modules of the entry points that were loaded, by name."""
        return dict(self._loaded)

    def _load_entry_point(self, entry_point: EntryPoint) -> None:
        self._loaded.add((entry_point.name, entry_point.value))
        try:
            module = entry_point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as e:  # a module that ends the interpreter, or is cancelled, is broken, too
            self._break(entry_point.name, e)
        else:
            self.register(module, entry_point.name, entry_point.value)

    def _call(self, hook: str, name: str) -> Iterable[type[Plugin]]:
        """Asks one plugin. Asking all at once would let one that raises silence the rest."""
        for impl in getattr(self._pluggy.hook, hook).get_hookimpls():
            if impl.plugin_name == name:
                yield from impl.function()

    def _break(self, name: str, error: BaseException) -> None:
        log.warning("plugin package %s cannot be used", name, exc_info=error)
        trace = "".join(traceback.format_exception(error))
        self.errors[name] = error
        self.broken.append(BrokenPlugin(name, _said(error), trace))


def _order(entry_point: EntryPoint) -> tuple[bool, str]:
    """Sorts Klamm's own plugins first: a package that takes one of their names is then the one that cannot be used."""
    own = entry_point.dist is not None and entry_point.dist.name == "klamm"
    return not own, entry_point.name


def _unique(found: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Drops repeated entry points: a package installed twice on the path (editable and as a wheel) counts once."""
    return list({(e.name, e.value): e for e in found}.values())


def _describe(cls: type[Plugin], location: str, module: str) -> list[PluginDesc]:
    """Describes the class in each of its kinds. Raises ConnectError when it is of none or is not complete."""
    kinds = [kind for kind, base in _BASES.items() if inspect.isclass(cls) and issubclass(cls, base)]
    if not kinds:
        raise ConnectError(
            f"{cls!r} is not a connector, converter, transform, predicate or mirror plugin class"
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise ConnectError(f"{python_name(cls)} does not implement {missing}")
    version = cls.version()
    if not isinstance(version, str) or not version.strip():
        raise ConnectError(
            f"version() of {python_name(cls)} must be a text that is not empty, not {version!r}"
        )
    return [
        PluginDesc(cls=cls, type=kind, version=version, location=location, module=module) for kind in kinds
    ]


_NO_SUCH_TRANSFORM: Final = "there is no such transform here: write one in Python"
_ELSEWHERE: Final = {
    "JdbcSourceConnector": "there is none here: use MySqlSource for MySQL and MariaDB, the Spark source for other tables",
    "PostgresConnector": "there is none here: let Debezium write the topics, which sinks and transforms here read",
    "SqlServerConnector": "there is none here: let Debezium write the topics, which sinks and transforms here read",
    "OracleConnector": "there is none here: let Debezium write the topics, which sinks and transforms here read",
    "MongoDbConnector": "there is none here: let Debezium write the topics, which sinks and transforms here read",
    "TimezoneConverter": _NO_SUCH_TRANSFORM,
    "ExtractChangedRecordState": _NO_SUCH_TRANSFORM,
    "HeaderToValue": _NO_SUCH_TRANSFORM,
    "PartitionRouting": _NO_SUCH_TRANSFORM,
    "SchemaChangeEventFilter": _NO_SUCH_TRANSFORM,
}
"""Well-known classes that Klamm does not have, with what to use instead."""


def unknown_connector(name: str, aliases: Collection[str]) -> str:
    """Returns the sentence for a connector class that nobody has; `aliases` are the short names that there are."""
    own = re.split(r"[.:]", name)[-1]
    what = f"Failed to find any class that implements Connector and which name matches {name}"
    if (instead := _ELSEWHERE.get(own)) is not None:
        return f"{what}; {instead} (docs/migrating.md). `klamm connector plugins` lists all"
    same = next((alias for alias in sorted(aliases) if alias.lower() == own.lower()), None)
    near = f"; did you mean {same}?" if same else ""
    near = near or suggestion(own.removesuffix(_SUFFIX[PluginType.SOURCE]) or own, sorted(aliases))
    return f"{what}{near or ';'} `klamm connector plugins` lists all"


def unknown_class(name: str, names: Collection[str]) -> str:
    """Returns the sentence for a class, other than a connector's, that nobody has; `names` are all names that there are."""
    halves = sorted(
        each for each in names if each.startswith(f"{name}$")
    )  # InsertField: of the key, or of the value?
    near = f"; did you mean {' or '.join(halves)}?" if halves else suggestion(name, sorted(names))
    if (instead := _ELSEWHERE.get(re.split(r"[.:$]", name)[-1])) is not None:
        near = f"; {instead} (docs/migrating.md)."
    return f"Class {name} could not be found{near or ';'} `klamm connector plugins --all` lists all"


def _said(error: BaseException) -> str:
    """Returns an error in one line. A SyntaxError names its file only by its last part."""
    text = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        text = f"{error.msg} ({error.filename}, line {error.lineno})"
    return f"{type(error).__name__}: {text}"


def _match(name: str, plugins: list[PluginDesc]) -> list[PluginDesc]:
    """Returns the plugins of full name `name`; where there is none, those of this simple name or alias, one per class."""
    found = [d for d in plugins if d.answers_to(name)]
    found = found or [d for d in plugins if name in d.names]
    return list({d.cls: d for d in found}.values())


def _listed(plugins: list[PluginDesc]) -> str:
    return ", ".join(str(d) for d in plugins)
