"""Meters of one quota, by those who share it. Pure; time is passed in.

Values come and go while meters stay, so that a change takes effect on what was used before it. Meters that nobody has
used for an hour are forgotten, and beyond `METERS_MAX` the one that nobody has used for longest: a client may come with any
number of client ids. Ids of more than `NAME_MAX` characters share a meter when they begin alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from klamm_broker.quota.limits import NAME_MAX, Entity, Limits, QuotaKey, Tags
from klamm_broker.quota.rate import INT_MAX, Rate, SlidingSum, TokenBucket, Windows

IDLE_MS: Final = 3_600_000
"""The time after which Kafka forgets a client's sensors, too."""
METERS_MAX: Final = 10_000
"""Meters of one quota: some 10 MB."""
FIGURES_MAX: Final = 1_000
"""Meters that are told to who asks for figures: each is two or three series at /metrics."""
PIECE_S: Final = 0.25
"""The part of a second's tokens that anybody may take who has no debt: smaller answers would cost more than they smooth."""
ORDERS_MAX: Final = 40
"""Those who may have ordered a piece at a time: ten seconds' worth."""
ORDER_MS: Final = 2000
"""The time that an order is kept for one who does not come for it. Its tokens then go back into the bucket."""
_AVERAGED: Final = Windows(count=2, length_ms=30_000)
"""The windows of the average throttle time: those of Kafka's metrics."""


class Meter:
    """The use of a quota by those who share it, and how long they had to wait."""

    __slots__ = ("bucket", "orders", "rate", "throttled", "used_ms")

    def __init__(self, windows: Windows, now_ms: int, *, burst_s: float | None) -> None:
        self.rate = Rate(windows)
        self.throttled = SlidingSum(_AVERAGED)
        self.bucket = None if burst_s is None else TokenBucket(burst_s, now_ms)
        self.orders: dict[int, tuple[float, int]] = {}  # tokens that are paid, and when they are there
        self.used_ms = now_ms

    @property
    def stock(self) -> TokenBucket:
        """The bucket of a quota that has one."""
        assert self.bucket is not None, "a quota of tokens"
        return self.bucket

    def return_orders(self, value: float, now_ms: int) -> None:
        """Put tokens back that nobody came for."""
        while self.orders:
            asker = next(iter(self.orders))
            tokens, due_ms = self.orders[asker]
            if now_ms < due_ms + ORDER_MS:
                return
            del self.orders[asker]
            self.stock.take(-tokens, value, now_ms)


