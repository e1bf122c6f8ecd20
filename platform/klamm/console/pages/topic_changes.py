"""Changes of topics: create, edit settings with a preview, add partitions, trim, delete."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from klamm.admin.configs import Entry, Resource, alter_config, describe_config
from klamm.admin.errors import AdminError
from klamm.admin.model import TopicPartition
from klamm.admin.offsets import known_offsets
from klamm.admin.records import delete_records
from klamm.admin.topics import create_partitions, create_topic, delete_topics
from klamm.console.errors import ConsoleError
from klamm.console.pages.topics import described
from klamm.console.records.query import read_time
from klamm.console.view import counted
from klamm.console.visit import Visit
from klamm_kafka.wire.offset_specs import EARLIEST, LATEST

OWN: Final = "DYNAMIC_TOPIC_CONFIG"
PARTITIONS_MAX: Final = 100_000
FIELD: Final = "set."
_COMMON: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "compression.type",
    "max.message.bytes",
)


async def create_form(visit: Visit) -> web.StreamResponse:
    """Shows the form of a new topic."""
    return visit.page("topic_new.html", fields=visit.form, common=_COMMON, wrong=None)


async def create(visit: Visit) -> web.StreamResponse:
    """Makes a topic."""
    name = visit.field("name")
    try:
        partitions = visit.whole_number(
            "partitions", visit.field("partitions") or "1", least=1, most=PARTITIONS_MAX
        )
        factor = visit.whole_number("replication", visit.field("replication") or "-1", least=-1, most=1000)
        configs = {
            key.removeprefix(FIELD): value.strip()
            for key, value in visit.form.items()
            if key.startswith(FIELD) and value.strip()
        }
        configs |= _lines(visit.field("more"))
        async with visit.cluster.admin() as admin:
            await create_topic(admin, name, partitions=partitions, replication_factor=factor, configs=configs)
    except (ConsoleError, AdminError) as e:
        return visit.page("topic_new.html", status=400, fields=visit.form, common=_COMMON, wrong=str(e))
    visit.cluster.forget()
    visit.audit("topic created", topic=name, partitions=partitions, settings=configs)
    return visit.go(f"/c/{visit.cluster_name}/topics/{name}", f"Topic {name} was created.")


def _lines(text: str) -> dict[str, str]:
    """Returns `key=value` lines. Raises ConsoleError."""
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConsoleError(f"further settings: {line!r} is not key=value")
        found[key.strip()] = value.strip()
    return found


async def edit_form(visit: Visit) -> web.StreamResponse:
    """Shows the form of a topic's settings."""
    name = visit.part("topic")
    entries = await _entries(visit, name)
    return visit.page("topic_edit.html", name=name, entries=entries, given={}, wrong=None)


async def _entries(visit: Visit, name: str) -> list[Entry]:
    async with visit.cluster.admin() as admin:
        await described(admin, name)
        return [
            e
            for e in await describe_config(admin, Resource.TOPIC, name, documentation=True)
            if not e.read_only
        ]


def changes(entries: list[Entry], given: dict[str, str]) -> list[tuple[Entry, str | None]]:
    """Returns the settings that a form changes, with the new value; None: the topic has no value of its own any more."""
    found: list[tuple[Entry, str | None]] = []
    for entry in entries:
        if FIELD + entry.name not in given:
            continue
        wanted, own = given[FIELD + entry.name].strip(), entry.source == OWN
        if not wanted and own:
            found.append((entry, None))
        elif wanted and (not own or wanted != (entry.value or "")):
            found.append((entry, wanted))
    return found


def inherited(entry: Entry) -> str | None:
    """Returns the value that counts when the topic has none of its own."""
    return next(
        (s.value for s in entry.synonyms if s.source != OWN), entry.value if entry.source != OWN else None
    )


async def preview(visit: Visit) -> web.StreamResponse:
    """Shows what a form would change."""
    name = visit.part("topic")
    entries = await _entries(visit, name)
    rows = [(entry, new, inherited(entry)) for entry, new in changes(entries, dict(visit.form))]
    return visit.page("topic_preview.html", name=name, rows=rows, fields=visit.form)


