"""Records: the form of a search, its results as they are found, a live tail, and one record in full.

Results come as server-sent events: `rows` (HTML), `progress`, `done` and `failed`. Whoever closes the stream ends the search
and its consumer.
"""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web

from klamm.console.errors import ConsoleError, NotThere, Refused
from klamm.console.pages.topics import described
from klamm.console.records.query import STARTS, Query, read_query, written_places
from klamm.console.records.reader import Done, Progress
from klamm.console.records.reader import stream as reading
from klamm.console.records.shown import FORMS, Record, one_line, shortened
from klamm.console.view import rendered
from klamm.console.visit import Visit
from klamm.web.endpoint import Access
from klamm_base.errors import KlammError

LOGIN_S: Final = 1.0
"""So often is looked whether the user may still see the records."""
ON_MAX: Final = 4_000
"""Characters of an address that say where a search goes on; with more partitions there is no such address."""
ENDED: Final = "Your login has ended, or you may no longer see this: open the page again"
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


async def page(visit: Visit) -> web.StreamResponse:
    """Shows the form; with parameters, the browser asks for the results of the address."""
    name = visit.part("topic")
    async with visit.cluster.admin() as admin:
        topic = await described(admin, name)
    wrong = None
    try:
        read_query(visit.request.query)
    except ConsoleError as e:
        wrong = str(e)
    return visit.page(
        "records.html",
        name=name,
        partitions=len(topic.partitions),
        q=visit.request.query,
        starts=STARTS,
        forms=FORMS,
        tail=visit.asked("tail") == "1",
        wrong=wrong,
    )


async def stream(visit: Visit) -> web.StreamResponse:
    """Streams what a search, or a tail, finds."""
    name, tail = visit.part("topic"), visit.asked("tail") == "1"
    query = read_query(visit.request.query)
    answer = web.StreamResponse(headers=_HEADERS)
    with visit.console.searching():
        await answer.prepare(visit.request)
        try:
            await _send(visit, answer, name, query, tail=tail)
        except ConnectionError:
            return answer  # the browser has closed it: that is how a search is cancelled
        except KlammError as e:
            await answer.write(_event("failed", {"said": str(e)}))
    return answer


async def _send(visit: Visit, answer: web.StreamResponse, name: str, query: Query, *, tail: bool) -> None:
    """Sends what is found while the user may see it. Raises Refused when that has ended."""
    looked_s = time.monotonic()
    async with aclosing(reading(visit.cluster, name, query, tail=tail, login=visit.login)) as events:
        async for event in events:  # progress comes each second at least
            if time.monotonic() - looked_s > LOGIN_S:
                looked_s = time.monotonic()
                if not await visit.still_may(Access.VIEW):
                    raise Refused(ENDED)
            match event:
                case list():
                    html = rendered(
                        "records_rows.html",
                        rows=[_row(r) for r in event],
                        base=f"/c/{visit.cluster_name}",
                        name=name,
                    )
                    await answer.write(_event("rows", {"html": html, "count": len(event)}))
                case Progress():
                    await answer.write(
                        _event(
                            "progress",
                            {
                                "passed": event.passed,
                                "total": event.total,
                                "read": event.read,
                                "left_out": event.left_out,
                            },
                        )
                    )
                case Done():
                    await answer.write(
                        _event(
                            "done",
                            {
                                "read": event.read,
                                "more": bool(event.places),
                                "on": on if len(on := written_places(event.places)) <= ON_MAX else "",
                                "seconds": round(event.seconds, 2),
                            },
                        )
                    )


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _row(record: Record) -> dict[str, Any]:
    key, value = record.decoded_key(), record.decoded_value()
    return {
        "r": record,
        "key": one_line(key.text, 60) if record.key is not None else None,
        "value": one_line(value.text) if record.value is not None else None,
        "key_form": key.form,
        "value_form": value.form,
        "full": shortened(value.text),
        "headers": header_texts(record),
    }


def header_texts(record: Record) -> list[tuple[str, str | None]]:
    """Returns headers as text; bytes that are none in hex."""
    found: list[tuple[str, str | None]] = []
    for name, value in record.headers:
        try:
            found.append((name, None if value is None else value.decode()))
        except UnicodeDecodeError:
            found.append((name, f"0x{(value or b'').hex()}"))
    return found


async def one(visit: Visit) -> web.StreamResponse:
    """Shows one record, in every form that its bytes have."""
    name, partition, offset = visit.part("topic"), visit.part("partition"), int(visit.part("offset"))
    given = {
        "start": "offset",
        "at": str(offset),
        "p": partition,
        "limit": "1",
        "un": "1",
        "kf": visit.asked("kf"),
        "vf": visit.asked("vf"),
    }
    found: Record | None = None
    with visit.console.searching():
        async with aclosing(reading(visit.cluster, name, read_query(given), login=visit.login)) as events:
            async for event in events:
                if isinstance(event, list) and event:
                    found = event[0]
                    break
    if found is None or found.offset != offset:
        raise NotThere(
            f"{name}-{partition} has no record at offset {offset}: it is deleted, compacted away, or not written yet"
        )
    return visit.page(
        "record.html",
        name=name,
        r=found,
        key=found.decoded_key(),
        value=found.decoded_value(),
        shorten=shortened,
        headers=header_texts(found),
        forms=FORMS,
        kf=visit.asked("kf", "auto"),
        vf=visit.asked("vf", "auto"),
    )
