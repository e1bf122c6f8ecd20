"""Deletions of versions and subjects, softly and for good. Pure.

A version to which another one refers stays. Before a deletion for good, softly deleted ones count, too: data may have been written
with them, and could not be read without what they refer to.
"""

from __future__ import annotations

from dataclasses import replace

from klamm.registry import errors
from klamm.registry.model import Version
from klamm.registry.records import Change, ConfigRecord, DeleteSubject, ModeRecord, SchemaRecord
from klamm.registry.service import Written, aliased, demand_writable, number_of, version_of, versions_of
from klamm.registry.store import Store


def delete_subject(store: Store, subject: str, *, permanent: bool) -> Written:
    """Deletes all versions of a subject; answers their numbers."""
    subject = aliased(store, subject)
    demand_writable(store, subject)
    every = versions_of(store, subject, deleted=True)
    live = [v for v in every if not v.deleted]
    if permanent:
        if live:
            raise errors.not_soft_deleted(subject)
        for each in every:
            _demand_unreferenced(store, each, deleted=True, within=True)
        gone: list[Change] = [
            SchemaRecord(subject=subject, version=v.version, value=None) for v in reversed(every)
        ]
        return Written(answer=[v.version for v in every], changes=[*gone, *_settings(store, subject)])
    if not live:
        raise errors.soft_deleted(subject)
    for each in live:
        _demand_unreferenced(store, each, within=True)
    changes: list[Change] = [DeleteSubject(subject=subject, version=live[-1].version)]
    return Written(answer=[v.version for v in live], changes=changes)


def _settings(store: Store, subject: str) -> list[Change]:
    """Returns the changes that take away level and mode of a subject that is gone."""
    found: list[Change] = []
    if store.configs.get(subject) is not None:
        found.append(ConfigRecord(subject=subject, value=None))
    if subject in store.modes:
        found.append(ModeRecord(subject=subject, mode=None))
    return found


def delete_version(store: Store, subject: str, wanted: str, *, permanent: bool) -> Written:
    """Deletes a version; answers its number."""
    subject = aliased(store, subject)
    demand_writable(store, subject)
    number = number_of(wanted)
    if number is None and not permanent:
        version = version_of(store, subject, wanted)
    else:
        version = version_of(store, subject, wanted, deleted=True)
    changes: list[Change]
    if permanent:
        if not version.deleted:
            raise errors.version_not_soft_deleted(subject, version.version)
        changes = [SchemaRecord(subject=subject, version=version.version, value=None)]
        if len(store.versions(subject, deleted=True)) == 1:
            changes += _settings(store, subject)
    else:
        if version.deleted:
            raise errors.version_soft_deleted(subject, version.version)
        gone = replace(version, deleted=True)
        changes = [SchemaRecord(subject=subject, version=version.version, value=gone)]
    _demand_unreferenced(store, version, deleted=permanent)
    return Written(answer=version.version, changes=changes)


def _demand_unreferenced(
    store: Store, version: Version, *, deleted: bool = False, within: bool = False
) -> None:
    """Raises RegistryError 42206 for a version to which others refer; `within`: other subjects."""
    by = [
        each
        for each in store.referring(version, deleted=deleted)
        if not within or each.subject != version.subject
    ]
    if by:
        shown = ", ".join(f"{each.subject} version {each.version}" for each in by)
        raise errors.reference_exists(version.subject, version.version, shown)
