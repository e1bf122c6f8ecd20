"""Producing a record."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from aiohttp import web

from klamm.console.errors import ConsoleError, Upstream
from klamm.console.pages.topics import described
from klamm.console.view import in_path
from klamm.console.visit import Visit
from klamm_base.errors import KlammError

FORMS: Final = ("text", "json", "hex", "null")
SCHEMA: Final = "schema"
"""The form of a value that is written by a schema of the registry."""
SENT_S: Final = 15.0


async def form(visit: Visit) -> web.StreamResponse:
    """Shows the form."""
    async with visit.cluster.admin() as admin:
        topic = await described(admin, visit.part("topic"))
    return await _page(visit, len(topic.partitions), None)


async def _page(visit: Visit, partitions: int, wrong: str | None) -> web.StreamResponse:
    name, cluster = visit.part("topic"), visit.cluster
    subjects: list[str] = []
    if cluster.registry is not None:
        try:
            subjects = await cluster.kept(
                "subjects",
                lambda: cluster.needs("registry").ask("GET", "/subjects", caller=visit.login),
                login=visit.login,
            )
        except Upstream as e:
            wrong = wrong or str(e)
    own = {part: f"{name}-{part}" for part in ("key", "value")}
    return visit.page(
        "produce.html",
        status=400 if wrong and visit.form else 200,
        name=name,
        partitions=partitions,
        fields=visit.form,
        forms=FORMS if cluster.registry is None else (*FORMS, SCHEMA),
        schema=SCHEMA,
        subjects=sorted(subjects),
        defaults={part: SCHEMA if subject in subjects else "text" for part, subject in own.items()},
        wrong=wrong,
    )  # fmt: skip


async def send(visit: Visit) -> web.StreamResponse:
    """Sends the record, and shows it where it is."""
    name = visit.part("topic")
    async with visit.cluster.admin() as admin:
        topic = await described(admin, name)
    try:
        partition = visit.field("partition")
        record = {
            "key": await _part(visit, "key", empty=None),
            "value": await _part(visit, "value", empty=b""),
            "headers": read_headers(visit.form.get("headers", "")),
            "partition": visit.whole_number("partition", partition, most=len(topic.partitions) - 1)
            if partition
            else -1,
        }
        place = await asyncio.to_thread(_send, visit.cluster.client("producer"), name, record)
    except (ConsoleError, KlammError) as e:
        return await _page(visit, len(topic.partitions), str(e))
    visit.audit("record produced", topic=name, partition=place[0], offset=place[1])
    return visit.go(
        f"/c/{visit.cluster_name}/topics/{in_path(name)}/records/{place[0]}/{place[1]}",
        f"The record is at offset {place[1]} of partition {place[0]}.",
    )


async def _part(visit: Visit, part: str, *, empty: bytes | None) -> bytes | None:
    """Returns the bytes of the key or the value. Raises ConsoleError."""
    text, form = visit.form.get(part, ""), visit.field(f"{part}_form", "text") or "text"
    if form != SCHEMA:
        return encoded(part, text, form, empty=empty)
    endpoint = visit.cluster.settings.registry
    if endpoint is None:
        raise ConsoleError(f"{part}: the cluster has no schema registry (registry.url)")
    from klamm.console.records.registry import encoded as by_schema

    asked = visit.field(f"{part}_version")
    version = (
        None
        if asked in ("", "latest")
        else visit.whole_number(f"{part}_version", asked, least=1, most=2**31 - 1)
    )
    subject = visit.field(f"{part}_subject") or f"{visit.part('topic')}-{part}"
    return await asyncio.to_thread(
        by_schema, endpoint, visit.login, subject=subject, version=version, text=text, where=part
    )


def encoded(name: str, text: str, form: str, *, empty: bytes | None) -> bytes | None:
    """Returns the bytes of a field. Raises ConsoleError."""
    match form:
        case "null":
            return None
        case "hex":
            try:
                return bytes.fromhex(text.removeprefix("0x"))
            except ValueError:
                raise ConsoleError(f"{name}: that is not hex; write pairs such as 00 ff 7a") from None
        case "json":
            try:
                json.loads(text, parse_constant=_no_json)
            except ValueError as e:
                raise ConsoleError(f"{name}: that is not JSON: {e}") from None
            # As it was written: a number of many digits would lose some
            return text.strip().replace("\r\n", "\n").encode()
        case "text":
            return text.replace("\r\n", "\n").encode() if text else empty
    raise ConsoleError(f"{name}: {form!r} is not one of {', '.join(FORMS)}")


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def read_headers(text: str) -> list[tuple[str, bytes]]:
    """Returns headers of `name: value` lines. Raises ConsoleError."""
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConsoleError(f"headers: {line!r} is not `name: value`")
        found.append((name.strip(), value.strip().encode()))
    return found


def _send(settings: dict[str, Any], topic: str, record: dict[str, Any]) -> tuple[int, int]:
    """Sends a record and returns its place. Raises KlammError."""
    from confluent_kafka import KafkaException, Producer

    said: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        said.append(error.str() if error is not None else (message.partition(), message.offset()))

    try:
        producer = Producer(
            settings
            | {"acks": "all", "message.timeout.ms": int(SENT_S * 1000), "allow.auto.create.topics": False}
        )
        producer.produce(topic, on_delivery=delivered, **record)
        producer.flush(SENT_S + 1)
    except (KafkaException, BufferError) as e:
        raise KlammError(f"the record was not sent: {e.args[0] if e.args else e}") from None
    if not said or isinstance(said[0], str):
        raise KlammError(f"the record was not sent: {said[0] if said else 'no answer'}")
    place: tuple[int, int] = said[0]
    return place
