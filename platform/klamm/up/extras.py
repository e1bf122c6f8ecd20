"""The further servers that `klamm up` starts behind broker and worker: a row each in `EXTRAS`.

A row makes the options --NAME-port and --no-NAME (--NAME, where it is off by itself), the word NAME=ADDRESS in the ready line, and DATA_DIR/NAME.properties. The command
`klamm NAME start FILE` must take `bootstrap.servers` and `listeners`, and print `ready …`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from klamm_base.extras import how_to_install


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extra:
    """A further server. Without one of its `modules` it is left out; `extra` is the extra that installs them.

    `settings` are those that differ from its defaults on one machine, `{data_dir}` in them is that of `klamm up`; `command` runs
    it, followed by its file. `uses` maps the beginning of a property to the server whose address it takes:
    `{"connect": "rest"}` gives `connect.url`, and with TLS the authority by `trust`, here `connect.cacert`. `has_login`: in a safe system it has a user of its own
    at those servers. Not `on`: it runs when it is asked for.
    """

    name: str
    what: str
    port: int
    modules: Sequence[str] = ()
    extra: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    uses: Mapping[str, str] = field(default_factory=dict)
    trust: str = "{}.cacert"
    has_login: bool = False
    group: str = ""
    """The command's group, where it is not the name."""
    on: bool = True

    @property
    def command(self) -> tuple[str, ...]:
        return (self.group or self.name, "start")

    @property
    def parameter(self) -> str:
        """The name of the port's parameter in Python."""
        return f"{self.name.replace('-', '_')}_port"

    @property
    def switch(self) -> tuple[str, str]:
        """The parameter and the option that leave it out, or start it where it is off by itself."""
        word = self.name.replace("-", "_")
        return (f"no_{word}", f"--no-{self.name}") if self.on else (f"with_{word}", f"--{self.name}")

    def wanted(self, chosen: Mapping[str, Any]) -> bool:
        """Returns whether options of the command line leave it on, or ask for it."""
        switched = bool(chosen.get(self.switch[0]))
        return not switched if self.on else switched or chosen.get(self.parameter) is not None

    def missing(self) -> str | None:
        """Returns what to install before it can run; None: it can."""
        if all(_is_there(module) for module in self.modules):
            return None
        return how_to_install(self.extra)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


EXTRAS: Final[tuple[Extra, ...]] = (
    Extra(
        name="registry",
        what="Schema registry",
        port=8081,
        modules=("jsonschema", "google.protobuf"),
        extra="schemas",
        settings={"kafkastore.topic.replication.factor": "1"},
    ),
    Extra(
        name="console",
        what="The console, a web page",
        port=8080,
        settings={"connect.login": "true"},
        uses={"connect": "rest", "registry": "registry", "lag": "lag"},
    ),
    Extra(
        name="lag",
        what="The watch of lag",
        port=8000,
        settings={"history.dir": "{data_dir}/lag"},
        on=False,  # 46 MB
    ),
    Extra(
        name="rest-proxy",
        what="A REST proxy",
        port=8082,
        uses={"schema.registry": "registry"},
        trust="{}.ssl.truststore.location",
        has_login=True,
        group="rest",
        on=False,  # 53 MB
    ),
)


def options(up: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of all rows to the command `klamm up`, which takes them as `chosen`."""
    import inspect
    from typing import Annotated

    import typer

    signature = inspect.signature(up, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    annotations: dict[str, Any] = {p.name: p.annotation for p in kept}
    for extra in EXTRAS:
        port = typer.Option(
            f"--{extra.name}-port",
            min=0,
            max=65535,
            help=f"{extra.what}; default {extra.port}, 0: any free.",
        )
        parameter, switch = extra.switch
        what = extra.what if extra.what.startswith("REST") else f"{extra.what[0].lower()}{extra.what[1:]}"
        switching = typer.Option(switch, help=f"{'Without' if extra.on else 'With'} {what}.")
        annotations[extra.parameter] = Annotated[int | None, port]
        annotations[parameter] = Annotated[bool, switching]
        for name, default in ((extra.parameter, None), (parameter, False)):
            kept.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name]
                )
            )
    up.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    up.__annotations__ = annotations
    return up
