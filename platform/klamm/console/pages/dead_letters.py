"""Dead letters: the topics of them, the letters with their reasons, and sending them again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiohttp import web

from klamm.console.cluster import Cluster
from klamm.console.errors import ConsoleError, Upstream
from klamm.console.pages.topics import summaries
from klamm.console.records.shown import decoded, no_registry, one_line, shortened
from klamm.console.threads import in_thread
from klamm.console.view import counted, in_path
from klamm.console.visit import Visit
from klamm_base.errors import KlammError

SHOWN: Final = 100
_TOPIC_KEY: Final = "errors.deadletterqueue.topic.name"
_NAMES: Final = ("dlq", "dead-letter", "deadletter", "dead.letter", "dead_letter")
T = TypeVar("T")


async def list_page(visit: Visit) -> web.StreamResponse:
    """Shows the topics that connectors name, and those that are called so."""
    cluster = visit.cluster
    users: dict[str, list[str]] = {}
    why, age_s = None, 0.0
    if cluster.connect is not None:
        try:
            answer = await cluster.kept(
                "infos",
                lambda: cluster.needs("connect").ask("GET", "/connectors?expand=info", caller=visit.login),
                login=visit.login,
            )
            age_s = cluster.age_s("infos", visit.login) or 0
            for name, item in answer.items():
                if topic := (item["info"]["config"].get(_TOPIC_KEY) or "").strip():
                    users.setdefault(topic, []).append(name)
        except Upstream as e:
            why = str(e)
    there = {t.name for t in await summaries(cluster)}
    age_s = max(age_s, cluster.age_s("topics") or 0)
    for name in there:
        if any(part in name.lower() for part in _NAMES):
            users.setdefault(name, [])
    rows = [(topic, connectors, topic in there) for topic, connectors in sorted(users.items())]
    return visit.page("dead_letters.html", rows=rows, why=why, age_s=age_s)


async def letters(visit: Visit) -> web.StreamResponse:
    """Shows the last letters of a topic."""
    return await _letters_page(visit, None)


async def _letters_page(visit: Visit, plan: dict[str, Any] | None) -> web.StreamResponse:
    topic, cluster = visit.part("topic"), visit.cluster
    error = visit.field("error") or visit.asked("error")
    with visit.console.searching():
        found = await in_thread(
            lambda stop: _with_consumer(cluster, topic, lambda c: _read(c, topic, error, stop)),
            lambda: visit.is_gone,
        )
    rows = [
        {
            "letter": x,
            "value": one_line(decoded(topic, x.value, "auto", no_registry, is_key=False).text),
            "full": shortened(decoded(topic, x.value, "auto", no_registry, is_key=False).text),
            "trace": x.facts.get("exception.stacktrace", ""),
        }
        for x in found[0]
    ]
    return visit.page(
        "dead_letters_topic.html",
        name=topic,
        rows=rows,
        count=found[1],
        left=found[2],
        error=error,
        plan=plan,
    )


def _with_consumer(cluster: Cluster, topic: str, work: Callable[[Any], T]) -> T:
    from confluent_kafka import Consumer, KafkaException

    from klamm.dlq.replay import group_of

    config = cluster.client("consumer") | {
        "group.id": group_of(topic),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
    try:
        consumer = Consumer(config)
        try:
            return work(consumer)
        finally:
            consumer.close()
    except KafkaException as e:
        raise KlammError(f"{topic} cannot be read: {e.args[0].str()}") from None


def _read(consumer: Any, topic: str, error: str, stop: threading.Event) -> tuple[list[Any], int, int]:
    """Returns the last letters, the newest first; how many there are; how many were not sent again."""
    from klamm.dlq.letters import Wanted
    from klamm.dlq.reading import committed, letters, ranges

    found = ranges(consumer, topic)
    count = sum(high - low for low, high in found.values())
    left = sum(high for _, high in found.values()) - sum(committed(consumer, topic, found).values())
    wanted = Wanted(error=error or None)
    # Letters without the wanted error are passed over, so all are read then
    starts = {p: low if error else max(low, high - SHOWN) for p, (low, high) in found.items()}
    ends = {p: high for p, (_, high) in found.items()}
    kept = deque(
        (x for batch in letters(consumer, topic, starts, ends, stop) for x in batch if wanted(x)), SHOWN
    )
    return sorted(kept, key=lambda x: (x.timestamp or 0, x.offset), reverse=True), count, left


async def replay(visit: Visit) -> web.StreamResponse:
    """Sends letters again, or says what would be sent."""
    from klamm.dlq.letters import CannotReplay

    topic, dry = visit.part("topic"), visit.field("what") != "send"
    if visit.field("what") not in ("try", "send"):
        raise ConsoleError("what: choose what would be sent, or send")
    error = visit.field("error")
    try:
        with visit.console.searching():
            # What was begun is finished, also when the browser leaves
            run = await in_thread(
                lambda stop: _with_consumer(
                    visit.cluster, topic, lambda c: _run(visit.cluster, c, topic, error, stop, dry=dry)
                ),
                lambda: dry and visit.is_gone,
            )
    except CannotReplay as e:
        return await _letters_page(visit, {"wrong": str(e), "sent": {}, "refused": []})
    sent = dict(run.sent)
    if dry:
        return await _letters_page(visit, {"wrong": None, "sent": sent, "refused": run.refused})
    visit.audit("dead letters replayed", topic=topic, sent=sent, error=error or None)
    said = (
        ", ".join(f"{counted(n, 'record')} to {name}" for name, n in sorted(sent.items()))
        or "nothing: there was none to send"
    )
    return visit.go(f"/c/{visit.cluster_name}/dead-letters/{in_path(topic)}", f"Sent again: {said}.")


def _run(cluster: Cluster, consumer: Any, topic: str, error: str, stop: threading.Event, *, dry: bool) -> Any:
    from confluent_kafka import Producer

    from klamm.dlq.letters import Wanted
    from klamm.dlq.replay import Replay, group_of

    run = Replay(topic=topic, wanted=Wanted(error=error or None), skip=True, dry_run=dry, stop=stop)
    settings = cluster.client("producer") | {
        "transactional.id": group_of(topic),
        "partitioner": "murmur2_random",
    }
    run.run(consumer, Producer(settings))
    return run
