"""Settings that must not be seen in a list of processes, in a plan or in a log: secrets, and addresses with
passwords. Pure.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(
    r"(?i)secret|password|passphrase|token|credential|(access|account|private|api)[._]?key|jaas|[.]sas[.]"
)
_IN_VALUE: Final = re.compile(r"(?i)://[^/\s@]*:[^/\s@]*@|[?&;(]password=")
_OF_JAVA: Final = re.compile(r"spark[.]driver[.](extra|default)JavaOptions")
"""Settings that take effect on Java's command line only."""
_URLS: Final = re.compile(r",(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
_USER: Final = re.compile(r"//[^/]*@")
_ORACLE: Final = re.compile(r"(?i)^(jdbc:oracle:\w+:)[^@]*@")
_IN_BRACKETS: Final = re.compile(r"(?i)\((user|password)=[^)]*\)")
_PARAMETERS: Final = re.compile(r"(?s)[?;].*")


def is_secret(name: str, value: str) -> bool:
    """Returns whether a setting of Spark's is secret, by its name or its value."""
    if _OF_JAVA.fullmatch(name):
        return False
    return _NAME.search(name) is not None or _IN_VALUE.search(value) is not None


def bare(address: str) -> str:
    """Returns an address, or several separated by commas, without users, passwords and parameters."""
    return ",".join(_one(part) for part in _URLS.split(address))


def without_user(path: str) -> str:
    """Returns a path without its user. Text after `?` or `;` is a part of the path."""
    return _USER.sub("//", path) if "://" in path else path


def _one(address: str) -> str:
    without = _IN_BRACKETS.sub("", _ORACLE.sub(r"\1", _USER.sub("//", address)))
    return _PARAMETERS.sub("", without)
