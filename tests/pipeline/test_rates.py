"""Error rates recomputed from files, and their comparison with what the job wrote."""

from __future__ import annotations

from klamm.demo.logs.rates import Difference, Rate, Window, compare, expected, found

ACCESS = (
    '10.0.0.1 - - [21/Nov/2026:10:00:{second} +0000] "GET /a?b=%20c HTTP/1.1" {status} 12 "-" "curl/8" 0.010 shop '
    "rid=" + "0" * 32
)
T0 = 1795255200000  # 2026-11-21T10:00:00Z


def line(second: str, status: int) -> bytes:
    return ACCESS.format(second=second, status=status).encode()


def application(stamp: str, level: str) -> bytes:
    return f'{{"@timestamp":"{stamp}","id":"x","level":"{level}","service":"search","message":"m"}}'.encode()


def test_lines_count_in_the_window_of_their_own_time():
    lines = [
        line("09", 500), line("00", 499), line("10", 200), line("19", 503),
        application("2026-11-21T10:00:09.999Z", "ERROR"), application("2026-11-21T10:00:10.000Z", "WARN"),
        b"neither", b'{"@timestamp":"2026-11-21T10:00:09.999Z","level":"ERR', b"{}", b"[1]", b'{"@timestamp": 5}',
    ]  # fmt: skip
    result = expected(lines, 10_000)
    assert result.unparsable == 5
    assert result.rates == {
        Window("shop", T0): Rate(2, 1),
        Window("shop", T0 + 10_000): Rate(2, 1),
        Window("search", T0): Rate(1, 1),
        Window("search", T0 + 10_000): Rate(1, 0),
    }


def test_a_window_that_differs_or_is_on_one_side_only_is_listed():
    wanted = {Window("a", T0): Rate(2, 1), Window("b", T0): Rate(2, 1), Window("c", T0): Rate(1, 0)}
    rows = [
        {"service": "a", "window_start": "2026-11-21T10:00:00.000Z", "lines": 2, "errors": 1},
        {"service": "b", "window_start": "2026-11-21T10:00:00.000Z", "lines": 2, "errors": 0},
        {"service": "d", "window_start": "2026-11-21T10:00:00.000Z", "lines": 9, "errors": 0},
    ]
    result = compare(wanted, found(rows))
    assert result.windows == 4
    assert result.differences == [
        Difference(Window("b", T0), Rate(2, 1), Rate(2, 0)),
        Difference(Window("c", T0), Rate(1, 0), None),
        Difference(Window("d", T0), None, Rate(9, 0)),
    ]
    assert not compare(wanted, wanted).differences