async def edit(visit: Visit) -> web.StreamResponse:
    """Changes settings; the broker takes all or none."""
    name = visit.part("topic")
    entries = await _entries(visit, name)
    found = changes(entries, dict(visit.form))
    put = {e.name: new for e, new in found if new is not None}
    delete = [e.name for e, new in found if new is None]
    if found:
        try:
            async with visit.cluster.admin() as admin:
                await alter_config(admin, Resource.TOPIC, name, put=put, delete=delete)
        except AdminError as e:
            return visit.page(
                "topic_edit.html", status=400, name=name, entries=entries, given=visit.form, wrong=str(e)
            )
        visit.audit("topic settings changed", topic=name, put=put, delete=delete)
    said = f"{counted(len(found), 'setting')} of {name} changed." if found else "Nothing was changed."
    return visit.go(f"/c/{visit.cluster_name}/topics/{name}/settings", said)


async def change_page(visit: Visit) -> web.StreamResponse:
    """Shows the forms that add partitions, trim and delete."""
    return await _change_page(visit, None)


async def _change_page(visit: Visit, wrong: str | None) -> web.StreamResponse:
    name = visit.part("topic")
    async with visit.cluster.admin() as admin:
        found = await described(admin, name)
    return visit.page("topic_change.html", status=400 if wrong else 200, name=name, topic=found, wrong=wrong)


async def add_partitions(visit: Visit) -> web.StreamResponse:
    """Enlarges a topic."""
    name = visit.part("topic")
    try:
        count = visit.whole_number("partitions", least=1, most=PARTITIONS_MAX)
        async with visit.cluster.admin() as admin:
            await create_partitions(admin, {name: count})
    except (ConsoleError, AdminError) as e:
        return await _change_page(visit, str(e))
    visit.cluster.forget()
    visit.audit("partitions added", topic=name, partitions=count)
    return visit.go(
        f"/c/{visit.cluster_name}/topics/{name}", f"{name} has {counted(count, 'partition')} now."
    )


async def trim(visit: Visit) -> web.StreamResponse:
    """Deletes records before an offset, before a time, or all."""
    name = visit.part("topic")
    try:
        _confirmed(visit, name)
        before = await _trim_offsets(visit, name)
        async with visit.cluster.admin() as admin:
            results = await delete_records(admin, before)
        if failed := next((r for r in results.values() if isinstance(r, AdminError)), None):
            raise failed
    except (ConsoleError, AdminError) as e:
        return await _change_page(visit, str(e))
    visit.cluster.forget()
    visit.audit("records deleted", topic=name, before={str(tp): o for tp, o in results.items()})
    return visit.go(f"/c/{visit.cluster_name}/topics/{name}", f"Old records of {name} were deleted.")


async def _trim_offsets(visit: Visit, name: str) -> dict[TopicPartition, int]:
    how = visit.field("how")
    async with visit.cluster.admin() as admin:
        found = await described(admin, name)
        all_partitions = [TopicPartition(name, p.number) for p in found.partitions]
        if how == "all":
            return dict.fromkeys(all_partitions, -1)
        if how == "time":
            at = await known_offsets(admin, all_partitions, read_time("time", visit.field("time")))
            return {tp: offset if offset >= 0 else -1 for tp, offset in at.items()}
        if how != "offset":
            raise ConsoleError("how: choose all records, or those before a time or an offset")
        partition = visit.whole_number("partition", most=PARTITIONS_MAX)
        tp = TopicPartition(name, partition)
        if tp not in all_partitions:
            raise ConsoleError(f"partition: {name} has no partition {partition}")
        offset = visit.whole_number("offset")
        starts, ends = await asyncio.gather(
            known_offsets(admin, [tp], EARLIEST), known_offsets(admin, [tp], LATEST)
        )
        if not starts[tp] <= offset <= ends[tp]:
            raise ConsoleError(f"offset: {tp} has offsets from {starts[tp]} to {ends[tp]}")
        return {tp: offset}


def _confirmed(visit: Visit, name: str) -> None:
    if visit.field("confirm") != name:
        raise ConsoleError(f"confirm: type {name} to say that you mean it")


async def delete(visit: Visit) -> web.StreamResponse:
    """Deletes a topic whose name was typed."""
    name = visit.part("topic")
    try:
        _confirmed(visit, name)
        async with visit.cluster.admin() as admin:
            await delete_topics(admin, [name])
    except (ConsoleError, AdminError) as e:
        return await _change_page(visit, str(e))
    visit.cluster.forget()
    visit.audit("topic deleted", topic=name)
    return visit.go(f"/c/{visit.cluster_name}/topics", f"Topic {name} was deleted.")
