"""Providers of values that configurations keep elsewhere: a provider resolves `${name:path:key}` (KIP-297).

Providers run in the worker itself, so only classes that are installed beside it can be providers. A worker names
them in `config.providers`. Built in: files, directories and environment variables, under Kafka's class names.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from klamm_base.errors import ConfigError
from klamm_base.properties import load_properties

_KAFKA: Final = "org.apache.kafka.common.config.provider."
ALLOWED_PATHS: Final = "allowed.paths"
FILE_BYTES_MAX: Final = 1 << 20  # a value is a password or a certificate; a larger file is a mistake


@dataclass(frozen=True, slots=True)
class ConfigData:
    """Values by key. After `ttl_ms` the runtime asks for them again, and restarts the connectors and tasks that use
    them.
    """

    data: Mapping[str, str] = field(repr=False)
    ttl_ms: int | None = None


class ConfigProvider(ABC):
    """One source of values. Called from threads, several at a time. It raises ConfigError, whose sentences show no
    values.
    """

    kafka_name: ClassVar[str | None] = None
    """The Java class that this provider stands for."""
    alias: ClassVar[str | None] = None

    def configure(self, params: Mapping[str, str]) -> None:  # noqa: B027 - may be left out
        """Takes the worker's `config.providers.NAME.param.*`. Called once. Raises ConfigError."""

    @abstractmethod
    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        """Returns the values at `path` (empty in `${name:key}`), of these keys or of all. A missing key is left out."""

    def close(self) -> None:  # noqa: B027 - may be left out
        """Releases what the provider holds, when the worker stops."""


class _Paths:
    """The setting `allowed.paths`. Files outside of these paths are not read, whatever a connector's configuration asks
    for.
    """

    def __init__(self, params: Mapping[str, str]) -> None:
        given = [p.strip() for p in params.get(ALLOWED_PATHS, "").split(",") if p.strip()]
        self._allowed: list[Path] | None = [Path(p) for p in given] or None
        for path in self._allowed or ():
            if not path.is_absolute() or not path.exists():
                raise ConfigError(
                    f"{ALLOWED_PATHS}: {path} is no absolute path of something that exists", key=ALLOWED_PATHS
                )

    def check(self, text: str) -> Path:
        path = Path(text)
        if self._allowed is None:
            return path
        real = path.resolve()  # neither .. nor a link leads out
        if not any(real.is_relative_to(allowed.resolve()) for allowed in self._allowed):
            raise ConfigError(f"The path {text} is not allowed to be accessed ({ALLOWED_PATHS})")
        return path


class _PathConfigProvider(ConfigProvider):
    """A provider that reads files within `allowed.paths`."""

    def __init__(self) -> None:
        self._paths = _Paths({})

    def configure(self, params: Mapping[str, str]) -> None:
        self._paths = _Paths(params)


class FileConfigProvider(_PathConfigProvider):
    """`${file:/etc/secrets.properties:password}`: a key of a properties file."""

    kafka_name = _KAFKA + "FileConfigProvider"
    alias = "file"

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        if not path:
            return ConfigData({})
        try:
            found = load_properties(self._paths.check(path))
        except ConfigError as e:
            raise ConfigError(f"Could not read properties from file {path}: {e}") from None
        return ConfigData({k: v for k, v in found.items() if keys is None or k in keys})


class DirectoryConfigProvider(_PathConfigProvider):
    """`${dir:/run/secrets:password}`: a file of a directory, whole (Docker's and Kubernetes' secrets)."""

    kafka_name = _KAFKA + "DirectoryConfigProvider"
    alias = "dir"

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        if not path:
            return ConfigData({})
        folder = self._paths.check(path)
        if not folder.is_dir():
            raise ConfigError(f"The path {path} is not a directory")
        names = {p.name for p in folder.iterdir() if p.is_file()}  # a key that is no file name is not there
        return ConfigData({n: self._read(folder / n) for n in names if keys is None or n in keys})

    def _read(self, path: Path) -> str:
        try:
            data = self._paths.check(str(path)).read_bytes()
        except OSError as e:
            raise ConfigError(f"Could not read file {path}: {e.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"Could not read file {path}: {len(data)} bytes, more than {FILE_BYTES_MAX}")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"Could not read file {path}: it is not UTF-8") from None


class EnvVarConfigProvider(ConfigProvider):
    """`${env:DB_PASSWORD}`: an environment variable of the worker."""

    kafka_name = _KAFKA + "EnvVarConfigProvider"
    alias = "env"

    def __init__(self) -> None:
        self._pattern = re.compile(".*")

    def configure(self, params: Mapping[str, str]) -> None:
        text = params.get("allowlist.pattern", ".*")
        try:
            self._pattern = re.compile(text)
        except re.error as e:
            raise ConfigError(
                f"allowlist.pattern={text}: not a regular expression ({e})", key="allowlist.pattern"
            ) from None

    def get(self, path: str, keys: Collection[str] | None = None) -> ConfigData:
        if path:
            raise ConfigError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return ConfigData(
            {
                name: value
                for name, value in os.environ.items()
                if self._pattern.fullmatch(name) and (keys is None or name in keys)
            }
        )


BUILT_IN: Final[tuple[type[ConfigProvider], ...]] = (
    FileConfigProvider,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
)