class Quota:
    """One kind of quota: its values and its meters.

    With `burst_s` it is drawn from a bucket that holds what so many seconds allow, and the rate over the windows is only
    told; without, the rate decides. `max_throttle_ms` bounds the delay that one request can cost. `queued` are the
    connections that are held up now.
    """

    def __init__(
        self,
        key: QuotaKey,
        windows: Windows,
        *,
        burst_s: float | None = None,
        max_throttle_ms: int = INT_MAX,
    ) -> None:
        self.key = key
        self.windows = windows
        self.queued = 0
        self._burst_s = burst_s
        self._max_throttle_ms = max_throttle_ms
        self._limits = Limits(key, {})
        self._meters: dict[Tags, Meter] = {}

    def __bool__(self) -> bool:
        """True if any entity has this quota."""
        return bool(self._limits)

    def take(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """Use other values from now on."""
        self._limits = Limits(self.key, quotas)
        if not self._limits:
            self._meters.clear()

    def value(self, user: str, client_id: str) -> float | None:
        """Returns the value that holds for a client, if there is one."""
        found = self._limits.find(user, client_id)
        return None if found is None else found[1]

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float | None:
        """Returns how many tokens should be taken at once at most: those that are there, or a `PIECE_S`; None for any."""
        found = self._limits.find(user, client_id)
        if found is None:
            return None
        return max(self._meter(found[0], now_ms).stock.tokens(found[1], now_ms), found[1] * PIECE_S)

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Note what was used. Returns the time in milliseconds that the rate wants the client to wait, mostly 0."""
        found = self._limits.find(user, client_id)
        if found is None:
            return 0
        rate = self._meter(found[0], now_ms).rate
        rate.record(amount, now_ms)
        return min(rate.throttle_ms(found[1], now_ms), self._max_throttle_ms)

    def note(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Note what was used, or with a negative amount what was not used after all. Nobody waits for it now."""
        found = self._limits.find(user, client_id)
        if found is not None:
            meter = self._meter(found[0], now_ms)
            meter.rate.record(amount, now_ms)
            if meter.bucket is not None:
                meter.bucket.take(amount, found[1], now_ms)

    def draw(
        self, user: str, client_id: str, tokens: float, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Take tokens. Returns whether they were given, and the time until the debt is paid.

        Where it is strict, whoever has a debt gets none, and whoever has none gets any number without a delay.
        """
        found = self._limits.find(user, client_id)
        if found is None:
            return True, 0
        meter = self._meter(found[0], now_ms)
        debt_ms = meter.stock.throttle_ms(found[1], now_ms)
        if strict and debt_ms > 0:
            return False, debt_ms
        meter.stock.take(tokens, found[1], now_ms)
        meter.rate.record(tokens, now_ms)
        return True, 0 if strict else meter.stock.throttle_ms(found[1], now_ms)

    def draw_in_turn(self, user: str, client_id: str, tokens: float, now_ms: int, *, asker: int) -> int:
        """Take tokens unless there is a debt. Returns 0 if they were given, and otherwise when to come again.

        Who is sent away has ordered a `PIECE_S`: it is paid at once, and is there when he comes again. So all who share a
        quota get as much, however fast they come.
        """
        found = self._limits.find(user, client_id)
        if found is None:
            return 0
        value = found[1]
        meter = self._meter(found[0], now_ms)
        meter.return_orders(value, now_ms)
        ordered, due_ms = meter.orders.get(asker, (0.0, now_ms))
        if now_ms < due_ms:
            return due_ms - now_ms
        debt_ms = meter.stock.throttle_ms(value, now_ms)
        if ordered or not debt_ms:
            meter.orders.pop(asker, None)
            meter.stock.take(tokens - ordered, value, now_ms)
            meter.rate.record(tokens, now_ms)
            return 0
        if len(meter.orders) < ORDERS_MAX:
            meter.stock.take(piece := value * PIECE_S, value, now_ms)
            debt_ms = meter.stock.throttle_ms(value, now_ms)
            meter.orders[asker] = piece, now_ms + debt_ms
        return debt_ms

    def throttled(self, user: str, client_id: str, throttle_ms: int, now_ms: int) -> None:
        """Note that a client has to wait."""
        found = self._limits.find(user, client_id)
        if found is not None:
            self._meter(found[0], now_ms).throttled.record(throttle_ms, now_ms)

    def forget_idle(self, now_ms: int) -> None:
        for tags in [tags for tags, meter in self._meters.items() if now_ms - meter.used_ms >= IDLE_MS]:
            del self._meters[tags]

    def figures(self) -> Iterator[tuple[Tags, Meter, float | None]]:
        """Yields who has used the quota last, their meters, and the value that holds for them now."""
        for tags, meter in list(islice(reversed(self._meters.items()), FIGURES_MAX)):
            yield tags, meter, self.value(*tags)

    def _meter(self, tags: Tags, now_ms: int) -> Meter:
        if len(tags[1]) > NAME_MAX:
            tags = tags[0], f"{tags[1][:NAME_MAX]}…"
        meter = self._meters.pop(tags, None)
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                del self._meters[next(iter(self._meters))]
            meter = Meter(self.windows, now_ms, burst_s=self._burst_s)
        self._meters[tags] = meter  # the one that was used last comes last
        meter.used_ms = now_ms
        return meter
