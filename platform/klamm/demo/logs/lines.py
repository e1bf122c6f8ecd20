"""The lines that the services of the demonstration write. Pure: the same seed and start time give the same lines.

Line `n` is due at `start_ms + n * 1000 / rate` and carries that time, so the whole stream is known before the first line is
written. Every line has an id of its own: `rid=<32 hex digits>` in an access log, `"id":"<32 hex digits>"` in an application
log. The few lines that no parser understands have an id, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, Literal

ID_PATTERN: Final = r'(?:rid=|"id":")([0-9a-f]{32})'
"""Finds a line's id in every kind of line."""

UNPARSABLE: Final = 1 / 400
"""This share of the lines is damaged, as in real logs: a line of another program, or a JSON document that was cut off."""
ERRORS: Final = 0.01
ERRORS_IN_EPISODE: Final = 0.3

Kind = Literal["access", "app"]
Rotation = Literal["rename", "copytruncate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that logs. It writes `share` of all lines into `file`, a path relative to the log directory."""

    name: str
    kind: Kind
    share: float
    owner: str
    tier: str
    rotation: Rotation | None = None

    @property
    def file(self) -> str:
        return f"{self.name}/{self.kind}.log"


SERVICES: Final = (
    Service(name="gateway", kind="access", share=0.4, owner="edge", tier="critical", rotation="rename"),
    Service(name="shop", kind="access", share=0.2, owner="storefront", tier="critical"),
    Service(
        name="checkout", kind="app", share=0.15, owner="orders", tier="critical", rotation="copytruncate"
    ),
    Service(name="payments", kind="app", share=0.15, owner="orders", tier="critical"),
    Service(name="search", kind="app", share=0.1, owner="discovery", tier="standard"),
)


@dataclass(frozen=True, slots=True)
class Episode:
    """A time in which a service fails often, in ms since the epoch."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run: `total` lines at `rate` a second from `start_ms` (ms since the epoch)."""

    seed: int
    start_ms: int
    rate: int
    total: int

    def due_ms(self, number: int) -> int:
        return self.start_ms + number * 1000 // self.rate

    def episodes(self) -> dict[str, Episode]:
        """Returns one episode for every service. It begins somewhere in the run and takes a fifth of it."""
        random_ = random.Random(f"episodes {self.seed}")
        length = self.total * 1000 // self.rate
        starts = {s.name: self.start_ms + int(length * random_.uniform(0.1, 0.7)) for s in SERVICES}
        return {name: Episode(start, start + length // 5) for name, start in starts.items()}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of `service`, with its line end."""

    service: Service
    due_ms: int
    data: bytes


_ADDRESSES: Final = tuple(f"10.{n % 7}.{n * 37 % 256}.{n * 11 % 254 + 1}" for n in range(500))
_PATHS: Final = (
    "/", "/cart", "/checkout", "/search?q=gorge", "/search?q=stra%C3%9Fe", "/static/app.js", "/api/v1/orders",
    "/api/v1/orders/4711", "/api/v1/stock", "/healthz",
)  # fmt: skip
_AGENTS: Final = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Edg/140.0.0.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 15_6) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.15.0",
    "python-requests/2.32.5",
)
_GOOD: Final = (200, 200, 200, 200, 200, 200, 201, 204, 301, 304, 304, 400, 401, 404, 404)
_BAD: Final = (500, 502, 503, 504)
_MESSAGES: Final = {
    "checkout": ("order {n} placed", "basket of {n} items priced", "voucher refused: “expired in {n}”"),
    "payments": (
        "payment {n} authorised",
        "card of customer {n} tokenised",
        "refund {n} queued for the night run",
    ),
    "search": (
        "query answered from {n} shards",
        "index refreshed in {n} ms",
        "Straße → strasse: {n} synonyms",
    ),
}
_FAILURES: Final = (
    'connection to "db-{n}" lost: server closed the connection unexpectedly',
    "timeout after {n} ms waiting for a free connection",
    "upstream answered 503 {n} times in a row, giving up",
)


class Lines:
    """The lines of a plan, in order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._episodes = plan.episodes()
        self._salt = f"{plan.seed} {plan.start_ms}".encode()
        self._request = self.id(-1)

    def __iter__(self) -> Iterator[Line]:
        shares = [s.share for s in SERVICES]
        for number in range(self._plan.total):
            service = self._random.choices(SERVICES, shares)[0]
            due_ms = self._plan.due_ms(number)
            yield Line(service, due_ms, self._line(service, number, due_ms).encode() + b"\n")

    def _line(self, service: Service, number: int, due_ms: int) -> str:
        episode = self._episodes[service.name]
        share = ERRORS_IN_EPISODE if episode.start_ms <= due_ms < episode.end_ms else ERRORS
        fails, damaged = self._random.random() < share, self._random.random() < UNPARSABLE
        if service.kind == "access":
            return self._access(service, self.id(number), due_ms, fails=fails, damaged=damaged)
        line = self._app(service, self.id(number), due_ms, fails=fails)
        return line[: line.index('"message"') + 16] if damaged else line

    def id(self, number: int) -> str:
        """Returns a line's id, which is unique and looks random."""
        return blake2b(number.to_bytes(8, "big", signed=True), key=self._salt, digest_size=16).hexdigest()

    def _access(self, service: Service, id_: str, due_ms: int, *, fails: bool, damaged: bool) -> str:
        """Returns a line of nginx's combined format, followed by $request_time, $host and $request_id."""
        random_ = self._random
        if damaged:
            return f"nginx: [alert] 31#31: *{due_ms % 9973} open socket left in connection 12, rid={id_}"
        self._request = id_
        stamp = datetime.fromtimestamp(due_ms / 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        status = random_.choice(_BAD if fails else _GOOD)
        size, seconds = random_.randrange(90, 90_000), random_.expovariate(20)
        return (
            f'{random_.choice(_ADDRESSES)} - - [{stamp}] "GET {random_.choice(_PATHS)} HTTP/1.1" {status} {size} "-" '
            f'"{random_.choice(_AGENTS)}" {seconds:.3f} {service.name} rid={id_}'
        )

    def _app(self, service: Service, id_: str, due_ms: int, *, fails: bool) -> str:
        """Returns a JSON document. Its `trace_id` is the id of the latest request in an access log."""
        random_ = self._random
        stamp = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")
        text = random_.choice(_FAILURES if fails else _MESSAGES[service.name])
        document = {
            "@timestamp": stamp.replace("+00:00", "Z"),
            "id": id_,
            "level": "ERROR" if fails else random_.choice(("INFO", "INFO", "INFO", "DEBUG", "WARN")),
            "service": service.name,
            "trace_id": self._request,
            "duration_ms": round(random_.expovariate(0.05), 1),
            "message": text.format(n=random_.randrange(1, 5000)),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
