"""Writes the reference pages of plugins from their config definitions.

`python -m klamm_plugins.reference` prints the page of the plugins that come with Klamm, which is kept as
`docs/reference/connectors.md`; with names of entry points as arguments, the page of these packages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence

from klamm_base.configdef import ConfigKey, to_string
from klamm_plugins.discovery import PluginDesc, PluginManager, PluginType, python_name

_OWN = "klamm-"

_HEAD = """\
# Connectors, converters, transforms, predicates

Made by `python -m klamm_plugins.reference`; edit the config definitions, not this page. Connectors also take the
keys that every connector has (`name`, `tasks.max`, converters, error handling); converter keys are set with the
prefix `key.converter.`, `value.converter.` or `header.converter.`, those of transforms and predicates with `transforms.NAME.` and `predicates.NAME.`.
"""
_TITLES = {
    PluginType.SOURCE: "Source connector",
    PluginType.SINK: "Sink connector",
    PluginType.CONVERTER: "Converter",
    PluginType.HEADER_CONVERTER: "Header converter",
    PluginType.TRANSFORMATION: "Transform",
    PluginType.PREDICATE: "Predicate",
    PluginType.MIRROR: "Plugin of the mirror",
}
_TOLD = (PluginType.TRANSFORMATION, PluginType.PREDICATE, PluginType.MIRROR)


def page(plugins: Sequence[PluginDesc]) -> str:
    """Returns the page of these plugins, one section per class."""
    kinds: dict[type, list[PluginDesc]] = {}
    for desc in plugins:
        kinds.setdefault(desc.cls, []).append(desc)
    return "\n".join([_HEAD, *(_section(descs) for descs in kinds.values())])


def _section(descs: list[PluginDesc]) -> str:
    first = descs[0]
    shorts = (name for name in (first.simple_name, first.alias) if name in first.names)
    names = dict.fromkeys([first.class_name, *shorts, python_name(first.cls)])
    lines = [
        f"## {first.cls.__name__}",
        "",
        f"{' and '.join(_TITLES[d.type] for d in descs).capitalize()}. Names: {_code(names)}.",
        "",
        *([_about(first.cls), ""] if first.type in _TOLD else []),
    ]
    keys = list(first.cls.config())
    if keys:
        lines += ["| key | type | default | importance | what it does |", "|---|---|---|---|---|"]
        lines += [_row(key) for key in keys]
    else:
        lines.append("It takes no configuration.")
    return "\n".join([*lines, ""])


def _about(cls: type) -> str:
    """Returns what a transform or predicate does: the first paragraph of its own documentation, or its module's."""
    text = inspect.cleandoc(cls.__doc__ or sys.modules[cls.__module__].__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())


def _row(key: ConfigKey) -> str:
    default = "required" if key.required else to_string(key.default, key.type)
    shown = "" if default is None else default if key.required else f"`{default}`"
    cells = (f"`{key.name}`", key.type.lower(), shown, key.importance.lower(), key.documentation)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def main(argv: Sequence[str]) -> int:
    """Prints the page. The exit code is 1 when a package of the page cannot be loaded."""
    manager = PluginManager.load()
    wanted = [d for d in manager.plugins() if (d.location in argv if argv else d.location.startswith(_OWN))]
    for broken in manager.broken:
        if broken.name in argv or broken.name.startswith(_OWN):
            sys.stderr.write(f"{broken.name}: {broken.error}\n")
            return 1
    sys.stdout.write(page(wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
