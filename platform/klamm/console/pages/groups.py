"""Groups: the list, members and lag, lag over time, new offsets with a dry run."""

from __future__ import annotations

import time
from typing import Any, Final

from aiohttp import web

from klamm.admin.errors import AdminError
from klamm.admin.group_report import positions
from klamm.admin.group_reset import carry_out, may_reset, plan_group, state_of
from klamm.admin.groups import GroupListing, committed, delete_group, describe_group, list_groups
from klamm.admin.model import TopicPartition
from klamm.admin.reset import How, Plan, Reset, ResetError, parse_duration
from klamm.console.cluster import Cluster
from klamm.console.errors import ConsoleError, NotThere
from klamm.console.judged import course, verdict, verdicts, with_course
from klamm.console.lag import Sample
from klamm.console.records.query import read_time
from klamm.console.view import counted, in_path
from klamm.console.visit import Visit
from klamm_kafka.wire.errors import ErrorCode

PAGE: Final = 50
HOWS: Final = {
    "earliest": "the beginning",
    "latest": "the end",
    "offset": "an offset",
    "shift": "so many records on (or back: -10)",
    "time": "the first record of a time",
    "duration": "as long ago as (PT2H30M, P7D)",
    "current": "where it is",
}


async def list_page(visit: Visit) -> web.StreamResponse:
    """Shows groups, with the lag of those on the page."""
    cluster = visit.cluster

    async def ask() -> list[GroupListing]:
        async with cluster.admin() as admin:
            return await list_groups(admin, consumers_only=False)

    found = await cluster.kept("groups", ask)
    age_s = cluster.age_s("groups")
    text, state = visit.asked("q").lower(), visit.asked("state")
    rows = [g for g in found if text in g.group.lower() and state in ("", g.state)]
    pages = max(1, -(-len(rows) // PAGE))
    asked = visit.asked("page", "1")
    page = min(max(1, int(asked) if asked.isdecimal() else 1), pages)
    shown = rows[(page - 1) * PAGE : page * PAGE]
    lags = await _lags(
        cluster,
        [
            g.group
            for g in shown
            if g.protocol_type in ("", "consumer") and g.type in ("", "Classic", "Consumer")
        ],
    )
    judged, why = await verdicts(cluster, [g.group for g in shown], visit.login)
    return visit.page(
        "groups.html",
        age_s=age_s,
        rows=shown,
        lags=lags,
        judged=judged,
        why=why,
        matches=len(rows),
        total=len(found),
        page=page,
        pages=pages,
        states=sorted({g.state for g in found if g.state}),
        state=state,
    )


async def _lags(cluster: Cluster, groups: list[str]) -> dict[str, int | None]:
    """Returns the lag of groups; None where nothing is committed."""
    from klamm.admin.offsets import log_ends

    if not groups:
        return {}
    async with cluster.admin() as admin:
        found = await admin.each(groups, lambda g: committed(admin, g))
        offsets = {g: f for g, f in zip(groups, found, strict=True) if not isinstance(f, AdminError)}
        ends = await log_ends(admin, {tp for f in offsets.values() for tp in f})
    result: dict[str, int | None] = {}
    for group, f in offsets.items():
        known = [end - c.offset for tp, c in f.items() if (end := ends.get(tp)) is not None]
        result[group] = sum(max(0, k) for k in known) if known else None
    return result


async def group(visit: Visit) -> web.StreamResponse:
    """Shows a group's members and positions."""
    name = visit.part("group")
    async with visit.cluster.admin() as admin:
        try:
            found = await describe_group(admin, name)
        except AdminError as e:
            if e.code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise NotThere(f"there is no group {name}") from None
            if e.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                return visit.page("group_other.html", name=name, said=str(e))
            raise
        (rows,) = await positions(admin, [found])
    judged, why = await verdict(visit.cluster, name, visit.login)
    known = [r.lag for r in rows if r.lag is not None]
    return visit.page(
        "group.html", name=name, group=found, rows=rows, lag=sum(known) if known else None, unknown=len(rows) - len(known),
        may_reset=may_reset(found.state), judged=judged, why=why,
        places={(p["topic"], p["partition"]): p for p in (judged or {}).get("partitions", [])},
    )  # fmt: skip


async def lag(visit: Visit) -> web.StreamResponse:
    """Answers with a group's lag over time, as the chart draws it."""
    name, cluster = visit.part("group"), visit.cluster

    async def ask() -> Sample:
        from klamm.admin.offsets import log_ends

        async with cluster.admin() as admin:
            offsets = await committed(admin, name)
            ends = await log_ends(admin, list(offsets))
        sample: Sample = {}
        for tp, at in offsets.items():
            if (end := ends.get(tp)) is not None:
                sample[tp.topic] = sample.get(tp.topic, 0) + max(0, end - at.offset)
        return sample

    series = cluster.lag.watch(name, ask, time.time())
    if not series.samples:
        first = await ask()
        if not series.samples:  # the task may have been faster
            series.add(time.time(), first)
    rows = await course(cluster, name, visit.login)
    if rows and (now := (await verdict(cluster, name, visit.login))[0]) is not None:
        rows = [*rows, {"at": time.time() * 1000, **now}]  # the course has a row where something changed
    chart = with_course(series.chart(), rows)
    return web.json_response({**chart, "why": series.why})


async def reset_form(visit: Visit) -> web.StreamResponse:
    """Shows the form of new offsets."""
    return await _form(visit, None)


async def _form(visit: Visit, wrong: str | None) -> web.StreamResponse:
    name = visit.part("group")
    async with visit.cluster.admin() as admin:
        offsets = await committed(admin, name)
        state = await state_of(admin, name)
    topics = sorted({tp.topic for tp in offsets})
    return visit.page(
        "group_reset.html", status=400 if wrong else 200, name=name, topics=topics, hows=HOWS, fields=visit.form,
        state=state, may_reset=may_reset(state), wrong=wrong,
    )  # fmt: skip


def read_reset(visit: Visit) -> tuple[Reset, list[str]]:
    """Returns the wanted reset of a form, and its topics (none: all). Raises ConsoleError and ResetError."""
    how, value = visit.field("how"), visit.field("value")
    topics = [t.strip() for text in visit.many.get("topics", []) for t in text.split() if t.strip()]
    match how:
        case "earliest" | "latest" | "current":
            return Reset(how=How[how.upper()]), topics
        case "offset":
            return Reset(how=How.OFFSET, value=visit.whole_number("value", value)), topics
        case "shift":
            return Reset(
                how=How.SHIFT, value=visit.whole_number("value", value.removeprefix("+"), least=-(2**62))
            ), topics
        case "time":
            return Reset(how=How.TIME, value=read_time("value", value)), topics
        case "duration":
            return Reset(how=How.TIME, value=int(time.time() * 1000) - parse_duration(value)), topics
    raise ConsoleError(f"how: choose one of {', '.join(HOWS)}")


async def _plan(visit: Visit) -> tuple[Plan, dict[TopicPartition, int]]:
    name = visit.part("group")
    reset, topics = read_reset(visit)
    async with visit.cluster.admin() as admin:
        before = {tp: c.offset for tp, c in (await committed(admin, name)).items()}
        plan = await plan_group(admin, name, reset, topics, all_topics=not topics)
    return plan, before


async def reset_preview(visit: Visit) -> web.StreamResponse:
    """Shows the new offsets without setting them."""
    name = visit.part("group")
    try:
        plan, before = await _plan(visit)
    except (ConsoleError, ResetError, AdminError) as e:
        return await _form(visit, str(e))
    rows: list[dict[str, Any]] = [
        {
            "tp": tp,
            "old": before.get(tp),
            "new": new,
            "by": None if before.get(tp) is None else new - before[tp],
        }
        for tp, new in plan.offsets.items()
    ]
    return visit.page("group_preview.html", name=name, rows=rows, plan=plan, fixed=_fixed(plan))


def _fixed(plan: Plan) -> str:
    """Returns the plan's offsets as text, so that what is set is what was shown."""
    return " ".join(f"{tp.topic}:{tp.partition}={offset}" for tp, offset in plan.offsets.items())


async def reset(visit: Visit) -> web.StreamResponse:
    """Sets the offsets that the preview showed."""
    name = visit.part("group")
    offsets: dict[TopicPartition, int] = {}
    for word in visit.field("offsets").split():
        place, _, offset = word.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not topic:
            raise ConsoleError(f"offsets: {word!r} is not topic:partition=offset")
        offsets[TopicPartition(topic, visit.whole_number("partition", partition, most=2**31 - 1))] = (
            visit.whole_number("offset", offset)
        )
    async with visit.cluster.admin() as admin:
        state = await state_of(admin, name)
        if not may_reset(state):
            raise ConsoleError(
                f"Group {name} is {state}: its offsets can be set only while it has no members. Nothing was changed."
            )
        await carry_out(admin, name, Plan(offsets=offsets))
    visit.audit("group offsets set", group=name, offsets={str(tp): o for tp, o in offsets.items()})
    return visit.go(
        f"/c/{visit.cluster_name}/groups/{in_path(name)}", f"{counted(len(offsets), 'offset')} of {name} set."
    )


async def delete(visit: Visit) -> web.StreamResponse:
    """Deletes a group whose name was typed."""
    name = visit.part("group")
    if visit.field("confirm") != name:
        raise ConsoleError(f"confirm: type {name} to say that you mean it")
    async with visit.cluster.admin() as admin:
        await delete_group(admin, name)
    visit.cluster.forget("groups")
    visit.audit("group deleted", group=name)
    return visit.go(f"/c/{visit.cluster_name}/groups", f"Group {name} was deleted.")
