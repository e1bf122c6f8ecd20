"""The errors of the registry's API, with the codes and words of Confluent's, because clients decide by them."""

from __future__ import annotations

from typing import Final

from klamm.web.errors import RequestError

INVALID_SCHEMA: Final = 42201


class RegistryError(RequestError):
    """A request that cannot be done; `code` is the body's `error_code`, whose first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RegistryError:
    return RegistryError(40403, f"Schema {what} not found" if what != "" else "Schema not found")


def soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, why)


def invalid_version(version: object) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_level(levels: str) -> RegistryError:
    return RegistryError(42203, f"Invalid compatibility level. Valid values are {levels}")


def invalid_mode(modes: str) -> RegistryError:
    return RegistryError(42204, f"Invalid mode. Valid values are {modes}")


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(subject: str, version: int, by: str) -> RegistryError:
    return RegistryError(
        42206, f"One or more references exist to the schema {{subject={subject},version={version}}}: {by}"
    )


def too_large(size: int, size_max: int) -> RegistryError:
    return RegistryError(
        42209,
        f"Register operation failed because schema is too large: its record has {size} bytes, and the topic takes {size_max} "
        "(max.message.bytes)",
    )


def no_leader() -> RegistryError:
    return RegistryError(50004, "Leader not known: no registry of the group leads now; try again")


def incompatible(why: str) -> RegistryError:
    return RegistryError(409, why)


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")
