"""Config definitions after Kafka's ConfigDef: names, types, defaults, validators and documentation.

One definition drives parsing (broker, worker and connector properties), Connect's validate answers and the
reference pages. Values come in as strings (`.properties`, connector JSON) and leave typed. Error sentences
are Kafka's, because tools match on them. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from klamm_base.errors import ConfigError


class Type(StrEnum):
    """Kafka's ConfigDef.Type. A LIST is comma separated, a CLASS is a name, a PASSWORD is never shown."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105


class Importance(StrEnum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """The width of a form's field. Kafka's validate answers contain it."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Password:
    """A secret. Its text shows only through `.value`, so that no log, status or error carries it."""

    __slots__ = ("value",)
    HIDDEN: Final = "[hidden]"

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return self.HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()

Validator = Callable[[str, Any], None]
"""A check that gets name and typed value, and raises ConfigError (see `invalid`) for a value that cannot be used."""

_INT_BITS: Final = {Type.INT: 32, Type.SHORT: 16, Type.LONG: 64}


def invalid(name: str, value: object, why: str) -> ConfigError:
    """Makes the error that Kafka raises for a bad value: `Invalid value V for configuration N: why`."""
    match value:
        case None:
            shown: object = "null"
        case bool():
            shown = str(value).lower()
        case list():  # as Java writes one
            shown = f"[{', '.join(map(str, value))}]"
        case _:
            shown = value
    return ConfigError(f"Invalid value {shown} for configuration {name}: {why}", key=name)


def between(low: float, high: float | None = None) -> Validator:
    """Returns a validator that accepts numbers from `low` to `high`, both included (Kafka: Range)."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise invalid(name, value, "Value must be non-null")
        if value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return check


def one_of(*allowed: str) -> Validator:
    """Returns a validator that accepts one of these strings; a list may hold only these (Kafka: ValidString, ValidList)."""

    def check(name: str, value: Any) -> None:
        for item in value if isinstance(value, list) else [value]:
            if item not in allowed:
                raise invalid(name, item, f"String must be one of: {', '.join(allowed)}")

    return check


def non_empty(name: str, value: Any) -> None:
    """Refuses the empty string (Kafka: NonEmptyString)."""
    if value is not None and not value:
        raise invalid(name, value, "String must be non-empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One configuration key. `default` is typed; `NO_DEFAULT` makes the key required."""

    name: str
    type: Type
    default: Any = NO_DEFAULT
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    documentation: str = ""
    group: str | None = None
    order_in_group: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: Sequence[str] = ()
    recommended: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    internal: bool = False

    @property
    def required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(slots=True, kw_only=True)
class ConfigValue:
    """The result of validating one key: typed value (None when unusable), errors, recommended values."""

    name: str
    value: Any = None
    recommended_values: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    """An ordered set of config keys.

    >>> d = ConfigDef().define("tasks.max", Type.INT, 1, validator=between(1))
    >>> d.parse({"tasks.max": "4"})
    {'tasks.max': 4}
    """

    def __init__(self, keys: Sequence[ConfigKey] = ()) -> None:
        self._keys: dict[str, ConfigKey] = {}
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    @property
    def names(self) -> list[str]:
        return list(self._keys)

    @property
    def groups(self) -> list[str]:
        """The names of the groups, in the order of their first key."""
        return list(dict.fromkeys(k.group for k in self if k.group is not None))

    def add(self, key: ConfigKey) -> ConfigDef:
        if key.name in self._keys:
            raise ConfigError(f"Configuration {key.name} is defined twice.", key=key.name)
        self._keys[key.name] = key
        return self

    def define(self, name: str, type: Type, default: Any = NO_DEFAULT, **rest: Any) -> ConfigDef:
        """Adds a key; `rest` are ConfigKey's other fields. Returns self, so that calls can be chained."""
        return self.add(ConfigKey(name=name, type=type, default=default, **rest))

    def merged(self, other: ConfigDef) -> ConfigDef:
        """Returns a new definition: the keys of self, then those of `other` that self does not have."""
        return ConfigDef([*self, *(k for k in other if k.name not in self)])

    def unknown(self, props: Mapping[str, Any]) -> list[str]:
        """Returns the keys of `props` that are not defined here. The caller decides whether to warn or to fail."""
        return [name for name in props if name not in self]

    def parse(self, props: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the typed value of every defined key, with defaults filled in.

        Raises ConfigError for the first value that cannot be used.
        """
        return {key.name: parse_key(key, props) for key in self}

    def validate(self, props: Mapping[str, Any]) -> list[ConfigValue]:
        """Reports every error beside its key, where `parse` raises the first.

        As in Kafka, a value that does not parse becomes None and still meets the key's validator.
        """
        values = {key.name: _validate_key(key, props) for key in self}
        typed = {name: value.value for name, value in values.items()}
        for key in self:
            if key.recommended is not None:
                values[key.name].recommended_values = list(key.recommended(typed))
        return list(values.values())


def parse_key(key: ConfigKey, props: Mapping[str, Any]) -> Any:
    """Returns the typed and checked value of one key, or its default. Raises ConfigError."""
    if key.name in props:
        value = parse_type(key.name, props[key.name], key.type)
    elif key.required:
        raise _missing(key.name)
    else:
        value = key.default
    if key.validator is not None:
        key.validator(key.name, value)
    return value


def with_prefix(props: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Returns the properties whose names begin with a prefix, by their names without it (Kafka: `originalsWithPrefix`)."""
    return {k.removeprefix(prefix): v for k, v in props.items() if k.startswith(prefix)}


def _missing(name: str) -> ConfigError:
    return ConfigError(f'Missing required configuration "{name}" which has no default value.', key=name)


def _validate_key(key: ConfigKey, props: Mapping[str, Any]) -> ConfigValue:
    result = ConfigValue(name=key.name)
    if key.name in props:
        try:
            result.value = parse_type(key.name, props[key.name], key.type)
        except ConfigError as e:
            result.errors.append(str(e))
    elif key.required:
        result.errors.append(str(_missing(key.name)))
    else:
        result.value = key.default
    if key.validator is not None and (key.name in props or not key.required):
        try:
            key.validator(key.name, result.value)
        except ConfigError as e:
            result.errors.append(str(e))
    return result


def parse_type(name: str, value: Any, type: Type) -> Any:
    """Converts a string (or an already typed value) to `type`. None stays None. Raises ConfigError.

    Strings are stripped, as Kafka does.
    """
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else value
    match type:
        case Type.BOOLEAN:
            return _boolean(name, text)
        case Type.INT | Type.SHORT | Type.LONG:
            return _integer(name, text, type)
        case Type.DOUBLE:
            return _double(name, text)
        case Type.LIST:
            if isinstance(text, list):
                return text
            return [item.strip() for item in str(text).split(",")] if text else []
        case Type.PASSWORD:
            return text if isinstance(text, Password) else Password(str(text))
        case Type.STRING | Type.CLASS:
            if not isinstance(text, str):
                raise invalid(
                    name, value, f"Expected value to be a {type.lower()}, but it was a {_kind(value)}"
                )
            return text


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    match str(value).lower():
        case "true":
            return True
        case "false":
            return False
    raise invalid(name, value, "Expected value to be either true or false")


def _integer(name: str, value: Any, type: Type) -> int:
    why = f"Not a number of type {type}"
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise invalid(name, value, why)
    try:
        number = int(value)
    except ValueError:
        raise invalid(name, value, why) from None
    limit = 1 << (_INT_BITS[type] - 1)
    if not -limit <= number < limit:
        raise invalid(name, value, why)
    return number


def _double(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise invalid(name, value, "Not a number of type DOUBLE") from None


def _kind(value: Any) -> str:
    return type(value).__name__


def to_string(value: Any, type: Type) -> str | None:
    """Returns a typed value in the form of Connect's REST answers; a secret becomes `[hidden]`."""
    if value is None:
        return None
    match type:
        case Type.BOOLEAN:
            return "true" if value else "false"
        case Type.LIST:
            return ",".join(value)
        case Type.PASSWORD:
            return Password.HIDDEN
        case _:
            return str(value)
