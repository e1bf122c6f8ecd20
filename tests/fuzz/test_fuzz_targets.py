"""Every decoder of foreign bytes: seeds are taken, whatever comes of them by mutation is taken or refused in our words."""

from __future__ import annotations

import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from fuzz import many
from fuzz.seeds import SEEDS
from fuzz.targets import REFUSED, TARGETS, judge
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SETTINGS = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)
INTERESTING = st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)) | st.integers(0, 255)


def test_every_target_has_seeds():
    assert SEEDS.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_are_good(target):
    """At least one seed of each target is taken: fuzzing that only meets refusals proves nothing."""

    def taken(seed: bytes) -> bool:
        try:
            TARGETS[target](seed)
        except REFUSED:
            return False
        return True

    assert any(taken(seed) for seed in SEEDS[target]())


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("topics", b'{"version": 1, "starts": Infinity, "deleted": [], "topics": {}}'),
        ("topics", b"[" * 100_000),
        ("cluster_config", b'{"version": 1, "epoch": 1e999, "features": {}, "configs": {}}'),
        ("cluster_config", b'{"a":' * 100_000),
        ("scram_users", b"[" * 100_000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inputs_that_were_not_refused_once(target, data):
    with pytest.raises(REFUSED):
        TARGETS[target](data)


@st.composite
def mutated(draw, seeds):
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0 | 1:
                data[at : at + 1] = bytes([draw(INTERESTING)])
            case 2:
                del data[at : at + draw(st.integers(1, 8))]
            case 3:
                data[at:at] = draw(st.binary(max_size=8))
            case 4:
                data[at : at + 4] = draw(
                    st.sampled_from(
                        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f")
                    )
                )
    return bytes(data)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_taken_or_refused(target):
    seeds = list(SEEDS[target]())

    @SETTINGS
    @given(mutated(seeds) | st.binary(max_size=120))
    def check(data):
        judge(target, data)

    check()


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("what", ["handshakes", "frames"])
def test_mutated_connections_end_with_a_line(what, tmp_path):
    """Whoever sends half a login and leaves between two requests has no line: that is no failure."""
    ends = many.against_a_broker(what, 500, random.Random(), tmp_path)
    assert ends["closed"] + ends["answered and closed"] + ends["reset"] == 500
    if what == "handshakes":  # lines are few on purpose, and the others counted
        assert ends["klamm_tls_handshakes_failed_total"] == 500
        assert ends["lines about an end"] >= 10
    else:
        assert ends["lines about an end"] >= 450


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed (pip install atheris)")
@pytest.mark.parametrize("target", TARGETS)
def test_atheris_finds_nothing_in_ten_seconds(target, tmp_path):
    run = [sys.executable, str(Path(__file__).with_name("run.py")), target, "-max_total_time=10"]
    ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
